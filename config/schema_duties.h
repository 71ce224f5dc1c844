/* The part of the schema that tells about the edge's own duties. For config/schema.c only. */
#ifndef MILLRACE_CONFIG_SCHEMA_DUTIES_H
#define MILLRACE_CONFIG_SCHEMA_DUTIES_H

#include "config/schema.h"

extern const struct config_group config_listener_access, config_route_access, config_per_client,
    config_rate_limit, config_headers_group, config_redirect_group, config_rewrite_group,
    config_maintenance_group, config_request_id_group, config_proxy_protocol_group;
extern const char *const config_trace_choices[];

#endif
