#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "control/supervisor_impl.h"

/* A client that gets its answer when the cores have taken what was published. */
struct reload_wait {
    struct list_node node;
    struct admin_request *admin;
    json_t *result;
    uint64_t deadline;
};

static void finish_wait(struct reload_wait *w, bool acknowledged)
{
    list_remove(&w->node);
    json_object_set_new(w->result, "acknowledged", json_boolean(acknowledged));
    admin_reply(w->admin, w->result);
    free(w);
}

void supervisor_on_ack_timer(uv_timer_t *h)
{
    struct supervisor *s = h->data;
    bool acknowledged = publish_is_acknowledged(&s->publish);
    uint64_t now = supervisor_now();
    unsigned old = publish_poll(&s->publish);

    list_for_each_safe(n, tmp, &s->reloads)
    {
        struct reload_wait *w = container_of(n, struct reload_wait, node);
        if (acknowledged || now >= w->deadline)
            finish_wait(w, acknowledged);
    }
    /* What is still pinned is looked for by the tick: a long exchange may hold it for minutes. */
    if (acknowledged || (list_is_empty(&s->reloads) && old == 0))
        uv_timer_stop(h);
}

void supervisor_end_reloads(struct supervisor *s)
{
    struct list_node *n;

    while ((n = list_first(&s->reloads)))
        finish_wait(container_of(n, struct reload_wait, node), false);
}

static json_t *errors_to_json(const struct publish_result *r)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < r->errors.count; i++)
        json_array_append_new(a, json_string(r->errors.list[i].text));
    if (r->errors.more)
        json_array_append_new(a, json_sprintf("… and %zu more", r->errors.more));
    return a;
}

static json_t *result_to_json(const struct publish_result *r)
{
    json_t *changes = json_array();

    for (size_t i = 0; i < r->diff.nchanges; i++) {
        const struct config_change *c = &r->diff.changes[i];
        json_array_append_new(changes, json_pack("{s:s, s:s, s:s, s:b}", "key", c->key, "from",
                                                 c->from, "to", c->to, "live", c->live));
    }
    return json_pack("{s:I, s:b, s:o, s:I}", "version", (json_int_t)r->version, "changed",
                     r->changed, "changes", changes, "needs_restart", (json_int_t)r->diff.nfrozen);
}

static const char *refusal(int e)
{
    switch (e) {
    case -EINVAL:
        return "the configuration is wrong";
    case -EBUSY:
        return "too many older configurations are still in use; try again later";
    case -ENOMEM:
        return "out of memory";
    default:
        return "the configuration can't be read";
    }
}

static void refused(struct supervisor *s, const struct publish_result *r,
                    struct admin_request *admin)
{
    for (unsigned i = 0; i < r->errors.count; i++)
        log_error(s->log, "%s", r->errors.list[i].text);
    if (r->errors.more)
        log_error(s->log, "... and %zu more", r->errors.more);
    log_error(s->log, "reload refused: %s; version %lu goes on unchanged", refusal(r->error),
              r->version);
    s->last_reload_ok = false;
    if (admin)
        admin_refuse(admin, refusal(r->error), errors_to_json(r));
}

static void log_outcome(struct supervisor *s, const struct publish_result *r)
{
    char *text = publish_diff_text(&r->diff);

    if (text && *text)
        log_info(s->log, "%s", text);
    free(text);
    if (r->changed)
        log_info(s->log, "configuration version %lu published, %zu changes", r->version,
                 r->diff.nchanges - r->diff.nfrozen);
    else
        log_info(s->log, "nothing to change at once, version %lu goes on", r->version);
    if (r->diff.nfrozen)
        log_warn(s->log, "%zu changes need a restart", r->diff.nfrozen);
}

static void on_nudged(struct status_request *r, const struct status_view *v)
{
    (void)r;
    (void)v;
}

/* An idle core looks for a new configuration once a second; a message makes it look now. */
static void nudge_cores(struct supervisor *s)
{
    if (list_is_linked(&s->nudge.node_))
        return;
    s->nudge.fn = on_nudged;
    status_ask(s->status, &s->nudge);
}

static void wait_for_cores(struct supervisor *s, const struct publish_result *r,
                           struct admin_request *admin)
{
    struct reload_wait *w = admin ? calloc(1, sizeof(*w)) : NULL;

    if (w) {
        w->admin = admin;
        w->result = result_to_json(r);
        w->deadline = supervisor_now() + ACK_WAIT_NS;
        list_push_tail(&s->reloads, &w->node);
    } else if (admin) {
        admin_refuse(admin, "out of memory", NULL);
    }
    uv_timer_start(&s->ack_timer, supervisor_on_ack_timer, 0, ACK_POLL_MS);
}

void supervisor_reload(struct supervisor *s, const char *why, struct admin_request *r)
{
    struct publish_result result;

    if (s->state != RUN_SERVING) {
        if (r)
            admin_refuse(r, "millrace is ending, no reload any more", NULL);
        return;
    }
    log_info(s->log, "reload of %s: %s", s->o->config, why);
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lu", supervisor_now() / 1000);
    watch_file_seen(s->watch);
    publish_reload(&s->publish, s->o->config, NULL, &result);
    if (result.error) {
        refused(s, &result, r);
    } else {
        s->last_reload_ok = true;
        if (result.changed) {
            s->published_wall = supervisor_wall_now();
            log_configure(s->log, &s->publish.current->log);
            nudge_cores(s);
        }
        log_outcome(s, &result);
        wait_for_cores(s, &result, r);
    }
    sd_notify(0, "READY=1");
    publish_result_fini(&result);
}
