/* The metrics address: HTTP by libmicrohttpd, driven by control's loop.
 *
 * GET and HEAD of /metrics, of / (says where to look) and of /healthz (200 while requests are
 * served, 503 while draining). At most METRICS_MAX_CLIENTS at once, slow ones are cut after
 * METRICS_TIMEOUT_S.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_METRICS_H
#define MILLRACE_CONTROL_METRICS_H

#include <stddef.h>
#include <uv.h>

#include "config/snapshot.h"

#define METRICS_MAX_CLIENTS 32
#define METRICS_TIMEOUT_S   10

struct metrics;
struct metrics_request;

struct metrics_opts {
    struct config_addr address;
    /* Someone asks for the numbers. Answer with metrics_reply(), at once or later. */
    void (*ask)(void *ctx, struct metrics_request *r);
    bool (*is_healthy)(void *ctx);
    void *ctx;
};

/* 0, or -errno with one line in err. */
int metrics_new(uv_loop_t *loop, const struct metrics_opts *o, struct metrics **ret_metrics,
                char *err, size_t err_len);

/* Takes over `text`, which came from malloc(); NULL answers 503. Ends the request. */
void metrics_reply(struct metrics_request *r, char *text, size_t len);

/* Requests that still wait are answered with 503. NULL is fine. */
void metrics_close(struct metrics *m);

#endif
