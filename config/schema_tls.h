/* The part of the schema that tells about TLS of a listener. For config/schema.c only. */
#ifndef MILLRACE_CONFIG_SCHEMA_TLS_H
#define MILLRACE_CONFIG_SCHEMA_TLS_H

#include "config/schema.h"

extern const struct config_group config_tls_group;

#endif
