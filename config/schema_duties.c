#include "config/schema_duties.h"

#include "config/schema_terms.h"
#include "config/snapshot.h"

const char *const config_trace_choices[] = {"off", "unsampled", "sampled", NULL};
static const char *const refuse_choices[] = {"reset", "silent", NULL};
static const char *const others_choices[] = {"pass", "refuse", NULL};

#define ACCESS_KEYS                                                                                \
    {"allow",         CONFIG_VALUES,                                                               \
     &config_network, ELEMENTS(config_access, allow, nallow),                                      \
     RANGE(1, 65536), .doc = "Who may come in; absent: everybody."},                               \
    {                                                                                              \
        "deny", CONFIG_VALUES, &config_network, ELEMENTS(config_access, deny, ndeny),              \
            RANGE(1, 65536), .doc = "Who may not, whatever `allow` says."                          \
    }

static const struct config_key listener_access_keys[] = {
    ACCESS_KEYS,
    {"refuse", CONFIG_VALUE, &config_choice, FIELD(config_access, refuse), .initial = "reset",
     .choices = refuse_choices,
     .doc = "What the others' SYNs get: `reset` says no at once, `silent` doesn't answer."},
    END,
};
const struct config_group config_listener_access = {
    "access",
    "Which clients may connect, by their address. Connections that stand stay when it changes.",
    sizeof(struct config_access),
    listener_access_keys,
    NULL,
    NULL};

static const struct config_key proxy_protocol_keys[] = {
    {"from", CONFIG_VALUES, &config_network, ELEMENTS(config_proxy_protocol, from, nfrom),
     .required = true, RANGE(1, 65536), .example = "[10.77.0.3, 10.78.0.0/16]",
     .doc = "Whose headers are believed: the load balancers, never the world. What anyone else "
            "sends is taken for what it looks like."},
    {"required", CONFIG_VALUE, &config_boolean, FIELD(config_proxy_protocol, required),
     .initial = "true",
     .doc = "Whether a connection of theirs without a header is reset. `false`: it is taken as "
            "their own."},
    {"others", CONFIG_VALUE, &config_choice, FIELD(config_proxy_protocol, others),
     .initial = "pass", .choices = others_choices,
     .doc = "Who isn't in `from`: `pass` serves them as clients without a header, `refuse` resets "
            "their SYNs."},
    {"timeout", CONFIG_VALUE, &config_duration, FIELD(config_proxy_protocol, timeout),
     .initial = "5s", RANGE(1 * MS, 5 * MIN),
     .doc = "For the whole header; then the connection is reset."},
    END,
};
const struct config_group config_proxy_protocol_group = {
    "proxy_protocol",
    "Takes the client's address from a PROXY header, version 1 or 2, that stands before anything "
    "else. It is the client's address then for `access`, limits per client, logs, "
    "`consistent_hash`, Forwarded and X-Forwarded-For, and the PROXY headers that upstreams get. "
    "LOCAL and UNKNOWN leave the connection its sender's own. An IPv6 client is one that no list "
    "names, and limits tell its /64 from others.",
    sizeof(struct config_proxy_protocol),
    proxy_protocol_keys,
    NULL,
    NULL};

static const struct config_key route_access_keys[] = {ACCESS_KEYS, END};
const struct config_group config_route_access = {
    "access",
    "Which clients' requests are taken, by their address; the others get 403.",
    sizeof(struct config_access),
    route_access_keys,
    NULL,
    NULL};

#define BURST_KEY                                                                                  \
    {                                                                                              \
        "burst", CONFIG_VALUE, &config_integer, FIELD(config_limit, burst),                        \
            .initial = "auto", .word = "auto", .word_value = 0, RANGE(1, 1000000),                 \
            .doc = "How many may come at once after a pause. `auto`: what one second "             \
                   "brings, at least one."                                                         \
    }

static const struct config_key rate_limit_keys[] = {
    {"rate", CONFIG_VALUE, &config_rate, FIELD(config_limit, rate), .required = true,
     .example = "100/s", .doc = "Requests of one client address, over all cores."},
    BURST_KEY,
    END,
};
const struct config_group config_rate_limit = {
    "rate_limit",
    "How often one client address may ask. What is over it gets 429, with Retry-After.",
    sizeof(struct config_limit),
    rate_limit_keys,
    NULL,
    NULL};

static const struct config_key per_client_keys[] = {
    {"connections", CONFIG_VALUE, &config_integer, FIELD(config_per_client, connections),
     .initial = "unlimited", .word = "unlimited", .word_value = 0, RANGE(1, 1000000),
     .doc = "Connections at once, over all cores."},
    {"connection_rate", CONFIG_VALUE, &config_rate, FIELD(config_per_client, rate.rate),
     .initial = "unlimited", .word = "unlimited", .doc = "New connections, over all cores."},
    {"burst", CONFIG_VALUE, &config_integer, FIELD(config_per_client, rate.burst),
     .initial = "auto", .word = "auto", .word_value = 0, RANGE(1, 1000000),
     .doc = "New connections that may come at once after a pause. `auto`: what one second of "
            "`connection_rate` brings, at least one."},
    END,
};
const struct config_group config_per_client = {
    "per_client",
    "Limits of each client address. What is over them is reset once its handshake is done: only "
    "then is the address known to be the client's.",
    sizeof(struct config_per_client),
    per_client_keys,
    NULL,
    NULL};

static void name_identity(const void *base, FILE *f)
{
    const struct config_header *h = base;

    fputs(h->name ? h->name : "", f);
}

/* A field may be added more than once. */
static void field_identity(const void *base, FILE *f)
{
    const struct config_header *h = base;

    fprintf(f, "%s: %s", h->name ? h->name : "", h->value.text ? h->value.text : "");
}

#define HEADER_KEYS(type)                                                                          \
    {"name",                                                                                       \
     CONFIG_VALUE,                                                                                 \
     &config_##type##_header,                                                                      \
     FIELD(config_header, name),                                                                   \
     .required = true,                                                                             \
     .example = "X-Frame-Options",                                                                 \
     .doc = "Of the field, in the case it is to be written in."},                                  \
        {"value",                                                                                  \
         CONFIG_VALUE,                                                                             \
         &config_##type##_value,                                                                   \
         FIELD(config_header, value),                                                              \
         .required = true,                                                                         \
         .example = "DENY",                                                                        \
         .doc = "What it says; see [variables](#variables)."},                                     \
        END

static const struct config_key request_field_keys[] = {HEADER_KEYS(request)};
static const struct config_key response_field_keys[] = {HEADER_KEYS(response)};

#define FIELD_GROUP(type, what, identity)                                                          \
    {                                                                                              \
        what, "A field.", sizeof(struct config_header), type##_field_keys, NULL, identity          \
    }

static const struct config_group request_set = FIELD_GROUP(request, "set", name_identity),
                                 request_add = FIELD_GROUP(request, "add", field_identity),
                                 response_set = FIELD_GROUP(response, "set", name_identity),
                                 response_add = FIELD_GROUP(response, "add", field_identity);

#define EDIT_KEYS(type)                                                                            \
    {"remove",                                                                                     \
     CONFIG_VALUES,                                                                                \
     &config_##type##_header,                                                                      \
     ELEMENTS(config_header_edit, remove, nremove),                                                \
     RANGE(1, 64),                                                                                 \
     .doc = "Fields that go, in any case."},                                                       \
        {"set",                                                                                    \
         CONFIG_LIST,                                                                              \
         .group = &type##_set,                                                                     \
         ELEMENTS(config_header_edit, set, nset),                                                  \
         RANGE(1, 64),                                                                             \
         .doc = "Fields that take the place of all of their name."},                               \
        {"add",                                                                                    \
         CONFIG_LIST,                                                                              \
         .group = &type##_add,                                                                     \
         ELEMENTS(config_header_edit, add, nadd),                                                  \
         RANGE(1, 64),                                                                             \
         .doc = "Fields that come in addition to those of their name."},                           \
        END

static const struct config_key request_edit_keys[] = {EDIT_KEYS(request)};
static const struct config_key response_edit_keys[] = {EDIT_KEYS(response)};
static const struct config_group request_edit = {"request",
                                                 "Of requests, on their way to the origin.",
                                                 sizeof(struct config_header_edit),
                                                 request_edit_keys,
                                                 NULL,
                                                 NULL};
static const struct config_group response_edit = {
    "response",
    "Of final answers, on their way to the client; interim ones and our own stay as they are.",
    sizeof(struct config_header_edit),
    response_edit_keys,
    NULL,
    NULL};

static const struct config_key headers_keys[] = {
    {"request", CONFIG_GROUP, .group = &request_edit, FIELD(config_headers, request),
     .doc = "Of requests, on their way to the origin."},
    {"response", CONFIG_GROUP, .group = &response_edit, FIELD(config_headers, response),
     .doc = "Of final answers, on their way to the client."},
    END,
};
const struct config_group config_headers_group = {
    "headers",
    "Header fields that are changed: first `remove`, then `set`, then `add`. The listener's come "
    "first, so that a route can take back what the listener sets.",
    sizeof(struct config_headers),
    headers_keys,
    NULL,
    NULL};

static const struct config_key redirect_keys[] = {
    {"location", CONFIG_VALUE, &config_location, FIELD(config_redirect, location), .required = true,
     .example = "https://${host}${path}${query}",
     .doc =
         "Where the client is sent; see [variables](#variables). What leads back to this route, or "
         "leaves it to the client to which host, is refused."},
    {"status", CONFIG_VALUE, &config_redirect_status, FIELD(config_redirect, status),
     .initial = "308", RANGE(301, 308),
     .doc = "One of 301, 302, 303, 307 and 308. `301` and `302`: browsers turn POST into GET; "
            "`303`: everything becomes GET; `307` and "
            "`308`: the method stays. `301` and `308` are permanent."},
    END,
};
const struct config_group config_redirect_group = {
    "redirect", "Sends the client elsewhere.", sizeof(struct config_redirect), redirect_keys, NULL,
    NULL};

static const struct config_key rewrite_keys[] = {
    {"prefix", CONFIG_VALUE, &config_new_prefix, FIELD(config_rewrite, prefix), .example = "/v2",
     .doc = "What the origin gets in place of the route's `match.path_prefix`; `/` strips it. The "
            "rest of the path is passed on in its normal form, the query as it came."},
    {"host", CONFIG_VALUE, &config_authority, FIELD(config_rewrite, host),
     .example = "app.internal", .doc = "What the origin gets as Host."},
    END,
};
const struct config_group config_rewrite_group = {
    "rewrite",
    "What the origin is asked for, where that isn't what we were asked for.",
    sizeof(struct config_rewrite),
    rewrite_keys,
    NULL,
    NULL};

static const struct config_key maintenance_keys[] = {
    {"enabled", CONFIG_VALUE, &config_boolean, FIELD(config_maintenance, enabled),
     .initial = "true", .doc = "`false` keeps it in the file for the next time."},
    {"status", CONFIG_VALUE, &config_integer, FIELD(config_maintenance, status), .initial = "503",
     RANGE(400, 599), .doc = "Of the answer."},
    {"body", CONFIG_VALUE, &config_body, FIELD(config_maintenance, body),
     .doc = "Of the answer, as text/plain in UTF-8; absent: the status in words."},
    {"retry_after", CONFIG_VALUE, &config_duration, FIELD(config_maintenance, retry_after),
     .initial = "off", .word = "off", .word_value = 0, RANGE(1 * SEC, 24 * HR),
     .doc = "When the client should ask again, in whole seconds: Retry-After."},
    END,
};
const struct config_group config_maintenance_group = {
    "maintenance",
    "Answers every request at once, without asking an origin.",
    sizeof(struct config_maintenance),
    maintenance_keys,
    NULL,
    NULL};

static const struct config_key request_id_keys[] = {
    {"header", CONFIG_VALUE, &config_id_header, FIELD(config_request_id, header),
     .initial = "X-Request-Id", .doc = "Which field carries it, to the origin and back."},
    {"trust", CONFIG_VALUES, &config_network, ELEMENTS(config_request_id, trust, ntrust),
     RANGE(1, 65536),
     .doc = "Clients whose own id is kept, if it has 1 to 64 letters, digits or `-._~+/=:@`; all "
            "others get a new one, 32 hexadecimal digits at random."},
    END,
};
const struct config_group config_request_id_group = {
    "request_id",
    "Gives each request an id: in the access log, to the origin and to the client.",
    sizeof(struct config_request_id),
    request_id_keys,
    NULL,
    NULL};
