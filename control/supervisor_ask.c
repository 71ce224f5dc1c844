#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/reference.h"
#include "control/metrics_text.h"
#include "control/stalls.h"
#include "control/status_json.h"
#include "control/supervisor_impl.h"
#include "control/version.h"
#include "runtime/clock.h"

/* Someone who wants to know how the cores are; exactly one of the two. */
struct ask {
    struct list_node node;
    struct status_request request;
    struct supervisor *s;
    struct admin_request *admin;
    struct metrics_request *metrics;
    bool buckets;
};

static void fill_ports(struct supervisor *s, const struct snapshot *c, struct process_info *p)
{
    p->nports = engine_nports(s->engine);
    for (unsigned i = 0; i < p->nports && i < c->nports; i++) {
        p->ports[i].name = c->ports[i].name;
        p->ports[i].device = c->ports[i].device;
        engine_port_info(s->engine, i, &p->ports[i].info);
        engine_port_counters(s->engine, i, &p->ports[i].counters);
    }
}

static void fill_info(struct supervisor *s, struct process_info *p)
{
    const struct snapshot *c = s->publish.current;

    memset(p, 0, sizeof(*p));
    p->version = MILLRACE_VERSION;
    p->build = MILLRACE_BUILD;
    p->dpdk = engine_dpdk_version();
    p->state = supervisor_state_name(s);
    p->config_path = c->path;
    p->pid = getpid();
    p->uptime_ns = supervisor_now() - s->started;
    p->started_wall_ns = s->started_wall;
    p->config_version = c->version;
    p->config_loaded_wall_ns = s->published_wall;
    p->reloads = s->publish.reloads;
    p->reloads_refused = s->publish.refused;
    p->last_reload_ok = s->last_reload_ok;
    p->old_versions = s->publish.nold;
    p->draining = c->draining;
    p->ndraining = c->ndraining;
    p->overrides = &s->publish.overrides;
    p->base = s->publish.base;
    p->history = &s->publish.history;
    p->listeners = c->listeners;
    p->nlisteners = c->nlisteners;
    log_stats(s->log, &p->log);
    p->certs = s->cert_list;
    p->ncerts = s->ncert_list;
    for (p->npool = 0; p->npool < blocking_classes(engine_pool(s->engine)); p->npool++)
        blocking_stats_get(engine_pool(s->engine), p->npool, &p->pool[p->npool]);
    fill_ports(s, c, p);
}

static void answer_metrics(struct ask *a, const struct process_info *p, const struct status_view *v)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    int e = f ? metrics_write(f, p, v) : -1;

    if (f && fclose(f))
        e = -1;
    if (e) {
        free(text);
        text = NULL;
    }
    metrics_reply(a->metrics, text, len);
}

static void answer_status(struct ask *a, const struct process_info *p, const struct status_view *v)
{
    json_t *status = status_to_json(p, v);

    if (status && a->buckets)
        status_add_buckets(status, p, v);
    admin_reply(a->admin, status);
}

static void on_status(struct status_request *r, const struct status_view *v)
{
    struct ask *a = container_of(r, struct ask, request);
    struct process_info p;

    fill_info(a->s, &p);
    list_remove(&a->node);
    if (a->admin)
        answer_status(a, &p, v);
    else
        answer_metrics(a, &p, v);
    free(a);
}

/* False: no memory; nobody was answered. */
static bool ask(struct supervisor *s, struct admin_request *admin, struct metrics_request *metrics,
                bool buckets)
{
    struct ask *a = calloc(1, sizeof(*a));

    if (!a)
        return false;
    a->s = s;
    a->admin = admin;
    a->metrics = metrics;
    a->buckets = buckets;
    a->request.fn = on_status;
    list_push_tail(&s->asks, &a->node);
    status_ask(s->status, &a->request);
    return true;
}

void supervisor_on_metrics(void *ctx, struct metrics_request *r)
{
    if (!ask(ctx, NULL, r, false))
        metrics_reply(r, NULL, 0);
}

void supervisor_end_asks(struct supervisor *s)
{
    struct list_node *n;

    while ((n = list_pop_head(&s->asks))) {
        struct ask *a = container_of(n, struct ask, node);
        status_cancel(&a->request);
        if (a->admin)
            admin_refuse(a->admin, "millrace is stopping", NULL);
        else
            metrics_reply(a->metrics, NULL, 0);
        free(a);
    }
}

static char *yaml_of(const struct snapshot *s)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    int e = f ? config_write_yaml(s, f) : -1;

    if (f && fclose(f))
        e = -1;
    if (!e)
        return text;
    free(text);
    return NULL;
}

/* All that `millrace diff`, `explain` and `config` need; they do the rest on their side. */
static void answer_config(struct supervisor *s, struct admin_request *r)
{
    const struct publish *p = &s->publish;
    char *base = yaml_of(p->base), *running = yaml_of(p->current);
    json_t *o = NULL;

    if (base && running)
        o = json_pack("{s:I, s:s, s:s, s:s, s:s, s:o, s:o}", "version",
                      (json_int_t)p->current->version, "path", s->source->name, "text",
                      history_newest(&p->history)->text, "base", base, "running", running,
                      "overrides", overrides_to_json(&p->overrides, p->base), "history",
                      history_to_json(&p->history));
    free(base);
    free(running);
    admin_reply(r, o);
}

void supervisor_on_admin(void *ctx, const struct admin_call *call, struct admin_request *r)
{
    struct supervisor *s = ctx;

    switch (call->verb) {
    case ADMIN_STATUS:
        if (!ask(s, r, NULL, admin_text(call, "detail") != NULL))
            admin_refuse(r, "out of memory", NULL);
        break;
    case ADMIN_RELOAD:
        supervisor_reload(s, "asked on the admin socket", call, r);
        break;
    case ADMIN_ROLLBACK:
        supervisor_rollback(s, call, r);
        break;
    case ADMIN_UPSTREAM:
        supervisor_upstream(s, call, r);
        break;
    case ADMIN_CONFIG:
        answer_config(s, r);
        break;
    case ADMIN_DRAIN:
        supervisor_drain(s, "asked on the admin socket", r);
        break;
    case ADMIN_CONNS:
        supervisor_conns(s, call, r);
        break;
    case ADMIN_STALLS:
        admin_reply(r, stalls_to_json(&s->cores, supervisor_now(), clock_wall_offset()));
        break;
#ifdef MILLRACE_DEBUG_VERBS
    case ADMIN_MISBEHAVE:
        supervisor_misbehave(s, call, r);
        break;
#endif
    default:
        admin_reply(r, json_pack("{s:s, s:s}", "version", MILLRACE_VERSION, "state",
                                 supervisor_state_name(s)));
        break;
    }
}
