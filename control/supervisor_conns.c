#include <stdlib.h>

#include "control/supervisor_impl.h"

struct conns_waiter {
    struct list_node node;
    struct conns_request request;
    struct admin_request *admin;
};

static void on_conns(struct conns_request *r, json_t *answer)
{
    struct conns_waiter *w = container_of(r, struct conns_waiter, request);

    list_remove(&w->node);
    admin_reply(w->admin, answer);
    free(w);
}

void supervisor_conns(struct supervisor *s, const struct admin_call *call, struct admin_request *r)
{
    struct conns_waiter *w = calloc(1, sizeof(*w));
    char err[256] = "out of memory";

    if (!w || conns_parse(call, &w->request, err, sizeof(err))) {
        admin_refuse(r, err, NULL);
        free(w);
        return;
    }
    w->admin = r;
    w->request.fn = on_conns;
    list_push_tail(&s->conns_waiters, &w->node);
    conns_ask(s->conns, &w->request);
}

void supervisor_end_conns(struct supervisor *s)
{
    struct list_node *n;

    while ((n = list_pop_head(&s->conns_waiters))) {
        struct conns_waiter *w = container_of(n, struct conns_waiter, node);
        conns_cancel(&w->request);
        admin_refuse(w->admin, "millrace is stopping", NULL);
        free(w);
    }
}
