/* The part of the schema that tells about tunnels. For config/schema.c only. */
#ifndef MILLRACE_CONFIG_SCHEMA_TUNNEL_H
#define MILLRACE_CONFIG_SCHEMA_TUNNEL_H

#include "config/schema.h"

extern const struct config_group config_tunnel_group;

#endif
