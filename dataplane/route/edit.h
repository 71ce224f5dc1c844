/* What changes in the messages of a route, made ready for one core: the fields that go and come,
 * the path and host that the origin is asked for, the ids.
 *
 * An edit is a copy: it outlives the snapshot that it was made from, for as long as an exchange
 * that began by it goes on.
 *
 * May use: runtime, config/snapshot.h, http. Used by: proxy. Thread: single owner.
 */
#ifndef MILLRACE_DATAPLANE_ROUTE_EDIT_H
#define MILLRACE_DATAPLANE_ROUTE_EDIT_H

#include "config/snapshot.h"
#include "dataplane/http/h1/serialize.h"
#include "dataplane/route/template.h"

struct edit_field {
    const char *name; /* with ": " behind it */
    uint32_t name_len;
    struct config_template value;
};

/* Of requests, or of answers. */
struct edit_side {
    uint64_t drop; /* as struct h1_changes */
    const struct h1_name *names;
    uint32_t nnames;
    uint32_t nfields;
    const struct edit_field *fields;
};

struct route_edit {
    uint32_t refs;
    uint32_t prefix_len;     /* of the path, that the origin's takes the place of */
    uint32_t new_prefix_len; /* 0: the path stays as it came */
    bool needs_key;          /* requests are normalized when they are written */
    uint8_t trace;           /* enum config_trace; request.names ends with "tracestate" then */
    const char *new_prefix;
    const char *host;      /* NULL: Host stays */
    const char *id_header; /* NULL: no ids */
    const char *listener;
    struct edit_side request, response;
};

/* Of a listener's routes without changes of their own (`r` NULL), or of one with them. NULL: no
 * memory. The caller has the reference. */
struct route_edit *route_edit_new(const struct config_listener *l, const struct config_route *r);
void route_edit_put(struct route_edit *e);

static inline struct route_edit *route_edit_get(struct route_edit *e)
{
    e->refs++;
    return e;
}

/* The path for the origin, in two pieces, for a normalized path that begins with the route's
 * prefix. */
void route_edit_path(const struct route_edit *e, const char *path, uint32_t path_len,
                     struct h1_path *ret_path);

/* Writes a side's fields. */
void edit_side_put(struct h1_writer *w, const struct edit_side *s, const struct template_vars *v);

#endif
