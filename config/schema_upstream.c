/* The part of the schema that tells about origins. */
#include <string.h>
#include "config/schema.h"
#include "config/schema_limits.h"
#include "config/schema_terms.h"
#include "config/snapshot.h"
#include "config/units.h"

static const char *const balance_choices[] = {"round_robin", "least_request", "random",
                                              "consistent_hash", NULL};
static const char *const proxy_choices[] = {"off", "v1", "v2", NULL};
static const char *const hash_choices[] = {"source", "path", "header", "cookie", NULL};

static void upstream_identity(const void *base, FILE *f)
{
    const struct config_upstream *u = base;

    fputs(u->name ? u->name : "", f);
}

static void endpoint_identity(const void *base, FILE *f)
{
    const struct config_endpoint *e = base;
    char text[UNITS_TEXT_MAX];

    units_format_listen(&e->address, text);
    fputs(text, f);
}

static const struct config_key endpoint_keys[] = {
    {"address", CONFIG_VALUE, &config_endpoint, FIELD(config_endpoint, address), .required = true,
     .example = "10.77.0.2:9000",
     .doc = "Where the origin listens; the endpoint's name in status and metrics, too."},
    {"weight", CONFIG_VALUE, &config_integer, FIELD(config_endpoint, weight), .initial = "1",
     RANGE(0, 1000),
     .doc = "Its share of the requests against the other endpoints' weights. `0`: it gets nothing "
            "new, what it has goes on."},
    {"backup", CONFIG_VALUE, &config_boolean, FIELD(config_endpoint, backup), .initial = "false",
     .doc = "Whether it is used only when no endpoint that isn't a backup is usable."},
    END,
};
static const struct config_group endpoint_group = {
    "endpoints",       "The origins.", sizeof(struct config_endpoint), endpoint_keys, NULL,
    endpoint_identity, "address"};

static const struct config_key hash_keys[] = {
    {"by", CONFIG_VALUE, &config_choice, FIELD(config_hash, by), .initial = "source",
     .choices = hash_choices,
     .doc = "What stays with one endpoint: the client's address (`source`), the path without its "
            "query, or the value of a header or a cookie. A request that lacks it goes by its "
            "client's address, and so does a tunnel."},
    {"name", CONFIG_VALUE, &config_token, FIELD(config_hash, name), .example = "session",
     .doc = "Of the header or the cookie."},
    {"table", CONFIG_VALUE, &config_integer, FIELD(config_hash, size), .initial = "65537",
     RANGE(251, 1048573),
     .doc = "Entries of the Maglev table, a prime number; a hundred times the number of endpoints "
            "keeps the shares even. Two bytes an entry, shared by the cores."},
    END,
};
static const struct config_group hash_group = {
    "hash", "What `balance: consistent_hash` goes by.", sizeof(struct config_hash), hash_keys, NULL,
    NULL};

static const struct config_key timeout_keys[] = {
    {"connect", CONFIG_VALUE, &config_duration, FIELD(config_upstream, connect_timeout),
     .initial = "1s", RANGE(1 * MS, 5 * MIN), .doc = "For an origin to accept a connection."},
    {"request", CONFIG_VALUE, &config_duration, FIELD(config_upstream, request_timeout),
     .initial = "15s", RANGE(1 * MS, 24 * HR),
     .doc = "From the request's head to the answer's last byte; then 504, or a cut answer."},
    {"try", CONFIG_VALUE, &config_duration, FIELD(config_upstream, try_timeout), .initial = "off",
     .word = "off", .word_value = 0, RANGE(1 * MS, 24 * HR),
     .doc = "Of one attempt, from the choice of an endpoint to the response's head; then another "
            "one (see `retries`), or 504."},
    {"idle", CONFIG_VALUE, &config_duration, FIELD(config_upstream, idle_timeout), .initial = "60s",
     RANGE(1 * MS, 24 * HR),
     .doc = "How long an unused connection is kept. An origin that announces a shorter time "
            "(`Keep-Alive: timeout`) is believed; set it below the keep-alive time of one that "
            "doesn't."},
    END,
};
static const struct config_group timeout_group = {
    "timeouts", "Times of an upstream.", sizeof(struct config_upstream), timeout_keys, NULL, NULL};

static const struct config_key pool_keys[] = {
    {"min", CONFIG_VALUE, &config_integer, FIELD(config_pool, min), .initial = "0", RANGE(0, 65536),
     .doc = "Connections that are opened ahead of requests and kept up, used or not."},
    {"max", CONFIG_VALUE, &config_integer, FIELD(config_pool, max), .initial = "unlimited",
     .word = "unlimited", .word_value = UINT32_MAX, RANGE(1, 1000000),
     .doc = "Connections at once, used or not. A request above that waits for one."},
    {"idle", CONFIG_VALUE, &config_integer, FIELD(config_pool, idle), .initial = "1024",
     RANGE(0, 65536), .doc = "Unused connections that are kept."},
    {"acquire_timeout", CONFIG_VALUE, &config_duration, FIELD(config_pool, acquire_timeout),
     .initial = "1s", RANGE(0, 5 * MIN),
     .doc = "How long a request waits for a connection when there are `max`; then 503. `0s`: not "
            "at all."},
    {"lifetime", CONFIG_VALUE, &config_duration, FIELD(config_pool, lifetime),
     .initial = "unlimited", .word = "unlimited", .word_value = 0, RANGE(1 * MS, 24 * HR),
     .doc = "A connection this old, less up to a tenth, is closed after its request, so that new "
            "ones find out where the origin is now."},
    {"requests", CONFIG_VALUE, &config_integer, FIELD(config_pool, requests),
     .initial = "unlimited", .word = "unlimited", .word_value = UINT32_MAX, RANGE(1, 1000000000),
     .doc = "Requests over one connection; then it is closed."},
    END,
};
static const struct config_group pool_group = {"pool",
                                               "Connections to origins, per core and endpoint.",
                                               sizeof(struct config_pool),
                                               pool_keys,
                                               NULL,
                                               NULL,
                                               "idle"};

static const struct config_key health_keys[] = {
    {"path", CONFIG_VALUE, &config_probe_path, FIELD(config_health, path), .example = "/healthz",
     .doc = "Asked for with GET. Absent: an endpoint that accepts a connection is healthy."},
    {"host", CONFIG_VALUE, &config_text, FIELD(config_health, host), .example = "app.example.com",
     .doc = "The Host header. Absent: the endpoint's address."},
    {"statuses", CONFIG_VALUES, &config_status_range, ELEMENTS(config_health, statuses, nstatuses),
     RANGE(1, 32), .example = "[200-299, 401]",
     .doc = "Answers of a healthy endpoint. Absent: 200 to 299."},
    {"body_starts", CONFIG_VALUE, &config_phrase, FIELD(config_health, body_starts),
     .example = "OK", .doc = "How a healthy endpoint's body starts. Absent: anyhow."},
    {"body_contains", CONFIG_VALUE, &config_phrase, FIELD(config_health, body_contains),
     .example = "\"ready: yes\"",
     .doc = "What stands in the first 16 KiB of a healthy endpoint's body. Absent: anything."},
    {"port", CONFIG_VALUE, &config_integer, FIELD(config_health, port), .initial = "same",
     .word = "same", .word_value = 0, RANGE(1, 65535),
     .doc = "TCP port to probe; `same`: the endpoint's."},
    {"interval", CONFIG_VALUE, &config_duration, FIELD(config_health, interval), .initial = "2s",
     RANGE(10 * MS, 1 * HR), .doc = "From the start of a probe to the start of the next."},
    {"jitter", CONFIG_VALUE, &config_percent, FIELD(config_health, jitter), .initial = "10%",
     RANGE(0, 100),
     .doc = "Of the interval: each is longer or shorter by up to half of this, so that probes "
            "don't come in step."},
    {"timeout", CONFIG_VALUE, &config_duration, FIELD(config_health, timeout), .initial = "1s",
     RANGE(1 * MS, 1 * HR), .doc = "For the whole of a probe; at most the interval."},
    {"healthy", CONFIG_VALUE, &config_integer, FIELD(config_health, healthy), .initial = "2",
     RANGE(1, 100), .doc = "Good probes in a row until an unhealthy endpoint is used again."},
    {"unhealthy", CONFIG_VALUE, &config_integer, FIELD(config_health, unhealthy), .initial = "3",
     RANGE(1, 100),
     .doc = "Bad probes in a row until a healthy endpoint is no longer used. An endpoint's first "
            "probe decides at once."},
    END,
};
static const struct config_group health_group = {
    "health", "Probes of the endpoints.", sizeof(struct config_health), health_keys, NULL, NULL};

static const struct config_key outlier_keys[] = {
    {"consecutive", CONFIG_VALUE, &config_integer, FIELD(config_outlier, consecutive),
     .initial = "5", .word = "off", .word_value = 0, RANGE(1, 10000),
     .doc = "Failures in a row, on one core: 5xx answers, connections that fail or break, requests "
            "that time out."},
    {"error_rate", CONFIG_VALUE, &config_percent, FIELD(config_outlier, error_rate),
     .initial = "50%", .word = "off", .word_value = 0, RANGE(1, 100),
     .doc = "Failures among the requests of a window, over all cores."},
    {"latency", CONFIG_VALUE, &config_percent, FIELD(config_outlier, latency), .initial = "off",
     .word = "off", .word_value = 0, RANGE(110, 10000),
     .doc = "The median time to an answer's head in a window, against the median of the other "
            "endpoints': `300%` is three times as slow as they are."},
    {"requests", CONFIG_VALUE, &config_integer, FIELD(config_outlier, requests), .initial = "20",
     RANGE(1, 1000000),
     .doc = "An endpoint with fewer requests in a window is not judged by rate or latency."},
    {"window", CONFIG_VALUE, &config_duration, FIELD(config_outlier, window), .initial = "10s",
     RANGE(100 * MS, 1 * HR), .doc = "How often rate and latency are looked at."},
    {"ejection", CONFIG_VALUE, &config_duration, FIELD(config_outlier, ejection), .initial = "30s",
     RANGE(10 * MS, 24 * HR),
     .doc = "For how long an endpoint is not used: this, times how often it was ejected lately."},
    {"max_ejection", CONFIG_VALUE, &config_duration, FIELD(config_outlier, max_ejection),
     .initial = "5m", RANGE(10 * MS, 24 * HR), .doc = "The longest time of one ejection."},
    {"max_ejected", CONFIG_VALUE, &config_percent, FIELD(config_outlier, max_ejected),
     .initial = "50%", RANGE(1, 100),
     .doc = "Of the upstream's endpoints, rounded down: no more are ejected at once. Nor is one "
            "whose ejection would leave fewer usable than `panic`, or none. When such a one fails, "
            "the one that has been ejected longest returns."},
    END,
};
static const struct config_group outlier_group = {
    "outlier",
    "Ejection of endpoints by how they answer requests.",
    sizeof(struct config_outlier),
    outlier_keys,
    NULL,
    NULL};

static const struct config_key upstream_keys[] = {
    {"name", CONFIG_VALUE, &config_name, FIELD(config_upstream, name), .required = true,
     .example = "app", .doc = "What routes and tunnels call it."},
    {"endpoints", CONFIG_LIST, .group = &endpoint_group,
     ELEMENTS(config_upstream, endpoints, nendpoints), .required = true, RANGE(1, 1024),
     .example = "[10.77.0.2:9000]", .doc = "The origins."},
    {"balance", CONFIG_VALUE, &config_choice, FIELD(config_upstream, balance),
     .initial = "least_request", .choices = balance_choices,
     .doc = "Which endpoint is next. `least_request`: of two picked at random the one with fewer "
            "requests in flight for its weight; `round_robin`: in turn; `random`; "
            "`consistent_hash`: by `hash`. All heed weights, and look at what one core does."},
    {"hash", CONFIG_GROUP, .group = &hash_group, FIELD(config_upstream, hash),
     .doc = "What `balance: consistent_hash` goes by."},
    {"panic", CONFIG_VALUE, &config_percent, FIELD(config_upstream, panic), .initial = "30%",
     RANGE(0, 100),
     .doc = "With a smaller part of the endpoints usable (backups and weight 0 not counted), all "
            "are used, whatever is known of them: a few would only fall under the load of all. "
            "`0%`: never; then there is 503 when none is usable."},
    {"timeouts", CONFIG_GROUP, .group = &timeout_group, .doc = "Times of the upstream."},
    {"deadline_header", CONFIG_VALUE, &config_field_name, FIELD(config_upstream, deadline_header),
     .initial = "off", .word = "off", .example = "x-request-timeout-ms",
     .doc = "Header that tells the origin how much time is left, in whole milliseconds; "
            "`grpc-timeout`: in gRPC's notation. A client's own one of that name is replaced."},
    {"proxy_protocol", CONFIG_VALUE, &config_choice, FIELD(config_upstream, proxy_protocol),
     .initial = "off", .choices = proxy_choices,
     .doc = "Tells the origin whose connection it is by a PROXY header, at the start of each "
            "connection to it. Such a connection serves no other client's connection, and is "
            "closed with its client's. Probes say LOCAL (`v1`: their own addresses), except on a "
            "`health.port` of its own, which gets no header."},
    {"limits", CONFIG_GROUP, .group = &config_limits_group, FIELD(config_upstream, limits),
     .doc = "Limits, exact over all cores."},
    {"retries", CONFIG_GROUP, .group = &config_retries_group, FIELD(config_upstream, retries),
     .doc = "When a request is tried again."},
    {"pool", CONFIG_GROUP, .group = &pool_group, FIELD(config_upstream, pool),
     .doc = "Connections, per core and endpoint."},
    {"health", CONFIG_OPTIONAL, .group = &health_group, FIELD(config_upstream, health),
     .doc = "Probes the endpoints."},
    {"outlier", CONFIG_OPTIONAL, .group = &outlier_group, FIELD(config_upstream, outlier),
     .doc = "Ejects endpoints that answer badly."},
    END,
};
const struct config_group config_upstream_group = {
    "upstreams", "Groups of origins.", sizeof(struct config_upstream), upstream_keys,
    NULL,        upstream_identity};
