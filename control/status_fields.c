#include "control/status_fields.h"

#include <string.h>

#include "dataplane/messages.h"

#define ENTRY(type, group, name, member, kind, help)                                               \
    {#group, #name, help, offsetof(type, member), sizeof(((type *)0)->member) == 8, STATUS_##kind},

static const struct status_field core_fields[] = {
#define CORE_FIELD(g, n, m, k, h) ENTRY(struct core_status, g, n, m, k, h)
#include "control/status_fields.def"
};

static const struct status_field kind_fields[] = {
#define KIND_FIELD(g, n, m, k, h) ENTRY(struct sched_kind, g, n, m, k, h)
#include "control/status_fields.def"
};

static const struct status_field listener_fields[] = {
#define LISTENER_FIELD(g, n, m, k, h) ENTRY(struct listener_stats, g, n, m, k, h)
#include "control/status_fields.def"
};

static const struct status_field upstream_fields[] = {
#define UPSTREAM_FIELD(g, n, m, k, h) ENTRY(struct upstream_stats, g, n, m, k, h)
#include "control/status_fields.def"
};

static const struct status_field endpoint_fields[] = {
#define ENDPOINT_FIELD(g, n, m, k, h) ENTRY(struct endpoint_stats, g, n, m, k, h)
#include "control/status_fields.def"
};

static const struct status_field port_fields[] = {
#define PORT_FIELD(g, n, m, k, h) ENTRY(struct port_counters, g, n, m, k, h)
#include "control/status_fields.def"
};

#define TABLE(t)                                                                                   \
    {                                                                                              \
        t, sizeof(t) / sizeof(t[0])                                                                \
    }
const struct status_table status_core_fields = TABLE(core_fields);
const struct status_table status_kind_fields = TABLE(kind_fields);
const struct status_table status_listener_fields = TABLE(listener_fields);
const struct status_table status_upstream_fields = TABLE(upstream_fields);
const struct status_table status_endpoint_fields = TABLE(endpoint_fields);
const struct status_table status_port_fields = TABLE(port_fields);

uint64_t status_field_value(const struct status_field *f, const void *of)
{
    const char *at = (const char *)of + f->offset;
    uint64_t wide;
    uint32_t narrow;

    if (f->wide) {
        memcpy(&wide, at, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, at, sizeof(narrow));
    return narrow;
}
