/* The cores as control sees them: a seam, so that publishing, draining, status and the watchdog can
 * be tested against cores that don't run.
 *
 * Thread: control's; none of these blocks.
 */
#ifndef MILLRACE_CONTROL_CORES_H
#define MILLRACE_CONTROL_CORES_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/core.h"
#include "dataplane/engine.h"
#include "dataplane/messages.h"

struct cores_ops {
    void (*post)(void *ctx, unsigned core, struct core_msg *m);
    bool (*is_running)(void *ctx, unsigned core);
    uint64_t (*acked)(void *ctx, unsigned core); /* snapshot version */
    bool (*has_released)(void *ctx, unsigned core, uint64_t version);
    uint64_t (*passes)(void *ctx, unsigned core);
    const char *(*activity)(void *ctx, unsigned core); /* core_activity() */
    const struct stall_ring *(*stalls)(void *ctx, unsigned core);
    /* core_prepare() */
    int (*prepare)(void *ctx, struct snapshot *s, char *err, size_t err_len);
    void (*publish)(void *ctx, struct snapshot *s);
};

struct cores {
    const struct cores_ops *ops;
    void *ctx;
    unsigned n;
};

/* Those of a running engine, which must outlive the result. */
struct cores cores_of_engine(struct engine *e);

static inline void cores_post(const struct cores *c, unsigned i, struct core_msg *m)
{
    c->ops->post(c->ctx, i, m);
}

static inline bool cores_is_running(const struct cores *c, unsigned i)
{
    return c->ops->is_running(c->ctx, i);
}

static inline unsigned cores_running(const struct cores *c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < c->n; i++)
        n += cores_is_running(c, i);
    return n;
}

#endif
