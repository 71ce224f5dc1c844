/* What becomes of TLS listeners' files while the process runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "control/certs.h"
#include "control/supervisor_impl.h"

/* What is wrong in the files now: its listener goes on with what it had. */
static void log_faults(struct supervisor *s)
{
    const struct snapshot *c = s->publish.current;
    const struct config_tls_checker *checker = certs_checker(false);
    struct config_tls_fault f;

    for (size_t i = 0; i < c->nlisteners; i++) {
        const struct config_listener *l = &c->listeners[i];
        if (l->tls && !checker->check(checker->ctx, l->tls, &f))
            log_error(s->log, "listener %s: tls.%s: %s; what was there before stays", l->name,
                      f.key, f.text);
    }
}

static void on_files(void *ctx)
{
    struct supervisor *s = ctx;

    if (s->state != RUN_SERVING)
        return;
    log_faults(s);
    uint64_t before = s->publish.current->version;
    publish_refresh(&s->publish);
    if (s->publish.current->version == before)
        return;
    log_info(s->log, "version %" PRIu64 ": certificates and the like were read again",
             s->publish.current->version);
    supervisor_apply_tls(s);
    supervisor_apply_health(s);
    supervisor_nudge_cores(s);
}

int supervisor_start_tls(struct supervisor *s)
{
    s->certs = certs_new(&s->loop, on_files, s);
    if (!s->certs)
        return -1;
    s->tickets_at = supervisor_now();
    supervisor_apply_tls(s);
    return 0;
}

/* A core dump would have the keys in it. */
static void no_core_dumps(struct supervisor *s)
{
    static const struct rlimit none = {0, 0};
    struct rlimit before;

    if (getrlimit(RLIMIT_CORE, &before) == 0 && before.rlim_max == 0)
        return;
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        log_warn(s->log, "core dumps can't be turned off; they would have private keys in them");
    else
        log_info(s->log, "core dumps are off from now on: private keys are in memory");
}

void supervisor_apply_tls(struct supervisor *s)
{
    certs_watch(s->certs, s->log, s->publish.current);
    free(s->cert_list);
    s->cert_list = certs_list(s->publish.current, &s->ncert_list);
    certs_warn(s->log, s->cert_list, s->ncert_list);
    if (s->ncert_list)
        no_core_dumps(s);
}

/* The process's own keys seal for the shortest time that any listener asks for. */
static uint64_t rotation(const struct snapshot *c)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < c->nlisteners; i++) {
        const struct config_tls *tls = c->listeners[i].tls;
        if (tls && tls->tickets && !tls->ticket_keys && tls->ticket_rotation < least)
            least = tls->ticket_rotation;
    }
    return least;
}

void supervisor_tick_tls(struct supervisor *s)
{
    uint64_t now = supervisor_now(), every = rotation(s->publish.current);

    core_tidy(engine_shared(s->engine));
    if (every == UINT64_MAX || now - s->tickets_at < every)
        return;
    s->tickets_at = now;
    if (core_rotate_tickets(engine_shared(s->engine)) != 0)
        log_error(s->log, "session tickets: no new key, the old one goes on");
}
