#include "control/top.h"

#include <stdint.h>
#include <string.h>

/* Two looks at the same thing: `b` is NULL when it wasn't there. */
struct pair {
    const json_t *b, *n;
    double seconds;
};

static struct pair sub(const struct pair *p, const char *key)
{
    return (struct pair){json_object_get(p->b, key), json_object_get(p->n, key), p->seconds};
}

static double value(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* How much it grew; NULL keys of other versions count as 0. */
static double grown(const struct pair *p, const char *key)
{
    double d = value(p->n, key) - value(p->b, key);

    return d > 0 ? d : 0;
}

static json_t *rate_of(const struct pair *p, double d)
{
    return p->seconds > 0 ? json_real(d / p->seconds) : json_null();
}

/* null where the status has no such key. */
static json_t *rate(const struct pair *p, const char *key)
{
    return json_object_get(p->n, key) ? rate_of(p, grown(p, key)) : json_null();
}

static json_t *copy(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    return v ? json_incref(v) : json_null();
}

static json_t *ratio(double part, double whole)
{
    return whole > 0 ? json_real(part / whole) : json_null();
}

static void put(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
}

static double count_before(const json_t *buckets, json_int_t end)
{
    const json_t *b;
    size_t i;

    json_array_foreach(buckets, i, b)
    {
        if (json_integer_value(json_array_get(b, 0)) == end)
            return json_number_value(json_array_get(b, 1));
    }
    return 0;
}

/* Of what was recorded between the looks: the 99th percentile and the longest, as ends of buckets.
 */
static void put_latency(json_t *o, const char *p99, const char *worst, const struct pair *hist)
{
    const json_t *buckets = json_object_get(hist->n, "buckets"), *b;
    const json_t *old = json_object_get(hist->b, "buckets");
    json_int_t max = (json_int_t)value(hist->n, "max_ns"), at99 = 0, last = 0;
    double seen = 0, all = grown(hist, "count");
    size_t i;

    json_array_foreach(buckets, i, b)
    {
        json_int_t end = json_integer_value(json_array_get(b, 0));
        double n = json_number_value(json_array_get(b, 1)) - count_before(old, end);
        if (n <= 0)
            continue;
        if (seen < 0.99 * all)
            at99 = end;
        seen += n;
        last = end;
    }
    put(o, p99, buckets && seen > 0 ? json_integer(at99 < max ? at99 : max) : json_null());
    put(o, worst, buckets && seen > 0 ? json_integer(last < max ? last : max) : json_null());
}

static json_t *core_frame(const struct pair *c)
{
    struct pair loop = sub(c, "loop"), tasks = sub(c, "tasks"), net = sub(c, "net");
    struct pair poll = sub(&tasks, "poll"), pass = sub(&loop, "pass"), tcp = sub(c, "tcp");
    json_t *o = json_object();

    put(o, "core", copy(c->n, "core"));
    put(o, "cpu", copy(c->n, "cpu"));
    put(o, "running", copy(c->n, "running"));
    put(o, "answering", copy(c->n, "answering"));
    put(o, "busy", ratio(grown(&loop, "busy_ns"), grown(&loop, "total_ns")));
    put_latency(o, "poll_p99_ns", "poll_worst_ns", &poll);
    put_latency(o, "pass_p99_ns", "pass_worst_ns", &pass);
    put(o, "poll_worst_ever_ns", copy(poll.n, "max_ns"));
    put(o, "stalls", json_integer((json_int_t)grown(&tasks, "stalls")));
    put(o, "stalls_ever", copy(tasks.n, "stalls"));
    put(o, "connections", copy(tcp.n, "conns"));
    put(o, "clients", copy(json_object_get(c->n, "proxy"), "clients"));
    put(o, "tasks", copy(tasks.n, "live"));
    put(o, "polls_per_s", rate(&tasks, "polls"));
    put(o, "rx_packets_per_s", rate(&net, "rx_packets"));
    put(o, "tx_packets_per_s", rate(&net, "tx_packets"));
    put(o, "retransmits_per_s", rate(&tcp, "retransmits"));
    return o;
}

static json_t *listener_frame(const struct pair *l)
{
    struct pair responses = sub(l, "responses");
    json_t *o = json_object();

    put(o, "name", copy(l->n, "name"));
    put(o, "address", copy(l->n, "address"));
    put(o, "draining", copy(l->n, "draining"));
    put(o, "connections", copy(l->n, "connections"));
    put(o, "accepted_per_s", rate(l, "accepted"));
    put(o, "refused_per_s", rate(l, "refused"));
    put(o, "requests_per_s", rate(l, "requests"));
    put(o, "4xx_per_s", rate(&responses, "4xx"));
    put(o, "5xx_per_s", rate(&responses, "5xx"));
    put(o, "bytes_in_per_s", rate(l, "bytes_in"));
    put(o, "bytes_out_per_s", rate(l, "bytes_out"));
    return o;
}

static json_t *sum_rate(const struct pair *p, const char *const *keys)
{
    double sum = 0;
    bool any = false;

    for (; *keys; keys++) {
        any |= json_object_get(p->n, *keys) != NULL;
        sum += grown(p, *keys);
    }
    return any ? rate_of(p, sum) : json_null();
}

static void put_endpoints(json_t *o, const json_t *upstream)
{
    const json_t *list = json_object_get(upstream, "endpoints"), *e;
    json_int_t used = 0, ejected = 0, unhealthy = 0;
    size_t i;

    json_array_foreach(list, i, e)
    {
        used += value(e, "used") != 0;
        ejected += value(e, "ejected") != 0;
        unhealthy += json_object_get(e, "healthy") && value(e, "healthy") == 0;
    }
    put(o, "endpoints", list ? json_integer((json_int_t)json_array_size(list)) : json_null());
    put(o, "endpoints_used", list ? json_integer(used) : json_null());
    put(o, "endpoints_ejected", list ? json_integer(ejected) : json_null());
    put(o, "endpoints_unhealthy", list ? json_integer(unhealthy) : json_null());
}

static json_t *upstream_frame(const struct pair *u)
{
    static const char *const refused[] = {"queue_full", "queue_timeout", "queue_shed", "no_time",
                                          NULL};
    static const char *const failed[] = {"connect_failed", "resets", "timeouts", NULL};
    json_t *o = json_object();

    put(o, "name", copy(u->n, "name"));
    put(o, "requests_per_s", rate(u, "requests"));
    put(o, "in_flight", copy(u->n, "in_flight"));
    put(o, "requests_limit", copy(u->n, "requests_limit"));
    put(o, "queued", copy(u->n, "queued"));
    put(o, "queue_limit", copy(u->n, "queue_limit"));
    put(o, "refused_per_s", sum_rate(u, refused));
    put(o, "budget_left", copy(u->n, "budget_left"));
    put(o, "retries_per_s", rate(u, "retries"));
    put(o, "amplification", ratio(grown(u, "attempts"), grown(u, "requests")));
    put(o, "failed_per_s", sum_rate(u, failed));
    put(o, "reuse_ratio", ratio(grown(u, "reused"), grown(u, "reused") + grown(u, "connects")));
    put(o, "active", copy(u->n, "active"));
    put(o, "idle", copy(u->n, "idle"));
    put_endpoints(o, u->n);
    return o;
}

/* A class of the blocking pool's jobs. */
static json_t *blocking_frame(const struct pair *b)
{
    struct pair queue = sub(b, "queue"), run = sub(b, "run");
    json_t *o = json_object();

    put(o, "name", copy(b->n, "name"));
    put(o, "queued", copy(b->n, "queued"));
    put(o, "running", copy(b->n, "running"));
    put(o, "jobs_per_s", rate(b, "completed"));
    put(o, "refused_per_s", rate(b, "refused"));
    put_latency(o, "queue_p99_ns", "queue_worst_ns", &queue);
    put_latency(o, "run_p99_ns", "run_worst_ns", &run);
    return o;
}

/* By name, and whether it drains: a listener may have moved while its old self drains. */
static const json_t *same_in(const json_t *list, const json_t *o, size_t at)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const json_t *e;
    size_t i;

    if (!name) /* cores */
        return json_array_get(list, at);
    json_array_foreach(list, i, e)
    {
        const char *other = json_string_value(json_object_get(e, "name"));
        if (other && strcmp(other, name) == 0 &&
            json_is_true(json_object_get(e, "draining")) ==
                json_is_true(json_object_get(o, "draining")))
            return e;
    }
    return NULL;
}

static json_t *each(const struct pair *p, const char *key, json_t *(*frame)(const struct pair *))
{
    struct pair lists = sub(p, key);
    json_t *a = json_array(), *o;
    size_t i;

    json_array_foreach(lists.n, i, o)
    {
        struct pair one = {same_in(lists.b, o, i), o, p->seconds};
        json_array_append_new(a, frame(&one));
    }
    return a;
}

json_t *top_frame(const json_t *before, const json_t *now)
{
    double start = value(before, "uptime_ms"), end = value(now, "uptime_ms");
    json_t *o = json_object();

    if (value(before, "pid") != value(now, "pid") || start >= end) {
        before = NULL;
        start = 0;
    }
    struct pair p = {before, now, (end - start) / 1000};
    struct pair log = sub(&p, "log");
    put(o, "version", copy(now, "version"));
    put(o, "build", copy(now, "build"));
    put(o, "pid", copy(now, "pid"));
    put(o, "state", copy(now, "state"));
    put(o, "uptime_ms", copy(now, "uptime_ms"));
    put(o, "config_version", copy(json_object_get(now, "config"), "version"));
    put(o, "interval_ms", json_integer((json_int_t)(end - start)));
    put(o, "since_start", json_boolean(!before));
    put(o, "cores", each(&p, "cores", core_frame));
    put(o, "listeners", each(&p, "listeners", listener_frame));
    put(o, "upstreams", each(&p, "upstreams", upstream_frame));
    put(o, "blocking", each(&p, "blocking", blocking_frame));
    put(o, "log_lost",
        json_integer(
            (json_int_t)(grown(&log, "lines_dropped") + grown(&log, "access_records_lost"))));
    return o;
}
