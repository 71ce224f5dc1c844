/* The part of the schema that tells how much an upstream may be asked, and how often again. */
#include "config/schema.h"
#include "config/schema_limits.h"
#include "config/schema_terms.h"
#include "config/snapshot.h"

static const char *const order_choices[] = {"fifo", "adaptive", NULL};

#define COUNT(m)                                                                                   \
    CONFIG_VALUE, &config_integer, FIELD(config_limits, m),                                        \
        .initial = "unlimited", .word = "unlimited", .word_value = UINT32_MAX, RANGE(1, 10000000)

static const struct config_key limit_keys[] = {
    {"requests", COUNT(requests),
     .doc = "Requests in flight. One more waits in the queue. One in back-off doesn't count."},
    {"connections", COUNT(connections),
     .doc = "Connections to all endpoints, idle ones included. When somebody waits for one, idle "
            "ones are closed."},
    {"endpoint_requests", COUNT(endpoint_requests), .doc = "Requests in flight to one endpoint."},
    {"endpoint_connections", COUNT(endpoint_connections), .doc = "Connections to one endpoint."},
    {"queue", CONFIG_VALUE, &config_integer, FIELD(config_limits, queue), .initial = "512",
     RANGE(0, 1000000), .doc = "Requests that wait for any of these; then 503."},
    {"queue_timeout", CONFIG_VALUE, &config_duration, FIELD(config_limits, queue_timeout),
     .initial = "1s", RANGE(1 * MS, 1 * HR), .doc = "How long one waits; then 503."},
    {"queue_order", CONFIG_VALUE, &config_choice, FIELD(config_limits, queue_order),
     .initial = "fifo", .choices = order_choices,
     .doc = "Who is next among those of a priority, per core: the oldest (`fifo`), or, as long as "
            "the queue is overloaded, the newest (`adaptive`), who can still be answered in time; "
            "those who have waited for 100ms get 503 then."},
    {"queue_target", CONFIG_VALUE, &config_duration, FIELD(config_limits, queue_target),
     .initial = "20ms", RANGE(1 * MS, 10 * SEC),
     .doc = "`adaptive` only: overload is a wait that has been longer than this for 100ms."},
    END,
};
const struct config_group config_limits_group = {"limits",
                                                 "Limits of an upstream, exact over all cores.",
                                                 sizeof(struct config_limits),
                                                 limit_keys,
                                                 NULL,
                                                 NULL};

#define CLASS(c)                                                                                   \
    CONFIG_VALUE, &config_boolean,                                                                 \
        .offset = offsetof(struct config_retries, when) + (c) * sizeof(bool),                      \
        .width = sizeof(bool)

static const struct config_key when_keys[] = {
    {"connect", CLASS(CONFIG_RETRY_CONNECT), .initial = "true",
     .doc = "No connection, or not in `timeouts.connect`: nothing was sent, so any request may be "
            "tried again."},
    {"reset", CLASS(CONFIG_RETRY_RESET), .initial = "true",
     .doc = "The connection ended before a byte of the response; idempotent requests only, as "
            "below."},
    {"timeout", CLASS(CONFIG_RETRY_TIMEOUT), .initial = "true",
     .doc = "No response within `timeouts.try`."},
    {"429", CLASS(CONFIG_RETRY_429), .initial = "false",
     .doc = "A 429 that says when to come back (Retry-After: seconds, or a date beside its own "
            "Date), if that is before the deadline."},
    {"502", CLASS(CONFIG_RETRY_502), .initial = "false", .doc = "A 502."},
    {"503", CLASS(CONFIG_RETRY_503), .initial = "false",
     .doc = "A 503; its Retry-After is heeded."},
    {"504", CLASS(CONFIG_RETRY_504), .initial = "false", .doc = "A 504."},
    END,
};
static const struct config_group when_group = {
    "when", "Which failures may pass.", sizeof(struct config_retries), when_keys, NULL, NULL};

static const struct config_key backoff_keys[] = {
    {"base", CONFIG_VALUE, &config_duration, FIELD(config_retries, backoff_base), .initial = "25ms",
     RANGE(1 * MS, 1 * MIN),
     .doc = "The wait before the first is between nothing and this; the ceiling doubles with each. "
            "A pooled connection that turned out closed is replaced at once."},
    {"max", CONFIG_VALUE, &config_duration, FIELD(config_retries, backoff_max), .initial = "1s",
     RANGE(1 * MS, 10 * MIN), .doc = "The highest ceiling."},
    END,
};
static const struct config_group backoff_group = {"backoff",
                                                  "How long to wait before another attempt.",
                                                  sizeof(struct config_retries),
                                                  backoff_keys,
                                                  NULL,
                                                  NULL};

static const struct config_key budget_keys[] = {
    {"ratio", CONFIG_VALUE, &config_percent, FIELD(config_retries, budget_ratio), .initial = "20%",
     RANGE(0, 100), .doc = "Retries that each request earns."},
    {"min_per_second", CONFIG_VALUE, &config_integer, FIELD(config_retries, budget_min),
     .initial = "3", RANGE(0, 1000000), .doc = "Retries that may be made all the same."},
    END,
};
static const struct config_group budget_group = {
    "budget",
    "What bounds retries when everything fails, over all cores.",
    sizeof(struct config_retries),
    budget_keys,
    NULL,
    NULL};

static const struct config_key retry_keys[] = {
    {"attempts", CONFIG_VALUE, &config_integer, FIELD(config_retries, attempts), .initial = "3",
     RANGE(1, 16),
     .doc = "Attempts in all. Another one goes to another endpoint if there is one, needs a "
            "request whose body isn't gone, and must end before the request's deadline."},
    {"when", CONFIG_GROUP, .group = &when_group, .doc = "Which failures may pass."},
    {"backoff", CONFIG_GROUP, .group = &backoff_group,
     .doc = "How long to wait before another attempt."},
    {"budget", CONFIG_GROUP, .group = &budget_group,
     .doc = "What bounds retries when everything fails, over all cores."},
    END,
};
const struct config_group config_retries_group = {
    "retries", "When a request is tried again.", sizeof(struct config_retries), retry_keys, NULL,
    NULL};
