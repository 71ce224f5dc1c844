#include "control/metrics_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/status_fields.h"

void metrics_write_label(FILE *f, const char *value)
{
    for (const char *p = value; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\n')
            fputs("\\n", f);
        else if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else
            fputc(c < 0x20 || c >= 0x7f ? '?' : c, f);
    }
}

static void family(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP millrace_%s %s\n# TYPE millrace_%s %s\n", name, help, name, type);
}

static void single(FILE *f, const char *name, const char *type, const char *help, double v)
{
    family(f, name, type, help);
    fprintf(f, "millrace_%s %.17g\n", name, v);
}

static void sample_label(FILE *f, const char *name, const char *label, const char *value)
{
    fprintf(f, "millrace_%s{%s=\"", name, label);
    metrics_write_label(f, value);
    fputs("\"", f);
}

static void field_name(char *buf, size_t size, const struct status_field *d)
{
    snprintf(buf, size, "%s_%s%s", d->group, d->name, d->kind == STATUS_COUNTER ? "_total" : "");
}

/* One table over n objects, each labelled by its name. */
static void labelled(FILE *f, const struct status_table *t, const char *label, const void *objects,
                     size_t size, unsigned n, const char *(*name_of)(const void *o))
{
    char name[64];

    for (size_t i = 0; i < t->n; i++) {
        field_name(name, sizeof(name), &t->fields[i]);
        family(f, name, t->fields[i].kind == STATUS_COUNTER ? "counter" : "gauge",
               t->fields[i].help);
        for (unsigned k = 0; k < n; k++) {
            const void *o = (const char *)objects + k * size;
            sample_label(f, name, label, name_of(o));
            fprintf(f, "} %" PRIu64 "\n", status_field_value(&t->fields[i], o));
        }
    }
}

static void core_fields(FILE *f, const struct status_view *v)
{
    char name[64];

    for (size_t i = 0; i < status_core_fields.n; i++) {
        const struct status_field *d = &status_core_fields.fields[i];
        field_name(name, sizeof(name), d);
        family(f, name, d->kind == STATUS_COUNTER ? "counter" : "gauge", d->help);
        for (unsigned c = 0; c < v->ncores; c++)
            if (v->cores[c].s)
                fprintf(f, "millrace_%s{core=\"%u\"} %" PRIu64 "\n", name, c,
                        status_field_value(d, v->cores[c].s));
    }
}

static void core_times(FILE *f, const struct status_view *v)
{
    family(f, "core_up", "gauge", "1 when the core answers");
    for (unsigned c = 0; c < v->ncores; c++)
        fprintf(f, "millrace_core_up{core=\"%u\"} %d\n", c, v->cores[c].answering);
    family(f, "core_cpu", "gauge", "The CPU that the core runs on");
    for (unsigned c = 0; c < v->ncores; c++)
        if (v->cores[c].s)
            fprintf(f, "millrace_core_cpu{core=\"%u\"} %u\n", c, v->cores[c].s->cpu);
    family(f, "core_busy_seconds_total", "counter", "Time spent in passes that did any work");
    for (unsigned c = 0; c < v->ncores; c++)
        if (v->cores[c].s && v->cores[c].s->tsc_hz)
            fprintf(f, "millrace_core_busy_seconds_total{core=\"%u\"} %.9f\n", c,
                    (double)v->cores[c].s->busy_tsc / (double)v->cores[c].s->tsc_hz);
    family(f, "core_seconds_total", "counter", "Time since the core's start");
    for (unsigned c = 0; c < v->ncores; c++)
        if (v->cores[c].s && v->cores[c].s->tsc_hz)
            fprintf(f, "millrace_core_seconds_total{core=\"%u\"} %.9f\n", c,
                    (double)v->cores[c].s->total_tsc / (double)v->cores[c].s->tsc_hz);
}

/* Bounds in ns with their label in seconds: hist buckets are an eighth of a power of two wide, so
 * a bound is at most that much off. */
static const struct {
    uint64_t ns;
    const char *le;
} bounds[] = {
    {1000, "1e-06"},      {4000, "4e-06"},      {16000, "1.6e-05"}, {64000, "6.4e-05"},
    {256000, "0.000256"}, {1000000, "0.001"},   {4000000, "0.004"}, {16000000, "0.016"},
    {64000000, "0.064"},  {256000000, "0.256"}, {1000000000, "1"},
};

/* `labels` without the braces. */
static void histogram_samples(FILE *f, const char *name, const char *labels, const struct hist *h)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        fprintf(f, "millrace_%s_bucket{%s,le=\"%s\"} %" PRIu64 "\n", name, labels, bounds[i].le,
                hist_count_le(h, bounds[i].ns));
    fprintf(f, "millrace_%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, h->count);
    fprintf(f, "millrace_%s_sum{%s} %.9f\n", name, labels, (double)h->sum / 1e9);
    fprintf(f, "millrace_%s_count{%s} %" PRIu64 "\n", name, labels, h->count);
}

static void histogram(FILE *f, const struct status_view *v, const char *name, const char *help,
                      size_t offset)
{
    char labels[32];

    family(f, name, "histogram", help);
    for (unsigned c = 0; c < v->ncores; c++) {
        if (!v->cores[c].s)
            continue;
        snprintf(labels, sizeof(labels), "core=\"%u\"", c);
        histogram_samples(f, name, labels, (const void *)((const char *)v->cores[c].s + offset));
    }
}

/* Each kind of each core, with its labels; kinds' names are ours and need no escapes. */
static void each_kind(FILE *f, const struct status_view *v, const char *name,
                      void (*fn)(FILE *f, const char *name, const char *labels,
                                 const struct sched_kind *k))
{
    char labels[96];

    for (unsigned c = 0; c < v->ncores; c++)
        for (unsigned i = 0; v->cores[c].s && i < v->cores[c].s->nkinds; i++) {
            const struct sched_kind *k = &v->cores[c].s->kinds[i];
            snprintf(labels, sizeof(labels), "core=\"%u\",kind=\"%s\"", c, k->kind->name);
            fn(f, name, labels, k);
        }
}

static void kind_bytes(FILE *f, const char *name, const char *labels, const struct sched_kind *k)
{
    fprintf(f, "millrace_%s{%s} %" PRIu64 "\n", name, labels, (uint64_t)k->live * k->kind->size);
}

static void kind_max(FILE *f, const char *name, const char *labels, const struct sched_kind *k)
{
    fprintf(f, "millrace_%s{%s} %.9f\n", name, labels, (double)k->poll_ns.max / 1e9);
}

static void kind_polls(FILE *f, const char *name, const char *labels, const struct sched_kind *k)
{
    histogram_samples(f, name, labels, &k->poll_ns);
}

static void kinds(FILE *f, const struct status_view *v)
{
    char name[64];

    for (size_t n = 0; n < status_kind_fields.n; n++) {
        const struct status_field *d = &status_kind_fields.fields[n];
        field_name(name, sizeof(name), d);
        family(f, name, d->kind == STATUS_COUNTER ? "counter" : "gauge", d->help);
        for (unsigned c = 0; c < v->ncores; c++)
            for (unsigned i = 0; v->cores[c].s && i < v->cores[c].s->nkinds; i++)
                fprintf(f, "millrace_%s{core=\"%u\",kind=\"%s\"} %" PRIu64 "\n", name, c,
                        v->cores[c].s->kinds[i].kind->name,
                        status_field_value(d, &v->cores[c].s->kinds[i]));
    }
    family(f, "task_bytes", "gauge", "Memory of the objects of a kind's live tasks");
    each_kind(f, v, "task_bytes", kind_bytes);
    family(f, "task_poll_max_seconds", "gauge", "The longest poll of a kind since the start");
    each_kind(f, v, "task_poll_max_seconds", kind_max);
    family(f, "task_poll_seconds", "histogram", "Time of polls of tasks of a kind");
    each_kind(f, v, "task_poll_seconds", kind_polls);
}

/* "accepted" and "delivered" are among the reasons: they are what was not lost. */
static void drops(FILE *f, const struct status_view *v)
{
    family(f, "net_packets_total", "counter",
           "Packets by the reason for which the network layer let go of them");
    for (unsigned c = 0; c < v->ncores; c++)
        for (unsigned i = 0; v->cores[c].s && i < NET_DROP_COUNT; i++)
            fprintf(f, "millrace_net_packets_total{core=\"%u\",reason=\"%s\"} %" PRIu64 "\n", c,
                    net_drop_name(i), v->cores[c].s->net.drops[i]);
    family(f, "tcp_segments_total", "counter",
           "Segments by the reason for which TCP let go of them");
    for (unsigned c = 0; c < v->ncores; c++)
        for (unsigned i = 0; v->cores[c].s && i < TCP_DROP_COUNT; i++)
            fprintf(f, "millrace_tcp_segments_total{core=\"%u\",reason=\"%s\"} %" PRIu64 "\n", c,
                    tcp_drop_name(i), v->cores[c].s->tcp.drops[i]);
}

static void tls_failures(FILE *f, const struct status_view *v)
{
    family(f, "tls_handshakes_failed_total", "counter", "Handshakes that failed, by reason");
    for (unsigned c = 0; c < v->ncores; c++)
        for (unsigned i = 0; v->cores[c].s && i < TLS_FAIL_COUNT; i++)
            fprintf(f,
                    "millrace_tls_handshakes_failed_total{core=\"%u\",reason=\"%s\"} %" PRIu64 "\n",
                    c, tls_fail_name(i), v->cores[c].s->tls.failed[i]);
}

static void certificates(FILE *f, const struct process_info *p)
{
    family(f, "tls_certificate_not_after_seconds", "gauge",
           "When a certificate or its chain expires, in Unix time");
    for (size_t i = 0; i < p->ncerts; i++) {
        const struct process_cert *c = &p->certs[i];
        sample_label(f, "tls_certificate_not_after_seconds", "listener", c->listener);
        fputs(",file=\"", f);
        metrics_write_label(f, c->file);
        fputs("\",name=\"", f);
        metrics_write_label(f, c->name);
        fprintf(f, "\",type=\"%s\"} %" PRId64 "\n", c->type, c->not_after);
    }
}

static void pool_count(FILE *f, const struct process_info *p, const char *name, const char *type,
                       const char *help, size_t offset, size_t width)
{
    family(f, name, type, help);
    for (unsigned i = 0; i < p->npool; i++) {
        const void *at = (const char *)&p->pool[i] + offset;
        uint64_t value = width == sizeof(uint64_t) ? *(const uint64_t *)at : *(const unsigned *)at;
        fprintf(f, "millrace_%s{class=\"%s\"} %" PRIu64 "\n", name, p->pool[i].name, value);
    }
}

#define POOL(member)                                                                               \
    offsetof(struct blocking_stats, member), sizeof(((struct blocking_stats *)0)->member)

static void pool_times(FILE *f, const struct process_info *p, const char *name, const char *help,
                       size_t offset)
{
    char labels[64];

    family(f, name, "histogram", help);
    for (unsigned i = 0; i < p->npool; i++) {
        snprintf(labels, sizeof(labels), "class=\"%s\"", p->pool[i].name);
        histogram_samples(f, name, labels, (const void *)((const char *)&p->pool[i] + offset));
    }
}

static void pool(FILE *f, const struct process_info *p)
{
    pool_count(f, p, "blocking_queued", "gauge", "Jobs that wait for a thread of the pool",
               POOL(queued));
    pool_count(f, p, "blocking_running", "gauge", "Jobs that a thread of the pool runs",
               POOL(running));
    pool_count(f, p, "blocking_submitted_total", "counter", "Jobs given to the pool",
               POOL(submitted));
    pool_count(f, p, "blocking_completed_total", "counter", "Jobs done", POOL(completed));
    pool_count(f, p, "blocking_refused_total", "counter", "Jobs that found their queue full",
               POOL(refused));
    pool_times(f, p, "blocking_queue_seconds", "Time of jobs in the queue",
               offsetof(struct blocking_stats, queue_ns));
    pool_times(f, p, "blocking_run_seconds", "Time that jobs ran",
               offsetof(struct blocking_stats, run_ns));
}

static const char *listener_name(const void *o)
{
    return ((const struct listener_stats *)o)->name;
}

static const char *upstream_name(const void *o)
{
    return ((const struct upstream_stats *)o)->name;
}

static int listeners(FILE *f, const struct status_view *v)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct listener_stats *sums = calloc(STATUS_MAX_LISTENERS, sizeof(*sums));

    if (!sums)
        return -ENOMEM;
    unsigned n = status_sum_listeners(v, sums, STATUS_MAX_LISTENERS);
    n = status_merge_names(sums, n);
    labelled(f, &status_listener_fields, "listener", sums, sizeof(*sums), n, listener_name);
    family(f, "listener_responses_total", "counter", "Responses by class of status");
    for (unsigned i = 0; i < n; i++)
        for (unsigned c = 0; c < 6; c++) {
            sample_label(f, "listener_responses_total", "listener", sums[i].name);
            fprintf(f, ",class=\"%s\"} %" PRIu64 "\n", classes[c], sums[i].status[c]);
        }
    family(f, "listener_turned_away_total", "counter",
           "Connections that ended before their protocol began, by reason");
    for (unsigned i = 0; i < n; i++)
        for (unsigned c = 0; c < TURNED_AWAY_COUNT; c++) {
            sample_label(f, "listener_turned_away_total", "listener", sums[i].name);
            fprintf(f, ",reason=\"%s\"} %" PRIu64 "\n", turned_away_name(c),
                    sums[i].turned_away[c]);
        }
    free(sums);
    return 0;
}

static int upstreams(FILE *f, const struct status_view *v)
{
    struct upstream_stats *sums = calloc(STATUS_MAX_UPSTREAMS, sizeof(*sums));

    if (!sums)
        return -ENOMEM;
    unsigned n = status_sum_upstreams(v, sums, STATUS_MAX_UPSTREAMS);
    labelled(f, &status_upstream_fields, "upstream", sums, sizeof(*sums), n, upstream_name);
    family(f, "upstream_reuse_ratio", "gauge",
           "Of the attempts that got a connection, those that got a pooled one");
    for (unsigned i = 0; i < n; i++) {
        sample_label(f, "upstream_reuse_ratio", "upstream", sums[i].name);
        fprintf(f, "} %.6g\n", status_reuse_ratio(sums[i].reused, sums[i].connects));
    }
    free(sums);
    return 0;
}

static int endpoints(FILE *f, const struct status_view *v)
{
    struct status_endpoint *sums = calloc(STATUS_MAX_ENDPOINTS, sizeof(*sums));
    char name[64];

    if (!sums)
        return -ENOMEM;
    unsigned n = status_sum_endpoints(v, sums, STATUS_MAX_ENDPOINTS);
    for (size_t i = 0; i < status_endpoint_fields.n; i++) {
        const struct status_field *d = &status_endpoint_fields.fields[i];
        field_name(name, sizeof(name), d);
        family(f, name, d->kind == STATUS_COUNTER ? "counter" : "gauge", d->help);
        for (unsigned k = 0; k < n; k++) {
            sample_label(f, name, "upstream", sums[k].upstream);
            fprintf(f, ",endpoint=\"%s\"} %" PRIu64 "\n", sums[k].name,
                    status_field_value(d, &sums[k].s));
        }
    }
    free(sums);
    return 0;
}

static void ports(FILE *f, const struct process_info *p)
{
    char name[64];

    family(f, "port_info", "gauge", "Always 1; the labels say what the port is");
    for (unsigned k = 0; k < p->nports; k++) {
        sample_label(f, "port_info", "port", p->ports[k].name);
        fputs(",device=\"", f);
        metrics_write_label(f, p->ports[k].device);
        fputs("\",driver=\"", f);
        metrics_write_label(f, p->ports[k].info.driver);
        fprintf(f, "\",queues=\"%u\",mtu=\"%u\"} 1\n", p->ports[k].info.queues,
                p->ports[k].info.mtu);
    }
    for (size_t i = 0; i < status_port_fields.n; i++) {
        const struct status_field *d = &status_port_fields.fields[i];
        field_name(name, sizeof(name), d);
        family(f, name, "counter", d->help);
        for (unsigned k = 0; k < p->nports; k++) {
            sample_label(f, name, "port", p->ports[k].name);
            fprintf(f, "} %" PRIu64 "\n", status_field_value(d, &p->ports[k].counters));
        }
    }
}

static void process(FILE *f, const struct process_info *p)
{
    family(f, "build_info", "gauge", "Always 1; the labels say what runs");
    sample_label(f, "build_info", "version", p->version);
    fputs(",build=\"", f);
    metrics_write_label(f, p->build);
    fputs("\",dpdk=\"", f);
    metrics_write_label(f, p->dpdk);
    fputs("\"} 1\n", f);
    single(f, "draining", "gauge", "1 once no connection is accepted any more: it drains or stops",
           strcmp(p->state, "running") != 0);
    single(f, "start_time_seconds", "gauge", "When the process started, in Unix time",
           (double)p->started_wall_ns / 1e9);
    single(f, "config_version", "gauge", "Configuration version that runs",
           (double)p->config_version);
    single(f, "config_last_reload_success", "gauge", "1 unless the last reload was refused",
           p->last_reload_ok);
    single(f, "config_last_change_timestamp_seconds", "gauge",
           "When the configuration that runs was published, in Unix time",
           (double)p->config_loaded_wall_ns / 1e9);
    family(f, "config_reloads_total", "counter", "Reloads by result");
    fprintf(f, "millrace_config_reloads_total{result=\"published\"} %" PRIu64 "\n", p->reloads);
    fprintf(f, "millrace_config_reloads_total{result=\"refused\"} %" PRIu64 "\n",
            p->reloads_refused);
    single(f, "config_old_versions", "gauge", "Older configurations that a core still holds",
           p->old_versions);
    single(f, "config_overrides", "gauge", "Values set by hand that are in force",
           p->overrides ? (double)p->overrides->count : 0);
    single(f, "config_listeners_draining", "gauge",
           "Listeners that are gone from the configuration, with connections left",
           (double)p->ndraining);
    single(f, "log_lines_total", "counter", "Lines logged", (double)p->log.lines);
    single(f, "log_lines_dropped_total", "counter", "Lines dropped since the queue was full",
           (double)p->log.lines_dropped);
    single(f, "log_access_records_total", "counter", "Access records formatted",
           (double)p->log.records);
    single(f, "log_access_records_lost_total", "counter",
           "Access records that could not be written", (double)p->log.records_lost);
}

int metrics_write(FILE *f, const struct process_info *p, const struct status_view *v)
{
    process(f, p);
    core_times(f, v);
    core_fields(f, v);
    drops(f, v);
    histogram(f, v, "loop_pass_seconds", "Time of busy passes of the core's loop",
              offsetof(struct core_status, pass_ns));
    histogram(f, v, "tasks_poll_seconds", "Time of polls of tasks",
              offsetof(struct core_status, poll_ns));
    histogram(f, v, "tls_handshake_seconds", "From a connection to the end of its handshake",
              offsetof(struct core_status, tls.handshake_ns));
    tls_failures(f, v);
    certificates(f, p);
    pool(f, p);
    kinds(f, v);
    ports(f, p);
    int e = listeners(f, v);
    if (!e)
        e = upstreams(f, v);
    if (!e)
        e = endpoints(f, v);
    if (!e && ferror(f))
        e = -EIO;
    return e;
}
