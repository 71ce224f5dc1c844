/* Groups of schema_limits.c that hang in schema_upstream.c. */
#ifndef MILLRACE_CONFIG_SCHEMA_LIMITS_H
#define MILLRACE_CONFIG_SCHEMA_LIMITS_H

#include "config/schema.h"

extern const struct config_group config_limits_group, config_retries_group;

#endif
