#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "control/status_json.h"

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "-";
}

static int64_t num(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static int64_t num2(const json_t *o, const char *group, const char *key)
{
    return num(json_object_get(o, group), key);
}

/* 1234567 bytes as "1.2M": four columns are enough to see what is going on. */
static const char *human(int64_t v, char *buf, size_t size)
{
    static const char units[] = " KMGTPE";
    double d = (double)v;
    unsigned u = 0;

    for (; d >= 1000 && u < 6; u++)
        d /= 1000;
    if (u == 0)
        snprintf(buf, size, "%" PRId64, v);
    else
        snprintf(buf, size, "%.*f%c", d < 10 ? 1 : 0, d, units[u]);
    return buf;
}

#define HUMAN(v) human(v, (char[24]){0}, 24)

static void print_head(const json_t *s, FILE *f)
{
    const json_t *c = json_object_get(s, "config");
    int64_t up = num(s, "uptime_ms") / 1000;

    fprintf(f, "millrace %s (%s), pid %" PRId64 ", %s for ", str(s, "version"), str(s, "build"),
            num(s, "pid"), str(s, "state"));
    if (up >= 86400)
        fprintf(f, "%" PRId64 "d ", up / 86400);
    fprintf(f, "%02d:%02d:%02d\n", (int)(up / 3600 % 24), (int)(up / 60 % 60), (int)(up % 60));
    fprintf(f, "config %s, version %" PRId64 "%s\n", str(c, "path"), num(c, "version"),
            json_is_false(json_object_get(c, "last_reload_ok")) ? "; the last reload was refused"
                                                                : "");
}

static void print_overrides(const json_t *s, FILE *f)
{
    const json_t *list = json_object_get(json_object_get(s, "config"), "overrides"), *o;
    size_t i;

    if (json_array_size(list))
        fprintf(f, "\nOVERRIDES (set by hand; `reload --drop-overrides` ends them)\n");
    json_array_foreach(list, i, o)
    {
        fprintf(f, "  %s: %s (the configuration says %s)\n", str(o, "key"), str(o, "value"),
                str(o, "configured"));
    }
}

static void print_cores(const json_t *s, FILE *f)
{
    const json_t *c;
    size_t i;

    fprintf(f, "\n%-5s %4s %6s %8s %6s %6s %6s %7s %7s %6s %7s %13s\n", "CORE", "CPU", "BUSY",
            "CLIENTS", "CONNS", "HALF", "TWAIT", "TASKS", "TIMERS", "HELD", "ROPES", "MBUFS FREE");
    json_array_foreach(json_object_get(s, "cores"), i, c)
    {
        if (!json_is_true(json_object_get(c, "answering"))) {
            fprintf(f, "%-5" PRId64 " %s\n", num(c, "core"),
                    json_is_true(json_object_get(c, "running")) ? "does not answer" : "has ended");
            continue;
        }
        int64_t total = num2(c, "loop", "total_ns");
        fprintf(f,
                "%-5" PRId64 " %4" PRId64 " %5.1f%% %8s %6s %6s %6s %4s+%-2" PRId64
                " %4s+%-2" PRId64 " %6s %7s %6s/%-6s\n",
                num(c, "core"), num(c, "cpu"),
                total ? 100.0 * (double)num2(c, "loop", "busy_ns") / (double)total : 0.0,
                HUMAN(num2(c, "proxy", "clients")), HUMAN(num2(c, "tcp", "conns")),
                HUMAN(num2(c, "tcp", "half_open")), HUMAN(num2(c, "tcp", "time_wait")),
                HUMAN(num2(c, "tasks", "live") - num2(c, "tasks", "permanent")),
                num2(c, "tasks", "permanent"),
                HUMAN(num2(c, "timers", "armed") - num2(c, "timers", "permanent")),
                num2(c, "timers", "permanent"),
                HUMAN(num2(c, "tcp", "mbufs_held") + num2(c, "net", "mbufs_queued")),
                HUMAN(num2(c, "mbufs", "rope_nodes")), HUMAN(num2(c, "mbufs", "available")),
                HUMAN(num2(c, "mbufs", "total")));
    }
}

static void print_ports(const json_t *s, FILE *f)
{
    const json_t *p;
    size_t i;

    fprintf(f, "\n%-12s %-12s %-8s %7s %7s %7s %7s %8s %8s\n", "PORT", "DEVICE", "DRIVER", "RX PKT",
            "RX BYT", "TX PKT", "TX BYT", "MISSED", "TX FULL");
    json_array_foreach(json_object_get(s, "ports"), i, p)
    {
        fprintf(f, "%-12s %-12s %-8s %7s %7s %7s %7s %8s %8s\n", str(p, "name"), str(p, "device"),
                str(p, "driver"), HUMAN(num(p, "rx_packets")), HUMAN(num(p, "rx_bytes")),
                HUMAN(num(p, "tx_packets")), HUMAN(num(p, "tx_bytes")), HUMAN(num(p, "rx_missed")),
                HUMAN(num(p, "tx_full")));
    }
}

static void print_listeners(const json_t *s, FILE *f)
{
    const json_t *l;
    size_t i;

    fprintf(f, "\n%-12s %-21s %-6s %6s %8s %7s %6s %6s %6s %6s %7s %7s\n", "LISTENER", "ADDRESS",
            "KIND", "CONNS", "ACCEPTED", "REQS", "2xx", "3xx", "4xx", "5xx", "IN", "OUT");
    json_array_foreach(json_object_get(s, "listeners"), i, l)
    {
        fprintf(f, "%-12s %-21s %-6s %6s %8s %7s %6s %6s %6s %6s %7s %7s%s\n", str(l, "name"),
                str(l, "address"), str(l, "kind"), HUMAN(num(l, "connections")),
                HUMAN(num(l, "accepted")), HUMAN(num(l, "requests")),
                HUMAN(num2(l, "responses", "2xx")), HUMAN(num2(l, "responses", "3xx")),
                HUMAN(num2(l, "responses", "4xx")), HUMAN(num2(l, "responses", "5xx")),
                HUMAN(num(l, "bytes_in")), HUMAN(num(l, "bytes_out")),
                json_is_true(json_object_get(l, "draining")) ? "  drains" : "");
    }
}

static void print_upstreams(const json_t *s, FILE *f)
{
    const json_t *u;
    size_t i;

    fprintf(f, "\n%-12s %6s %6s %7s %8s %8s %7s %7s %7s %7s %7s\n", "UPSTREAM", "ACTIVE", "IDLE",
            "REQS", "CONNECTS", "FAILED", "REUSED", "RESETS", "TIMEOUT", "IN", "OUT");
    json_array_foreach(json_object_get(s, "upstreams"), i, u)
    {
        fprintf(f, "%-12s %6s %6s %7s %8s %8s %7s %7s %7s %7s %7s\n", str(u, "name"),
                HUMAN(num(u, "active")), HUMAN(num(u, "idle")), HUMAN(num(u, "requests")),
                HUMAN(num(u, "connects")), HUMAN(num(u, "connect_failed")), HUMAN(num(u, "reused")),
                HUMAN(num(u, "resets")), HUMAN(num(u, "timeouts")), HUMAN(num(u, "bytes_in")),
                HUMAN(num(u, "bytes_out")));
    }
}

static const json_t *kinds_of(const json_t *core)
{
    return json_object_get(json_object_get(core, "tasks"), "kinds");
}

/* One kind summed over the cores; of times the worst. */
static void print_kind(const json_t *s, const char *kind, FILE *f)
{
    static const char *const counts[] = {"live", "bytes", "polls", "fruitless", "stalls"};
    int64_t sums[5] = {0}, p99 = 0, max = 0;
    const json_t *c, *k;
    size_t i, n;

    json_array_foreach(json_object_get(s, "cores"), i, c)
    {
        json_array_foreach(kinds_of(c), n, k)
        {
            if (strcmp(str(k, "kind"), kind) != 0)
                continue;
            for (unsigned x = 0; x < 5; x++)
                sums[x] += num(k, counts[x]);
            p99 = num2(k, "poll", "p99_ns") > p99 ? num2(k, "poll", "p99_ns") : p99;
            max = num2(k, "poll", "max_ns") > max ? num2(k, "poll", "max_ns") : max;
        }
    }
    fprintf(f, "%-16s %6s %7s %7s %9s %7s %9.1f %10.1f\n", kind, HUMAN(sums[0]), HUMAN(sums[1]),
            HUMAN(sums[2]), HUMAN(sums[3]), HUMAN(sums[4]), (double)p99 / 1e3, (double)max / 1e3);
}

static bool has_kind(const json_t *core, const char *kind)
{
    const json_t *k;
    size_t i;

    json_array_foreach(kinds_of(core), i, k)
    {
        if (strcmp(str(k, "kind"), kind) == 0)
            return true;
    }
    return false;
}

static void print_kinds(const json_t *s, FILE *f)
{
    const json_t *cores = json_object_get(s, "cores"), *c, *k;
    size_t i, n;

    fprintf(f, "\n%-16s %6s %7s %7s %9s %7s %9s %10s\n", "TASKS", "LIVE", "BYTES", "POLLS",
            "FRUITLESS", "STALLS", "P99 us", "MAX us");
    json_array_foreach(cores, i, c)
    {
        json_array_foreach(kinds_of(c), n, k)
        {
            bool seen = false;
            for (size_t before = 0; before < i && !seen; before++)
                seen = has_kind(json_array_get(cores, before), str(k, "kind"));
            if (!seen)
                print_kind(s, str(k, "kind"), f);
        }
    }
}

static const char *endpoint_state(const json_t *e)
{
    if (!num(e, "weight"))
        return "drained";
    if (num(e, "ejected"))
        return "ejected";
    if (!num(e, "healthy"))
        return "unhealthy";
    return num(e, "backup") ? "backup" : "good";
}

static void print_endpoints(const json_t *s, FILE *f)
{
    const json_t *u, *e;
    size_t i, k;

    fprintf(f, "\n%-12s %-21s %-9s %-11s %6s %6s %6s %6s %7s %7s %6s\n", "UPSTREAM", "ENDPOINT",
            "STATE", "LAST PROBE", "WEIGHT", "ACTIVE", "IDLE", "WAIT", "PICKS", "FAILED", "REUSE");
    json_array_foreach(json_object_get(s, "upstreams"), i, u)
    {
        json_array_foreach(json_object_get(u, "endpoints"), k, e)
        {
            int64_t reused = num(e, "reused"), all = reused + num(e, "connects");
            fprintf(f, "%-12s %-21s %-9s %-11s %6s %6s %6s %6s %7s %7s %5.1f%%%s\n", str(u, "name"),
                    str(e, "address"), endpoint_state(e), str(e, "probe"), HUMAN(num(e, "weight")),
                    HUMAN(num(e, "active")), HUMAN(num(e, "idle")), HUMAN(num(e, "waiting")),
                    HUMAN(num(e, "picks")), HUMAN(num(e, "failures")),
                    all ? 100.0 * (double)reused / (double)all : 0.0,
                    num(u, "panic") ? "  panic" : "");
        }
    }
}

/* Only reasons that have happened, sums over the cores. "accepted" and "delivered" are no losses.
 */
static void print_drops(const json_t *s, const char *layer, FILE *f)
{
    const json_t *reasons = NULL, *v, *c;
    const char *name;
    size_t i;

    json_array_foreach(json_object_get(s, "cores"), i, c)
    {
        if (!reasons) /* of the first core that answers */
            reasons = json_object_get(json_object_get(c, layer), "drops");
    }
    json_object_foreach((json_t *)reasons, name, v)
    {
        int64_t sum = 0;
        if (strcmp(name, "accepted") == 0 || strcmp(name, "delivered") == 0)
            continue;
        json_array_foreach(json_object_get(s, "cores"), i, c)
        {
            sum += num(json_object_get(json_object_get(c, layer), "drops"), name);
        }
        if (sum)
            fprintf(f, "  %s.%s %" PRId64 "\n", layer, name, sum);
    }
}

void status_print(const json_t *status, FILE *f)
{
    print_head(status, f);
    print_cores(status, f);
    print_ports(status, f);
    print_listeners(status, f);
    print_upstreams(status, f);
    print_kinds(status, f);
    print_endpoints(status, f);
    print_overrides(status, f);
    fprintf(f, "\nDROPS BY REASON\n");
    print_drops(status, "net", f);
    print_drops(status, "tcp", f);
    const json_t *log = json_object_get(status, "log");
    fprintf(f,
            "\nlog: %" PRId64 " lines (%" PRId64 " dropped), %" PRId64 " access records (%" PRId64
            " lost)\n",
            num(log, "lines"), num(log, "lines_dropped"), num(log, "access_records"),
            num(log, "access_records_lost"));
}
