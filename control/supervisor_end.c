#include "control/supervisor_impl.h"

static void end(struct supervisor *s)
{
    s->state = RUN_ENDED;
    uv_stop(&s->loop);
}

static void tell_drainers(struct supervisor *s, bool in_time)
{
    for (unsigned i = 0; i < s->ndrainers; i++)
        admin_reply(s->drainer[i], json_pack("{s:b}", "finished_in_time", in_time));
    s->ndrainers = 0;
}

static void on_stop_timeout(uv_timer_t *h)
{
    supervisor_force(h->data, "a core does not stop");
}

static void on_drain_timeout(uv_timer_t *h)
{
    supervisor_stop(h->data, "the drain's time is over");
}

void supervisor_force(struct supervisor *s, const char *why)
{
    log_error(s->log, "ending at once: %s", why);
    s->exit_status = 1;
    tell_drainers(s, false);
    end(s);
}

void supervisor_stop(struct supervisor *s, const char *why)
{
    if (s->state == RUN_STOPPING || s->state == RUN_ENDED)
        return;
    log_info(s->log, "stopping: %s", why);
    notify_stopping(STOP_WAIT_MS * 1000000ull);
    s->state = RUN_STOPPING;
    tell_drainers(s, false);
    drain_stop(&s->drain);
    uv_timer_start(&s->end_timer, on_stop_timeout, STOP_WAIT_MS, 0);
    uv_async_send(&s->core_exit);
}

static void add_drainer(struct supervisor *s, struct admin_request *r, uint64_t timeout_ns)
{
    if (s->ndrainers == sizeof(s->drainer) / sizeof(s->drainer[0])) {
        admin_refuse(r, "draining; too many wait for its end", NULL);
        return;
    }
    s->drainer[s->ndrainers++] = r;
    admin_note(r, json_pack("{s:s, s:I}", "state", "draining", "timeout_ms",
                            (json_int_t)(timeout_ns / 1000000)));
}

void supervisor_drain(struct supervisor *s, const char *why, struct admin_request *r)
{
    uint64_t timeout = s->publish.current->drain.timeout, now = supervisor_now();

    if (s->state == RUN_STOPPING || s->state == RUN_ENDED) {
        if (r)
            admin_refuse(r, "millrace is stopping", NULL);
        return;
    }
    if (drain_start(&s->drain, now + timeout)) {
        log_info(s->log, "draining for at most %lu ms: %s", timeout / 1000000, why);
        notify_draining(timeout, (DRAIN_GRACE_MS + STOP_WAIT_MS) * 1000000ull);
        s->state = RUN_DRAINING;
        uv_timer_start(&s->end_timer, on_drain_timeout, timeout / 1000000 + DRAIN_GRACE_MS, 0);
        uv_async_send(&s->core_exit);
    }
    if (r)
        add_drainer(s, r, s->drain.deadline > now ? s->drain.deadline - now : 0);
}

void supervisor_on_core_exit(uv_async_t *h)
{
    struct supervisor *s = h->data;

    if (s->state == RUN_SERVING && cores_running(&s->cores) < s->cores.n) {
        log_error(s->log, "a core has left its loop unasked");
        s->exit_status = 1;
        supervisor_stop(s, "a core is missing");
    }
    if ((s->state == RUN_DRAINING || s->state == RUN_STOPPING) && drain_is_done(&s->drain)) {
        bool in_time = s->state == RUN_DRAINING && supervisor_now() < s->drain.deadline;
        if (s->state == RUN_DRAINING)
            log_info(s->log, in_time ? "drained: every connection has finished"
                                     : "drained: the time was over, the rest was cut");
        tell_drainers(s, in_time);
        end(s);
    }
}
