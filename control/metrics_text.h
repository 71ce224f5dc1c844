/* Status in Prometheus' text format 0.0.4. Names are stable; every family has HELP and TYPE and
 * stands in one piece. */
#ifndef MILLRACE_CONTROL_METRICS_TEXT_H
#define MILLRACE_CONTROL_METRICS_TEXT_H

#include <stdio.h>

#include "control/process_info.h"
#include "control/status.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* 0 or -errno of the stream or of memory. */
int metrics_write(FILE *f, const struct process_info *p, const struct status_view *v);

/* A label's value with backslash, quote and newline escaped, and what is no printable ASCII as '?'.
 */
void metrics_write_label(FILE *f, const char *value);

#endif
