/* What the schema table says about itself: for editors (JSON Schema 2020-12, `millrace schema`)
 * and for people (docs/config.md, generated). 0 or -errno of the stream. */
#ifndef MILLRACE_CONFIG_REFERENCE_H
#define MILLRACE_CONFIG_REFERENCE_H

#include <stdio.h>

int config_schema_json(FILE *f);
int config_docs_markdown(FILE *f);

#endif
