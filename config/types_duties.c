/* Values of the edge's own duties: networks, rates, templates, header names and texts. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include "config/location.h"
#include "config/schema.h"
#include "config/snapshot.h"
#include "config/template.h"
#include "config/units.h"

#define NAME_MAX_LEN  63
#define VALUE_MAX_LEN 1024
#define BODY_MAX_LEN  4096
#define RATE_MAX      1000000

static const char *wrong(const struct config_key *k, const struct yaml_node *n, struct arena *a)
{
    return config_say(a, "expected %s%s%s, found %s", k->type->expected, k->word ? " or " : "",
                      k->word ? k->word : "", yaml_quote(a, n->text, n->len));
}

static const char *store_text(struct arena *a, const char *text, size_t len, void *field)
{
    char *copy = arena_strndup(a, text, len);

    if (!copy)
        return "out of memory";
    memcpy(field, &copy, sizeof(copy));
    return NULL;
}

static void format_text(const struct config_key *k, const void *field, FILE *f)
{
    const char *text;

    memcpy(&text, field, sizeof(text));
    fputs(text ? text : "", f);
}

static bool copy_text(void *field, struct arena *a)
{
    const char *text;

    memcpy(&text, field, sizeof(text));
    return !text || !store_text(a, text, strlen(text), field);
}

/* 10.0.0.0/8, 0.0.0.0/0, or an address alone. */
static const char *parse_network(const struct config_key *k, const struct yaml_node *n,
                                 struct arena *a, void *field)
{
    const char *slash = memchr(n->text, '/', n->len);
    size_t len = slash ? (size_t)(slash - n->text) : n->len;
    uint64_t prefix = 32;
    uint32_t addr, mask;
    char text[UNITS_TEXT_MAX];
    int rc = units_parse_ip(n->text, len, &addr);

    if (rc == -EAFNOSUPPORT)
        return config_say(a, "IPv6 is not supported yet: expected %s, found %s", k->type->expected,
                          yaml_quote(a, n->text, n->len));
    if (rc || (slash && units_parse_integer(slash + 1, n->len - len - 1, &prefix)))
        return wrong(k, n, a);
    if (prefix > 32)
        return config_say(a, "a prefix is 0 to 32, found %s", yaml_quote(a, n->text, n->len));
    mask = prefix ? htonl(UINT32_MAX << (32 - prefix)) : 0;
    if (addr & ~mask) {
        units_format_cidr(&(struct config_addr){.addr = addr & mask, .prefix = (uint8_t)prefix},
                          text);
        return config_say(a, "%s has bits set behind its prefix (did you mean \"%s\"?)",
                          yaml_quote(a, n->text, n->len), text);
    }
    *(struct config_addr *)field = (struct config_addr){.addr = addr, .prefix = (uint8_t)prefix};
    return NULL;
}

static void format_network(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_addr *net = field;
    char text[UNITS_TEXT_MAX];

    if (net->prefix == 32)
        units_format_ip(net->addr, text);
    else
        units_format_cidr(net, text);
    fputs(text, f);
}

const struct config_type config_network = {
    .name = "IPv4 network",
    .plural = "IPv4 networks",
    .expected = "an IPv4 network such as 10.0.0.0/8, or an address",
    .pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,2})?$",
    .parse = parse_network,
    .format = format_network};

static uint32_t seconds_of(const char *unit, size_t len)
{
    if (len != 1)
        return 0;
    return *unit == 's' ? 1 : *unit == 'm' ? 60 : *unit == 'h' ? 3600 : 0;
}

/* "100/s". */
static const char *parse_rate(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    const char *slash = memchr(n->text, '/', n->len);
    uint64_t count;
    uint32_t seconds;

    if (k->word && !strcmp(n->text, k->word)) {
        *(struct config_rate *)field = (struct config_rate){0, 1};
        return NULL;
    }
    seconds = slash ? seconds_of(slash + 1, (size_t)(n->text + n->len - slash - 1)) : 0;
    if (!seconds || units_parse_integer(n->text, (size_t)(slash - n->text), &count))
        return wrong(k, n, a);
    if (!count || count > RATE_MAX)
        return config_say(a, "expected 1 to %u in front of the \"/\", found %s", RATE_MAX,
                          yaml_quote(a, n->text, n->len));
    *(struct config_rate *)field = (struct config_rate){(uint32_t)count, seconds};
    return NULL;
}

static void format_rate(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_rate *r = field;

    if (r->count)
        fprintf(f, "%u/%c", r->count, r->seconds == 1 ? 's' : r->seconds == 60 ? 'm' : 'h');
    else if (k->word)
        fputs(k->word, f);
}

const struct config_type config_rate = {.name = "rate",
                                        .expected = "a rate such as 100/s, 30/m or 5/h",
                                        .pattern = "^[1-9][0-9]*/[smh]$",
                                        .parse = parse_rate,
                                        .format = format_rate};

static const char *parse_redirect_status(const struct config_key *k, const struct yaml_node *n,
                                         struct arena *a, void *field)
{
    static const uint16_t known[] = {301, 302, 303, 307, 308};
    uint64_t status;

    if (units_parse_integer(n->text, n->len, &status))
        return wrong(k, n, a);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i] != status)
            continue;
        config_store(field, k->width, status);
        return NULL;
    }
    return wrong(k, n, a);
}

static void format_status(const struct config_key *k, const void *field, FILE *f)
{
    fprintf(f, "%ju", (uintmax_t)config_fetch(field, k->width));
}

const struct config_type config_redirect_status = {.name = "status",
                                                   .expected = "301, 302, 303, 307 or 308",
                                                   .plain = true,
                                                   .parse = parse_redirect_status,
                                                   .format = format_status};

/* What belongs to one connection or frames a message (RFC 9110 §7.6.1, RFC 9112 §6) is between us
 * and whoever is at its other end; the rest of the list is written by us by other keys. */
static const struct {
    const char *name, *why;
    bool of_requests, of_answers;
} refused_names[] = {
    {"connection", "belongs to one connection", true, true},
    {"keep-alive", "belongs to one connection", true, true},
    {"proxy-connection", "belongs to one connection", true, true},
    {"te", "belongs to one connection", true, true},
    {"upgrade", "belongs to one connection", true, true},
    {"content-length", "frames the message", true, true},
    {"transfer-encoding", "frames the message", true, true},
    {"trailer", "frames the message", true, true},
    {"expect", "is part of how the message is sent", true, false},
    {"host", "is changed by the route's `rewrite.host`", true, false},
    {"date", "is the origin's word, or ours where it has none", false, true},
};

static const char *refusal_of(const char *name, bool of_request)
{
    for (size_t i = 0; i < sizeof(refused_names) / sizeof(refused_names[0]); i++)
        if (!strcasecmp(refused_names[i].name, name) &&
            (of_request ? refused_names[i].of_requests : refused_names[i].of_answers))
            return refused_names[i].why;
    return NULL;
}

static const char *parse_header(const struct config_key *k, const struct yaml_node *n,
                                struct arena *a, void *field, bool of_request)
{
    const char *why;

    if (!n->len || n->len > NAME_MAX_LEN)
        return wrong(k, n, a);
    for (size_t i = 0; i < n->len; i++)
        if (!isalnum((unsigned char)n->text[i]) && !strchr("!#$%&'*+-.^_`|~", n->text[i]))
            return wrong(k, n, a);
    why = refusal_of(n->text, of_request);
    if (why)
        return config_say(a, "%s %s: it can't be changed here", yaml_quote(a, n->text, n->len),
                          why);
    return store_text(a, n->text, n->len, field);
}

static const char *parse_request_header(const struct config_key *k, const struct yaml_node *n,
                                        struct arena *a, void *field)
{
    return parse_header(k, n, a, field, true);
}

static const char *parse_response_header(const struct config_key *k, const struct yaml_node *n,
                                         struct arena *a, void *field)
{
    return parse_header(k, n, a, field, false);
}

/* Of both. */
static const char *parse_id_header(const struct config_key *k, const struct yaml_node *n,
                                   struct arena *a, void *field)
{
    const char *fault = parse_header(k, n, a, field, true);

    return fault ? fault : parse_header(k, n, a, field, false);
}

#define HEADER_TYPE                                                                                \
    .name = "header name", .plural = "header names",                                               \
    .expected = "a header's name: an HTTP token of at most 63 characters",                         \
    .pattern = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,63}$", .format = format_text, .copy = copy_text

const struct config_type config_request_header = {HEADER_TYPE, .parse = parse_request_header};
const struct config_type config_response_header = {HEADER_TYPE, .parse = parse_response_header};
const struct config_type config_id_header = {HEADER_TYPE, .parse = parse_id_header};

static const char *store_template(const struct yaml_node *n, enum template_where where,
                                  struct arena *a, void *field)
{
    struct config_template t;
    const char *fault = template_parse(n->text, n->len, where, a, &t);

    if (!fault)
        memcpy(field, &t, sizeof(t));
    return fault;
}

static void format_template(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_template *t = field;

    fputs(t->text ? t->text : "", f);
}

static bool copy_template(void *field, struct arena *a)
{
    struct config_template *t = field;

    return !t->text || !template_parse(t->text, strlen(t->text), TEMPLATE_ANYWHERE, a, t);
}

/* Printable ASCII; blanks at the ends would not be a part of the value (RFC 9110 §5.5). */
static bool is_value(const char *text, size_t len)
{
    if (!len || len > VALUE_MAX_LEN || text[0] == ' ' || text[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

static const char *parse_request_value(const struct config_key *k, const struct yaml_node *n,
                                       struct arena *a, void *field)
{
    return is_value(n->text, n->len) ? store_template(n, TEMPLATE_REQUEST, a, field)
                                     : wrong(k, n, a);
}

static const char *parse_response_value(const struct config_key *k, const struct yaml_node *n,
                                        struct arena *a, void *field)
{
    return is_value(n->text, n->len) ? store_template(n, TEMPLATE_RESPONSE, a, field)
                                     : wrong(k, n, a);
}

#define VALUE_TYPE                                                                                 \
    .name = "template",                                                                            \
    .expected = "printable ASCII text of 1 to 1024 characters, without blanks at its ends",        \
    .pattern = "^[!-~]([ -~]{0,1022}[!-~])?$", .format = format_template, .copy = copy_template

const struct config_type config_request_value = {VALUE_TYPE, .parse = parse_request_value};
const struct config_type config_response_value = {VALUE_TYPE, .parse = parse_response_value};

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* What a URL consists of (RFC 3986 §2), and our braces. */
static const char *parse_location(const struct config_key *k, const struct yaml_node *n,
                                  struct arena *a, void *field)
{
    bool is_url = starts_with(n->text, "http://") || starts_with(n->text, "https://");
    const char *fault;

    if (!is_value(n->text, n->len) || strpbrk(n->text, " \"<>\\^`|"))
        return wrong(k, n, a);
    if (!is_url && !starts_with(n->text, "${path}") && (n->text[0] != '/' || n->text[1] == '/'))
        return wrong(k, n, a);
    fault = store_template(n, TEMPLATE_LOCATION, a, field);
    if (fault || location_has_host(field))
        return fault;
    return config_say(a,
                      "%s doesn't settle which host it leads to: expected text and ${host} there",
                      yaml_quote(a, n->text, n->len));
}

const struct config_type config_location = {
    .name = "template of a URL",
    .expected = "a URL or a path that begins with \"http://\", \"https://\", \"/\" or \"${path}\"",
    .pattern = "^(https?://|/|\\$\\{path\\})[!#-;=?-Z_a-z{}~\\[\\]]{0,1023}$",
    .parse = parse_location,
    .format = format_template,
    .copy = copy_template};

/* As the requests that it is put in front of: what a route lets through has no "..", no "//" and no
 * escape that an origin could take for one, and it stays so. */
static const char *parse_new_prefix(const struct config_key *k, const struct yaml_node *n,
                                    struct arena *a, void *field)
{
    if (n->text[0] != '/' || n->len > VALUE_MAX_LEN || config_path_fault(n->text, n->len))
        return wrong(k, n, a);
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_new_prefix = {
    .name = "path",
    .expected = "a path in its normal form, that starts with \"/\", without a query",
    .pattern = "^/[!$-;=@-Z_a-z~\\[\\]]{0,1023}$",
    .parse = parse_new_prefix,
    .format = format_text,
    .copy = copy_text};

/* A host name and perhaps a port. */
static const char *parse_authority(const struct config_key *k, const struct yaml_node *n,
                                   struct arena *a, void *field)
{
    const char *colon = memchr(n->text, ':', n->len);
    size_t len = colon ? (size_t)(colon - n->text) : n->len;
    uint64_t port = 1;

    if (!len || len > 253 || (colon && units_parse_integer(colon + 1, n->len - len - 1, &port)) ||
        !port || port > 65535)
        return wrong(k, n, a);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)n->text[i]) && !strchr("._-", n->text[i]))
            return wrong(k, n, a);
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_authority = {
    .name = "host, with or without a port",
    .expected = "a host such as app.example.com or app.example.com:8080",
    .pattern = "^[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?$",
    .parse = parse_authority,
    .format = format_text,
    .copy = copy_text};

static const char *parse_body(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    if (!n->len || n->len > BODY_MAX_LEN)
        return config_say(a, "expected %s, found %zu bytes", k->type->expected, n->len);
    for (size_t i = 0; i < n->len; i++) {
        unsigned char c = (unsigned char)n->text[i];

        if (c == 0x7f || (c < ' ' && c != '\n' && c != '\t'))
            return wrong(k, n, a);
    }
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_body = {.name = "text",
                                        .expected = "text of 1 to 4096 bytes",
                                        .parse = parse_body,
                                        .format = format_text,
                                        .copy = copy_text};
