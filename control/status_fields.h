/* status_fields.def as tables, for whoever prints numbers: JSON and Prometheus alike. */
#ifndef MILLRACE_CONTROL_STATUS_FIELDS_H
#define MILLRACE_CONTROL_STATUS_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum status_kind { STATUS_COUNTER, STATUS_GAUGE };

struct status_field {
    const char *group, *name, *help;
    size_t offset; /* into the struct that the table is about */
    bool wide;     /* uint64_t, else uint32_t */
    enum status_kind kind;
};

struct status_table {
    const struct status_field *fields;
    size_t n;
};

extern const struct status_table status_core_fields;     /* struct core_status */
extern const struct status_table status_kind_fields;     /* struct sched_kind */
extern const struct status_table status_listener_fields; /* struct listener_stats */
extern const struct status_table status_upstream_fields; /* struct upstream_stats */
extern const struct status_table status_endpoint_fields; /* struct endpoint_stats */
extern const struct status_table status_port_fields;     /* struct port_counters */

uint64_t status_field_value(const struct status_field *f, const void *of);

#endif
