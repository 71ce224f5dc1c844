#include "control/status_json.h"

#include <stdlib.h>
#include <string.h>

#include "control/status_fields.h"

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* Names come from the config or the network: what is no UTF-8 becomes '?'. */
static json_t *text(const char *s)
{
    json_t *j;

    if (!s)
        return json_null();
    j = json_string(s);
    if (j)
        return j;
    char *copy = strdup(s);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    j = copy ? json_string(copy) : NULL;
    free(copy);
    return j;
}

static json_t *group_of(json_t *o, const char *group)
{
    json_t *g = json_object_get(o, group);

    if (!g) {
        json_object_set_new(o, group, json_object());
        g = json_object_get(o, group);
    }
    return g;
}

static void put_fields(json_t *o, const struct status_table *t, const void *of, bool grouped)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct status_field *f = &t->fields[i];
        json_object_set_new(grouped ? group_of(o, f->group) : o, f->name,
                            number(status_field_value(f, of)));
    }
}

static json_t *latency(const struct hist *h)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "count", number(h->count), "mean_ns",
                     number(hist_mean(h)), "p50_ns", number(hist_percentile(h, 500000)), "p99_ns",
                     number(hist_percentile(h, 990000)), "p999_ns",
                     number(hist_percentile(h, 999000)), "max_ns", number(h->max));
}

/* Every reason, zero or not: who looks for one finds it. */
static json_t *net_drops(const struct net_stats *s)
{
    json_t *o = json_object();

    for (unsigned i = 0; i < NET_DROP_COUNT; i++)
        json_object_set_new(o, net_drop_name(i), number(s->drops[i]));
    return o;
}

static json_t *tcp_drops(const struct tcp_stats *s)
{
    json_t *o = json_object();

    for (unsigned i = 0; i < TCP_DROP_COUNT; i++)
        json_object_set_new(o, tcp_drop_name(i), number(s->drops[i]));
    return o;
}

static json_t *tls_failures(const struct tls_stats *s)
{
    json_t *o = json_object();

    for (unsigned i = 0; i < TLS_FAIL_COUNT; i++)
        json_object_set_new(o, tls_fail_name(i), number(s->failed[i]));
    return o;
}

static json_t *kinds_to_json(const struct core_status *s)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < s->nkinds; i++) {
        const struct sched_kind *k = &s->kinds[i];
        json_t *o = json_pack("{s:o}", "kind", text(k->kind->name));
        put_fields(o, &status_kind_fields, k, false);
        json_object_set_new(o, "bytes", number((uint64_t)k->live * k->kind->size));
        json_object_set_new(o, "poll", latency(&k->poll_ns));
        json_array_append_new(a, o);
    }
    return a;
}

static uint64_t tsc_ns(uint64_t tsc, uint64_t hz)
{
    return hz ? (uint64_t)((double)tsc / (double)hz * 1e9) : 0;
}

static json_t *core_to_json(unsigned i, const struct status_core *c)
{
    json_t *o = json_pack("{s:i, s:b, s:b}", "core", (int)i, "running", c->running, "answering",
                          c->answering);
    const struct core_status *s = c->s;

    if (!o || !s)
        return o;
    json_object_set_new(o, "cpu", number(s->cpu));
    put_fields(o, &status_core_fields, s, true);
    json_t *loop = group_of(o, "loop");
    json_object_set_new(loop, "busy_ns", number(tsc_ns(s->busy_tsc, s->tsc_hz)));
    json_object_set_new(loop, "total_ns", number(tsc_ns(s->total_tsc, s->tsc_hz)));
    json_object_set_new(loop, "pass", latency(&s->pass_ns));
    json_object_set_new(group_of(o, "tasks"), "poll", latency(&s->poll_ns));
    json_object_set_new(group_of(o, "tasks"), "kinds", kinds_to_json(s));
    json_object_set_new(group_of(o, "net"), "drops", net_drops(&s->net));
    json_object_set_new(group_of(o, "tcp"), "drops", tcp_drops(&s->tcp));
    json_object_set_new(group_of(o, "tls"), "failed", tls_failures(&s->tls));
    json_object_set_new(group_of(o, "tls"), "handshake_ns", latency(&s->tls.handshake_ns));
    return o;
}

static json_t *buckets(const struct hist *h)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        uint64_t end = hist_bucket_end(i);
        if (h->buckets[i])
            json_array_append_new(a, json_pack("[o, o]", number(end > INT64_MAX ? h->max : end),
                                               number(h->buckets[i])));
    }
    return a;
}

static void add_pool_buckets(json_t *list, const struct process_info *p)
{
    json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        json_object_set_new(json_object_get(o, "queue"), "buckets", buckets(&p->pool[i].queue_ns));
        json_object_set_new(json_object_get(o, "run"), "buckets", buckets(&p->pool[i].run_ns));
    }
}

void status_add_buckets(json_t *status, const struct process_info *p, const struct status_view *v)
{
    add_pool_buckets(json_object_get(status, "blocking"), p);

    for (unsigned i = 0; i < v->ncores; i++) {
        const struct core_status *s = v->cores[i].s;
        json_t *o = json_array_get(json_object_get(status, "cores"), i);
        if (!s || !o)
            continue;
        json_object_set_new(json_object_get(json_object_get(o, "loop"), "pass"), "buckets",
                            buckets(&s->pass_ns));
        json_object_set_new(json_object_get(json_object_get(o, "tasks"), "poll"), "buckets",
                            buckets(&s->poll_ns));
    }
}

static json_t *address(const struct config_addr *a)
{
    const uint8_t *b = (const uint8_t *)&a->addr;

    return a->addr ? json_sprintf("%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], a->port)
                   : json_sprintf("*:%u", a->port);
}

static const char *kind_of(const struct process_info *p, const struct listener_stats *l)
{
    const struct config_listener *list = l->draining ? p->draining : p->listeners;
    size_t n = l->draining ? p->ndraining : p->nlisteners;

    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, l->name) == 0)
            return list[i].http ? "http" : "tunnel";
    return NULL;
}

static json_t *listeners_to_json(const struct process_info *p, const struct status_view *v)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct listener_stats *sums = calloc(STATUS_MAX_LISTENERS, sizeof(*sums));
    json_t *a = json_array();
    unsigned n = sums ? status_sum_listeners(v, sums, STATUS_MAX_LISTENERS) : 0;

    for (unsigned i = 0; i < n; i++) {
        json_t *o = json_object(), *by_class = json_object(), *away = json_object();
        json_object_set_new(o, "name", text(sums[i].name));
        json_object_set_new(o, "address", address(&sums[i].address));
        json_object_set_new(o, "kind", text(kind_of(p, &sums[i])));
        json_object_set_new(o, "draining", json_boolean(sums[i].draining));
        put_fields(o, &status_listener_fields, &sums[i], false);
        for (unsigned c = 0; c < 6; c++)
            json_object_set_new(by_class, classes[c], number(sums[i].status[c]));
        json_object_set_new(o, "responses", by_class);
        for (unsigned c = 0; c < TURNED_AWAY_COUNT; c++)
            json_object_set_new(away, turned_away_name(c), number(sums[i].turned_away[c]));
        json_object_set_new(o, "turned_away", away);
        json_array_append_new(a, o);
    }
    free(sums);
    return a;
}

/* Those of one upstream; they stand together. */
static json_t *endpoints_to_json(const struct status_endpoint *e, unsigned n, const char *upstream)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < n; i++) {
        if (strcmp(e[i].upstream, upstream) != 0)
            continue;
        json_t *o = json_object();
        json_object_set_new(o, "address", text(e[i].name));
        json_object_set_new(o, "probe",
                            e[i].s.probed ? text(probe_result_name(e[i].s.probe)) : json_null());
        put_fields(o, &status_endpoint_fields, &e[i].s, false);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *upstreams_to_json(const struct status_view *v)
{
    struct upstream_stats *sums = calloc(STATUS_MAX_UPSTREAMS, sizeof(*sums));
    struct status_endpoint *eps = calloc(STATUS_MAX_ENDPOINTS, sizeof(*eps));
    json_t *a = json_array();
    unsigned n = sums ? status_sum_upstreams(v, sums, STATUS_MAX_UPSTREAMS) : 0;
    unsigned neps = eps ? status_sum_endpoints(v, eps, STATUS_MAX_ENDPOINTS) : 0;

    for (unsigned i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "name", text(sums[i].name));
        put_fields(o, &status_upstream_fields, &sums[i], false);
        json_object_set_new(o, "reuse_ratio",
                            json_real(status_reuse_ratio(sums[i].reused, sums[i].connects)));
        json_object_set_new(o, "endpoints", endpoints_to_json(eps, neps, sums[i].name));
        json_array_append_new(a, o);
    }
    free(eps);
    free(sums);
    return a;
}

static json_t *port_to_json(const struct process_port *p)
{
    const uint8_t *m = p->info.mac.addr_bytes;
    json_t *o = json_object();

    json_object_set_new(o, "name", text(p->name));
    json_object_set_new(o, "device", text(p->device));
    json_object_set_new(o, "driver", text(p->info.driver));
    json_object_set_new(
        o, "mac",
        json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]));
    json_object_set_new(o, "mtu", number(p->info.mtu));
    json_object_set_new(o, "queues", number(p->info.queues));
    put_fields(o, &status_port_fields, &p->counters, false);
    return o;
}

static json_t *process_to_json(const struct process_info *p)
{
    json_t *o = json_object();

    json_object_set_new(o, "version", text(p->version));
    json_object_set_new(o, "build", text(p->build));
    json_object_set_new(o, "dpdk", text(p->dpdk));
    json_object_set_new(o, "pid", number((uint64_t)p->pid));
    json_object_set_new(o, "state", text(p->state));
    json_object_set_new(o, "uptime_ms", number(p->uptime_ns / 1000000));
    json_object_set_new(
        o, "config",
        json_pack(
            "{s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "path", text(p->config_path),
            "version", number(p->config_version), "reloads", number(p->reloads), "reloads_refused",
            number(p->reloads_refused), "last_reload_ok", p->last_reload_ok, "old_versions_held",
            number(p->old_versions), "listeners_draining", number(p->ndraining), "overrides",
            overrides_to_json(p->overrides, p->base), "history", history_to_json(p->history)));
    json_object_set_new(o, "log",
                        json_pack("{s:o, s:o, s:o, s:o}", "lines", number(p->log.lines),
                                  "lines_dropped", number(p->log.lines_dropped), "access_records",
                                  number(p->log.records), "access_records_lost",
                                  number(p->log.records_lost)));
    return o;
}

/* The classes of the blocking pool; empty: no pool has been needed. */
static json_t *blocking_to_json(const struct process_info *p)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < p->npool; i++) {
        const struct blocking_stats *b = &p->pool[i];
        json_array_append_new(a, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                                           text(b->name), "queued", number(b->queued), "running",
                                           number(b->running), "submitted", number(b->submitted),
                                           "completed", number(b->completed), "refused",
                                           number(b->refused), "queue", latency(&b->queue_ns),
                                           "run", latency(&b->run_ns)));
    }
    return a;
}

json_t *status_to_json(const struct process_info *p, const struct status_view *v)
{
    json_t *o = process_to_json(p), *cores = json_array(), *ports = json_array();

    for (unsigned i = 0; i < v->ncores; i++)
        json_array_append_new(cores, core_to_json(i, &v->cores[i]));
    for (unsigned i = 0; i < p->nports; i++)
        json_array_append_new(ports, port_to_json(&p->ports[i]));
    json_object_set_new(o, "cores", cores);
    json_object_set_new(o, "ports", ports);
    json_object_set_new(o, "listeners", listeners_to_json(p, v));
    json_object_set_new(o, "upstreams", upstreams_to_json(v));
    json_object_set_new(o, "blocking", blocking_to_json(p));
    return o;
}
