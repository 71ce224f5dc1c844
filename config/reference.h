/* What the schema table says about itself: for editors (JSON Schema 2020-12, `millrace schema`)
 * and for people (docs/config.md, generated). 0 or -errno of the stream. */
#ifndef MILLRACE_CONFIG_REFERENCE_H
#define MILLRACE_CONFIG_REFERENCE_H

#include <stdio.h>
#include "config/schema.h"
#include "config/snapshot.h"

int config_schema_json(FILE *f);
int config_docs_markdown(FILE *f);

/* The snapshot as YAML, every key with its value: it reads back as the same, but for listeners that
 * drain. 0, -ENOMEM or -errno of the stream. */
int config_write_yaml(const struct snapshot *s, FILE *f);

/* For one key: "duration, 1ms to 5m"; `quote` goes around words ("`", or ""). And "live",
 * "restart" or "live, or restart" (a mapping: NULL). */
void config_docs_type(const struct config_key *k, const char *quote, FILE *f);
const char *config_docs_change(const struct config_key *k);

#endif
