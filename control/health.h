/* What is known of endpoints, between the cores that find out and the cores that go by it.
 *
 * Every core keeps a message of ours until a probe has ended or requests fail one after the other;
 * at the end of a window all are asked for what requests found. verdict.h decides. What has changed
 * goes to every core as one small message; a core that has not taken the last one yet gets the
 * newest state after it. All of it is by name, so that it survives a reload.
 *
 * Thread: control's.
 */
#ifndef MILLRACE_CONTROL_HEALTH_H
#define MILLRACE_CONTROL_HEALTH_H

#include "control/cores.h"
#include "control/verdict.h"

struct health;

struct health_opts {
    struct cores cores;
    /* A core has given back a message: health_poll() has something to do. Called on the core's
     * thread. */
    void (*wake)(void *ctx);
    /* An endpoint's state has changed; `flags`: enum endpoint_flags. May be NULL. */
    void (*on_change)(void *ctx, const struct verdict_endpoint *ep, uint8_t before,
                      enum verdict_cause cause);
    void *ctx;
};

struct health *health_new(const struct health_opts *o); /* NULL: no memory */
/* No core may run any more. NULL is fine. */
void health_free(struct health *h);

/* `s` has been published. 0, or -ENOMEM: goes on by the one before, to be called again. */
int health_apply(struct health *h, const struct snapshot *s, uint64_t now);

/* Takes in what has come, decides, sends. When it is to be called again at the latest; UINT64_MAX:
 * when woken. */
uint64_t health_poll(struct health *h, uint64_t now);

#endif
