/* Walks through the cores' client connections, page by page, core after core (conn_info.h says what
 * a walk sees). A core that gives no page in time is left out and named; its message stays with it.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_CONNS_H
#define MILLRACE_CONTROL_CONNS_H

#include <jansson.h>
#include <uv.h>

#include "control/admin_call.h"
#include "control/cores.h"
#include "runtime/list.h"

#define CONNS_DEFAULT 1000
#define CONNS_MOST    20000

struct conns;
struct conns_leg;

/* Embedded by the asker; zeroed but for what is asked. */
struct conns_request {
    struct conns_filter filter;
    uint32_t limit; /* connections in the answer, CONNS_MOST at the most */
    /* Called once, from the loop. {"connections": […], "more": there are more than the limit,
     * "silent_cores": […]}, the reference is the asker's; NULL: no memory. */
    void (*fn)(struct conns_request *r, json_t *answer);

    struct list_node node_;
    struct conns_leg *leg_;
    json_t *list_, *silent_;
    unsigned core_;
    bool more_;
};

/* 0 or -errno. */
int conns_new(uv_loop_t *loop, const struct cores *cores, unsigned timeout_ms,
              struct conns **ret_conns);

void conns_ask(struct conns *c, struct conns_request *r);
/* No call will come. Harmless when none would. */
void conns_cancel(struct conns_request *r);

/* Every request must have been called or cancelled. Memory goes when the loop has closed the
 * handles, or is left behind if a core still holds a message (the process is about to end). */
void conns_close(struct conns *c);

/* The filter and limit of an admin call. 0, or -EINVAL with a line in err. */
int conns_parse(const struct admin_call *call, struct conns_request *ret, char *err,
                size_t err_len);

/* One connection. NULL: no memory. */
json_t *conn_to_json(unsigned core, const struct conn_info *i);

#endif
