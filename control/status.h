/* Asks every core how it is and hands the answers to whoever wanted to know.
 *
 * A core that does not answer in time is shown as not answering; its message stays with it, and it
 * is not asked again before it has given that one back. Questions that come while one round is
 * under way wait for the next: an answer is never older than its question.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_STATUS_H
#define MILLRACE_CONTROL_STATUS_H

#include <uv.h>

#include "control/cores.h"
#include "runtime/list.h"

struct status_core {
    bool running; /* its thread is in the loop */
    bool answering;
    const struct core_status *s; /* NULL unless answering */
};

struct status_view {
    unsigned ncores;
    struct status_core cores[CONFIG_MAX_CORES];
};

/* Embedded by the asker; zero before first use. */
struct status_request {
    struct list_node node_;
    /* Called once, from the loop; the view is valid during the call. */
    void (*fn)(struct status_request *r, const struct status_view *v);
};

struct status;

/* 0 or -errno. */
int status_new(uv_loop_t *loop, const struct cores *cores, unsigned timeout_ms,
               struct status **ret_status);

void status_ask(struct status *s, struct status_request *r);
/* No call will come. Harmless when none would. */
void status_cancel(struct status_request *r);

/* Drops waiting requests without a call and closes the handles; memory goes when the loop has
 * closed them, or is left behind if a core still holds a message (the process is about to end). */
void status_close(struct status *s);

/* Sums by name (a listener that drains is another one) over the cores that answer, in the order of
 * first appearance; how many. */
unsigned status_sum_listeners(const struct status_view *v, struct listener_stats *ret,
                              unsigned max);
/* By name alone, for those who can't tell a listener that drains from its successor; how many. */
unsigned status_merge_names(struct listener_stats *sums, unsigned n);
unsigned status_sum_upstreams(const struct status_view *v, struct upstream_stats *ret,
                              unsigned max);

struct status_endpoint {
    char upstream[64];
    char name[24]; /* 10.0.0.2:80 */
    struct endpoint_stats s;
};
/* status_endpoints.c. Those of an upstream stand together. */
unsigned status_sum_endpoints(const struct status_view *v, struct status_endpoint *ret,
                              unsigned max);

/* Of the attempts that got a connection, those that got a pooled one; 0 when there were none. */
double status_reuse_ratio(uint64_t reused, uint64_t connects);

#endif
