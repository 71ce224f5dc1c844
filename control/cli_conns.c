#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/cli_online.h"
#include "control/terminal.h"

static int64_t num(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "-";
}

/* Milliseconds as people say them, in at most six columns. */
static const char *span(int64_t ms, char *buf, size_t size)
{
    int64_t s = ms / 1000;

    if (ms < 10000)
        snprintf(buf, size, "%" PRId64 "ms", ms);
    else if (s < 600)
        snprintf(buf, size, "%" PRId64 "s", s);
    else if (s < 36000)
        snprintf(buf, size, "%" PRId64 "m", s / 60);
    else if (s < 864000)
        snprintf(buf, size, "%" PRId64 "h", s / 3600);
    else
        snprintf(buf, size, "%" PRId64 "d", s / 86400);
    return buf;
}

static const char *human(int64_t v, char *buf, size_t size)
{
    terminal_human((double)v, buf, size);
    return buf;
}

#define SPAN(ms) span(ms, (char[24]){0}, 24)
#define HUMAN(v) human(v, (char[24]){0}, 24)

/* What comes from the network may try to steer the terminal. */
static void print_clean(const char *s, unsigned width)
{
    char clean[256];

    terminal_clean(s, clean, sizeof(clean));
    printf("%-*s", (int)width, clean);
}

static void print_conn(const json_t *c)
{
    const json_t *tcp = json_object_get(c, "tcp"), *request = json_object_get(c, "request");
    char rtt[24] = "-";

    if (num(tcp, "srtt_us"))
        snprintf(rtt, sizeof(rtt), "%.1fms", (double)num(tcp, "srtt_us") / 1000);
    printf("%-4" PRId64 " %-21s ", num(c, "core"), str(c, "client"));
    print_clean(str(c, "listener"), 12);
    printf(" %-10s %6s %6s %6s %6s %5s ", str(c, "state"), SPAN(num(c, "age_ms")),
           SPAN(num(c, "idle_ms")), HUMAN(num(c, "bytes_in")), HUMAN(num(c, "bytes_out")),
           HUMAN(num(c, "requests")));
    print_clean(str(c, "upstream"), 12);
    printf(" %-21s %-11s %6s %8s %7s  ", str(c, "endpoint"), str(tcp, "state"),
           HUMAN(num(tcp, "cwnd")), rtt, HUMAN(num(tcp, "unacked")));
    if (json_is_object(request)) {
        print_clean(str(request, "method"), 0);
        printf(" ");
        print_clean(str(request, "host"), 0);
        print_clean(str(request, "target"), 0);
        printf(" (%s)", SPAN(num(request, "since_ms")));
    } else if (json_is_string(json_object_get(c, "sni"))) {
        print_clean(str(c, "sni"), 0);
    }
    printf("\n");
}

static int print_conns(const json_t *result)
{
    const json_t *list = json_object_get(result, "connections"), *c;
    size_t i;

    printf("%-4s %-21s %-12s %-10s %6s %6s %6s %6s %5s %-12s %-21s %-11s %6s %8s %7s  %s\n", "CORE",
           "CLIENT", "LISTENER", "STATE", "AGE", "IDLE", "IN", "OUT", "REQS", "UPSTREAM",
           "ENDPOINT", "TCP", "CWND", "RTT", "UNACKED", "REQUEST");
    json_array_foreach(list, i, c)
    {
        print_conn(c);
    }
    printf("%zu connection%s%s\n", json_array_size(list), json_array_size(list) == 1 ? "" : "s",
           json_is_true(json_object_get(result, "more")) ? "; there are more (--limit)" : "");
    json_array_foreach(json_object_get(result, "silent_cores"), i, c)
    {
        printf("core %" JSON_INTEGER_FORMAT " does not answer\n", json_integer_value(c));
    }
    return json_array_size(json_object_get(result, "silent_cores")) ? 1 : 0;
}

int cli_conns(const struct cli_options *o)
{
    json_t *request = cli_request("conns");

    if (request && o->listener)
        json_object_set_new(request, "listener", json_string(o->listener));
    if (request && o->client)
        json_object_set_new(request, "client", json_string(o->client));
    if (request && o->state)
        json_object_set_new(request, "state", json_string(o->state));
    if (request && o->has_limit)
        json_object_set_new(request, "limit", json_integer((json_int_t)o->limit));
    return cli_simple(o, request, print_conns);
}
