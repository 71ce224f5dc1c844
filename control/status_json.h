/* Status as JSON: the answer of `millrace status --json`. Keys are stable. */
#ifndef MILLRACE_CONTROL_STATUS_JSON_H
#define MILLRACE_CONTROL_STATUS_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "control/process_info.h"
#include "control/status.h"

/* A new reference; NULL: no memory. */
json_t *status_to_json(const struct process_info *p, const struct status_view *v);

/* Adds to it what the latency histograms hold: "buckets": [[largest value in ns, count], …] to each
 * core's loop.pass and tasks.poll and to each blocking[].queue and .run, empty ones left out. */
void status_add_buckets(json_t *status, const struct process_info *p, const struct status_view *v);

/* The same for people: a table made of that JSON, which may come from another version of us. */
void status_print(const json_t *status, FILE *f);

/* [{"key", "value", "configured"}] and [{"version", "taken_at_ms", "repeats"}]; NULL: empty. */
json_t *overrides_to_json(const struct config_overrides *o, const struct snapshot *base);
json_t *history_to_json(const struct history *h);

#endif
