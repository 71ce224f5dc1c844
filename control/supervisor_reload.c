#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/draining.h"
#include "control/supervisor_impl.h"
#include "control/upstream_verb.h"

/* A client that gets its answer when the cores have taken what was published. */
struct reload_wait {
    struct list_node node;
    struct admin_request *admin;
    json_t *result;
    uint64_t deadline;
};

static json_t *waiting_cores(const struct supervisor *s)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < s->cores.n; i++)
        if (cores_is_running(&s->cores, i) &&
            s->cores.ops->acked(s->cores.ctx, i) < s->publish.current->version)
            json_array_append_new(a, json_integer(i));
    return a;
}

static void finish_wait(struct supervisor *s, struct reload_wait *w, bool acknowledged)
{
    list_remove(&w->node);
    json_object_set_new(w->result, "acknowledged", json_boolean(acknowledged));
    json_object_set_new(w->result, "waiting_cores", waiting_cores(s));
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
            finish_wait(s, w, acknowledged);
    }
    /* What is still pinned is looked for by the tick: a long exchange may hold it for minutes. */
    if (acknowledged || (list_is_empty(&s->reloads) && old == 0))
        uv_timer_stop(h);
}

void supervisor_end_reloads(struct supervisor *s)
{
    struct list_node *n;

    while ((n = list_first(&s->reloads)))
        finish_wait(s, container_of(n, struct reload_wait, node), false);
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

static json_t *changes_to_json(const struct config_diff *d)
{
    json_t *changes = json_array();

    for (size_t i = 0; i < d->nchanges; i++) {
        const struct config_change *c = &d->changes[i];
        json_array_append_new(changes, json_pack("{s:s, s:s, s:s, s:b}", "key", c->key, "from",
                                                 c->from, "to", c->to, "live", c->live));
    }
    return changes;
}

static json_t *dropped_to_json(const struct config_overrides *o)
{
    json_t *a = json_array();

    for (size_t i = 0; i < o->count; i++)
        json_array_append_new(
            a, json_pack("{s:s, s:s}", "key", o->list[i].path, "value", o->list[i].value));
    return a;
}

static json_t *result_to_json(const struct publish_result *r)
{
    json_t *o = json_pack(
        "{s:I, s:b, s:o, s:I, s:I, s:o}", "version", (json_int_t)r->version, "changed", r->changed,
        "changes", changes_to_json(&r->diff), "needs_restart", (json_int_t)r->diff.nfrozen,
        "overrides", (json_int_t)r->overrides, "overrides_dropped", dropped_to_json(&r->dropped));

    if (r->repeats)
        json_object_set_new(o, "repeats", json_integer((json_int_t)r->repeats));
    return o;
}

static const char *refusal(const struct publish_result *r)
{
    if (r->error_text[0])
        return r->error_text;
    switch (r->error) {
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
    log_error(s->log, "refused: %s; version %" PRIu64 " goes on unchanged", refusal(r), r->version);
    if (admin)
        admin_refuse(admin, refusal(r), errors_to_json(r));
}

static void log_outcome(struct supervisor *s, const struct publish_result *r)
{
    char *text = publish_diff_text(&r->diff);

    if (text && *text)
        log_info(s->log, "%s", text);
    free(text);
    for (size_t i = 0; i < r->dropped.count; i++)
        log_warn(s->log, "override %s: %s is dropped", r->dropped.list[i].path,
                 r->dropped.list[i].value);
    if (r->changed)
        log_info(s->log, "configuration version %" PRIu64 " published, %zu changes, %zu overrides",
                 r->version, r->diff.nchanges - r->diff.nfrozen, r->overrides);
    else
        log_info(s->log, "nothing to change at once, version %" PRIu64 " goes on", r->version);
    if (r->diff.nfrozen)
        log_warn(s->log, "%zu changes need a restart", r->diff.nfrozen);
}

static void on_nudged(struct status_request *r, const struct status_view *v)
{
    (void)r;
    (void)v;
}

void supervisor_nudge_cores(struct supervisor *s)
{
    if (!list_is_linked(&s->nudge.node_)) {
        s->nudge.fn = on_nudged;
        status_ask(s->status, &s->nudge);
    }
    uv_timer_start(&s->ack_timer, supervisor_on_ack_timer, 0, ACK_POLL_MS);
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
    supervisor_nudge_cores(s);
}

static void answer(struct supervisor *s, const struct publish_result *r,
                   struct admin_request *admin)
{
    notify_ready(&s->notify, s->publish.current->version);
    if (r->error) {
        refused(s, r, admin);
        return;
    }
    if (r->changed) {
        s->published_wall = supervisor_wall_now();
        log_configure(s->log, &s->publish.current->log);
        supervisor_apply_health(s);
        supervisor_apply_tls(s);
    }
    log_outcome(s, r);
    wait_for_cores(s, r, admin);
}

static bool is_serving(const struct supervisor *s, struct admin_request *r)
{
    if (s->state == RUN_SERVING)
        return true;
    if (r)
        admin_refuse(r, "millrace is ending, no change any more", NULL);
    return false;
}

static struct publish_opts options_of(const struct admin_call *call)
{
    struct publish_opts o = {.wall_now = supervisor_wall_now()};

    if (call) {
        const char *overrides = admin_text(call, "overrides");
        o.has_if_version = admin_number(call, "if_version", &o.if_version);
        o.drop_overrides = overrides && strcmp(overrides, "drop") == 0;
    }
    return o;
}

void supervisor_reload(struct supervisor *s, const char *why, const struct admin_call *call,
                       struct admin_request *r)
{
    struct publish_opts o = options_of(call);
    struct publish_result result;
    struct config_errors errs;
    char *text = NULL;
    size_t len;

    if (!is_serving(s, r))
        return;
    log_info(s->log, "reload of %s: %s", s->source->name, why);
    notify_reloading(supervisor_now());
    config_errors_init(&errs);
    int e = s->source->ops->load(s->source, &text, &len, &errs);
    if (e)
        publish_unreadable(&s->publish, e, &errs, &result);
    else
        publish_text(&s->publish, s->source->name, text, len, &o, &result);
    free(text);
    s->last_reload_ok = result.error == 0;
    answer(s, &result, r);
    publish_result_fini(&result);
}

void supervisor_rollback(struct supervisor *s, const struct admin_call *call,
                         struct admin_request *r)
{
    struct publish_opts o = options_of(call);
    struct publish_result result;
    uint64_t version = 0;

    if (!is_serving(s, r))
        return;
    admin_number(call, "version", &version);
    publish_rollback(&s->publish, version, &o, &result);
    log_info(s->log, "asked on the admin socket to roll back to version %" PRIu64,
             result.repeats ? result.repeats : version);
    answer(s, &result, r);
    publish_result_fini(&result);
}

void supervisor_upstream(struct supervisor *s, const struct admin_call *call,
                         struct admin_request *r)
{
    struct publish_opts o = options_of(call);
    struct config_overrides changes;
    struct publish_result result;
    char err[256];

    if (!is_serving(s, r))
        return;
    if (upstream_verb_changes(call, s->publish.base, &s->publish.overrides, &changes, err,
                              sizeof(err))) {
        admin_refuse(r, err, NULL);
        return;
    }
    log_info(s->log, "upstream %s: %s, asked on the admin socket", admin_text(call, "upstream"),
             admin_text(call, "action"));
    publish_set(&s->publish, changes.list, changes.count, &o, &result);
    answer(s, &result, r);
    publish_result_fini(&result);
    config_overrides_fini(&changes);
}

static void on_drained(struct status_request *r, const struct status_view *v)
{
    struct supervisor *s = container_of(r, struct supervisor, drained);
    uint64_t before = s->publish.current->version;

    if (s->state != RUN_SERVING)
        return;
    draining_look(&s->publish, v);
    publish_clean(&s->publish);
    if (s->publish.current->version == before)
        return;
    log_info(s->log, "version %" PRIu64 ": listeners that are gone have drained, %zu have not yet",
             s->publish.current->version, s->publish.current->ndraining);
    supervisor_apply_health(s);
    supervisor_nudge_cores(s);
}

void supervisor_look_at_draining(struct supervisor *s)
{
    if (s->state != RUN_SERVING || !s->publish.current->ndraining ||
        list_is_linked(&s->drained.node_))
        return;
    s->drained.fn = on_drained;
    status_ask(s->status, &s->drained);
}
