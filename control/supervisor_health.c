#include <inttypes.h>

#include "control/supervisor_impl.h"

#define NS_PER_MS 1000000u

static void poll_health(struct supervisor *s)
{
    uint64_t now = supervisor_now();
    uint64_t next = s->health ? health_poll(s->health, now) : UINT64_MAX;

    if (next == UINT64_MAX)
        uv_timer_stop(&s->health_timer);
    else
        uv_timer_start(&s->health_timer, supervisor_on_health_timer,
                       next > now ? (next - now + NS_PER_MS - 1) / NS_PER_MS : 0, 0);
}

void supervisor_on_health_timer(uv_timer_t *h)
{
    poll_health(h->data);
}

void supervisor_on_health_wake(uv_async_t *h)
{
    poll_health(h->data);
}

/* On a core's thread. */
static void on_wake(void *ctx)
{
    struct supervisor *s = ctx;

    uv_async_send(&s->health_wake);
}

static void on_change(void *ctx, const struct verdict_endpoint *ep, uint8_t before,
                      enum verdict_cause cause)
{
    struct supervisor *s = ctx;
    const uint8_t *b = (const uint8_t *)&ep->key.addr;
    bool is_worse = ep->flags & ~before;
    uint8_t what = ep->flags ^ before;

    log_line(s->log, is_worse ? CONFIG_LOG_WARN : CONFIG_LOG_INFO, "health",
             "upstream %s: endpoint %u.%u.%u.%u:%u is %s%s: %s%s%s", ep->key.upstream, b[0], b[1],
             b[2], b[3], ep->key.port, is_worse ? "" : "no longer ",
             what & ENDPOINT_EJECTED ? "ejected" : "unhealthy", verdict_cause_text(cause),
             cause == VERDICT_probe ? ", the last one said " : "",
             cause == VERDICT_probe ? probe_result_name(ep->probe) : "");
}

void supervisor_apply_health(struct supervisor *s)
{
    s->health_stale = health_apply(s->health, s->publish.current, supervisor_now()) != 0;
    poll_health(s);
}

int supervisor_start_health(struct supervisor *s)
{
    struct health_opts o = {.cores = s->cores, .wake = on_wake, .on_change = on_change, .ctx = s};

    s->health = health_new(&o);
    if (!s->health)
        return -1;
    supervisor_apply_health(s);
    return s->health_stale ? -1 : 0;
}
