/* Names, paths, patterns and references. */
#include <ctype.h>
#include <string.h>
#include <sys/un.h>
#include "config/schema.h"
#include "config/snapshot.h"

#define NAME_MAX_LEN 63
#define HOST_MAX_LEN 253 /* of a domain name in text, RFC 1035 */
#define PATH_MAX_LEN 1024

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
    if (text || k->word)
        fputs(text ? text : k->word, f);
}

static bool copy_text(void *field, struct arena *a)
{
    const char *text;

    memcpy(&text, field, sizeof(text));
    return !text || !store_text(a, text, strlen(text), field);
}

static bool is_name(const char *text, size_t len)
{
    if (!len || len > NAME_MAX_LEN || !isalpha((unsigned char)text[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
            return false;
    return true;
}

static const char *parse_name(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    return is_name(n->text, n->len) ? store_text(a, n->text, n->len, field) : wrong(k, n, a);
}

const struct config_type config_name = {
    .name = "name",
    .expected = "a name: a letter, then letters, digits, \".\", \"_\" or \"-\", at most 63",
    .pattern = "^[A-Za-z][A-Za-z0-9._-]{0,62}$",
    .parse = parse_name,
    .format = format_text,
    .copy = copy_text};

/* Printable ASCII without spaces. */
static bool is_printable(const char *text, size_t len, size_t max)
{
    if (!len || len > max)
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return true;
}

static const char *parse_text(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    if (k->word && !strcmp(n->text, k->word))
        return NULL;
    return is_printable(n->text, n->len, 255) ? store_text(a, n->text, n->len, field)
                                              : wrong(k, n, a);
}

const struct config_type config_text = {.name = "text",
                                        .plural = "texts",
                                        .expected = "printable ASCII text without spaces",
                                        .pattern = "^[!-~]{1,255}$",
                                        .parse = parse_text,
                                        .format = format_text,
                                        .copy = copy_text};

/* Printable ASCII, with spaces. */
static const char *parse_phrase(const struct config_key *k, const struct yaml_node *n,
                                struct arena *a, void *field)
{
    if (!n->len || n->len > 255)
        return wrong(k, n, a);
    for (size_t i = 0; i < n->len; i++)
        if (n->text[i] < ' ' || n->text[i] > '~')
            return wrong(k, n, a);
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_phrase = {.name = "text",
                                          .expected =
                                              "printable ASCII text of at most 255 characters",
                                          .pattern = "^[ -~]{1,255}$",
                                          .parse = parse_phrase,
                                          .format = format_text,
                                          .copy = copy_text};

/* A token of RFC 9110, section 5.6.2: what may stand as a pseudonym in Via. */
static const char *parse_token(const struct config_key *k, const struct yaml_node *n,
                               struct arena *a, void *field)
{
    if (k->word && !strcmp(n->text, k->word))
        return NULL;
    if (!n->len || n->len > NAME_MAX_LEN)
        return wrong(k, n, a);
    for (size_t i = 0; i < n->len; i++)
        if (!isalnum((unsigned char)n->text[i]) && !strchr("!#$%&'*+-.^_`|~", n->text[i]))
            return wrong(k, n, a);
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_token = {.name = "token",
                                         .expected = "an HTTP token of at most 63 characters",
                                         .pattern = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,63}$",
                                         .parse = parse_token,
                                         .format = format_text,
                                         .copy = copy_text};

/* Compared and written in lower case. */
static const char *parse_field_name(const struct config_key *k, const struct yaml_node *n,
                                    struct arena *a, void *field)
{
    const char *wrong_text = parse_token(k, n, a, field);
    char *name;

    memcpy(&name, field, sizeof(name));
    for (; !wrong_text && name && *name; name++)
        *name = (char)tolower((unsigned char)*name);
    return wrong_text;
}

const struct config_type config_field_name = {.name = "field name",
                                              .expected =
                                                  "a header's name of at most 63 characters",
                                              .pattern = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,63}$",
                                              .parse = parse_field_name,
                                              .format = format_text,
                                              .copy = copy_text};

/* What it must be depends on the driver: validate.c. */
const struct config_type config_device = {.name = "device",
                                          .expected = "the name of a device",
                                          .pattern = "^[!-~]{1,255}$",
                                          .parse = parse_text,
                                          .format = format_text,
                                          .copy = copy_text};

/* The target of a request that we send: nothing in it is looked at. */
static const char *parse_probe_path(const struct config_key *k, const struct yaml_node *n,
                                    struct arena *a, void *field)
{
    if (n->text[0] != '/' || !is_printable(n->text, n->len, 1024) || strchr(n->text, '#'))
        return wrong(k, n, a);
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_probe_path = {
    .name = "path of a URL",
    .expected = "a path that starts with \"/\", as it stands in a request, at most 1024 bytes",
    .pattern = "^/[!\"$-~]{0,1023}$",
    .parse = parse_probe_path,
    .format = format_text,
    .copy = copy_text};

static const char *parse_path(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    if (k->word && !strcmp(n->text, k->word))
        return NULL;
    for (const char *const *c = k->choices; c && *c; c++)
        if (!strcmp(n->text, *c))
            return store_text(a, n->text, n->len, field);
    if (n->text[0] != '/' || n->len > 4095)
        return config_say(a, "expected %s%s%s, found %s", k->type->expected,
                          k->word || k->choices ? " or " : "",
                          k->word      ? k->word
                          : k->choices ? k->choices[0]
                                       : "",
                          yaml_quote(a, n->text, n->len));
    return store_text(a, n->text, n->len, field);
}

const struct config_type config_path = {.name = "path",
                                        .expected = "an absolute path",
                                        .pattern = "^/",
                                        .parse = parse_path,
                                        .format = format_text,
                                        .copy = copy_text};

static const char *parse_socket(const struct config_key *k, const struct yaml_node *n,
                                struct arena *a, void *field)
{
    if (n->text[0] == '/' && n->len >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return config_say(a, "a Unix socket's path has at most %zu bytes, found %zu",
                          sizeof(((struct sockaddr_un *)0)->sun_path) - 1, n->len);
    return parse_path(k, n, a, field);
}

const struct config_type config_socket = {.name = "path",
                                          .expected = "an absolute path",
                                          .pattern = "^/.{1,106}$",
                                          .parse = parse_socket,
                                          .format = format_text,
                                          .copy = copy_text};

/* Until the upstreams are known, a reference is an upstream that has a name only;
 * config_resolve() puts the real one in its place. */
static const char *store_reference(struct arena *a, const char *name, size_t len, void *field)
{
    struct config_upstream *stub = arena_alloc(a, sizeof(*stub));

    if (!stub || !(stub->name = arena_strndup(a, name, len)))
        return "out of memory";
    memcpy(field, &stub, sizeof(stub));
    return NULL;
}

static const char *parse_reference(const struct config_key *k, const struct yaml_node *n,
                                   struct arena *a, void *field)
{
    return is_name(n->text, n->len) ? store_reference(a, n->text, n->len, field) : wrong(k, n, a);
}

static void format_reference(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_upstream *u;

    memcpy(&u, field, sizeof(u));
    fputs(u ? u->name : "", f);
}

static bool copy_reference(void *field, struct arena *a)
{
    const struct config_upstream *u;

    memcpy(&u, field, sizeof(u));
    return !u || !store_reference(a, u->name, strlen(u->name), field);
}

const struct config_type config_reference = {.name = "upstream's name",
                                             .expected = "the name of an upstream",
                                             .pattern = "^[A-Za-z][A-Za-z0-9._-]{0,62}$",
                                             .parse = parse_reference,
                                             .format = format_reference,
                                             .copy = copy_reference};

static bool is_host(const char *text, size_t len)
{
    if (!len || len > HOST_MAX_LEN || text[0] == '.' || text[len - 1] == '.')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
            return false;
        if (text[i] == '.' && text[i + 1] == '.')
            return false;
    }
    return true;
}

/* Fills host_kind, host and host_len of a route. */
static const char *parse_host(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *route)
{
    struct config_route *r = route;
    bool is_suffix = n->len > 2 && !strncmp(n->text, "*.", 2);
    const char *name = n->text + (is_suffix ? 2 : 0);
    size_t len = n->len - (is_suffix ? 2 : 0);
    char *host;

    if (!strcmp(n->text, "*"))
        return NULL;
    if (len && memchr(name, ':', len))
        return config_say(a, "expected a host without its port, found %s",
                          yaml_quote(a, n->text, n->len));
    if (!is_host(name, len))
        return wrong(k, n, a);
    r->host_kind = is_suffix ? CONFIG_HOST_SUFFIX : CONFIG_HOST_EXACT;
    host = arena_strndup(a, name - is_suffix, len + is_suffix);
    if (!host)
        return "out of memory";
    for (char *p = host; *p; p++)
        *p = tolower((unsigned char)*p);
    r->host = host;
    r->host_len = len + is_suffix;
    return NULL;
}

static void format_host(const struct config_key *k, const void *route, FILE *f)
{
    const struct config_route *r = route;

    fprintf(f, "%s%s", r->host_kind == CONFIG_HOST_EXACT ? "" : "*", r->host ? r->host : "");
}

static bool copy_host(void *route, struct arena *a)
{
    return copy_text(&((struct config_route *)route)->host, a);
}

const struct config_type config_host_pattern = {
    .name = "host pattern",
    .expected = "a host such as www.example.com, *.example.com or *",
    .pattern = "^(\\*|(\\*\\.)?[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)$",
    .parse = parse_host,
    .format = format_host,
    .copy = copy_host};

/* Fills host_kind, host and host_len of an entry of `sni`. */
static const char *parse_server_name(const struct config_key *k, const struct yaml_node *n,
                                     struct arena *a, void *sni)
{
    struct config_sni *s = sni;
    struct config_route r = {0};
    const char *fault = parse_host(k, n, a, &r);

    s->host_kind = r.host_kind;
    s->host = r.host;
    s->host_len = r.host_len;
    return fault;
}

static void format_server_name(const struct config_key *k, const void *sni, FILE *f)
{
    const struct config_sni *s = sni;
    const struct config_route r = {.host_kind = s->host_kind, .host = s->host};

    format_host(k, &r, f);
}

static bool copy_server_name(void *sni, struct arena *a)
{
    return copy_text(&((struct config_sni *)sni)->host, a);
}

const struct config_type config_server_name = {
    .name = "host pattern",
    .expected = "a host such as www.example.com, *.example.com or *",
    .pattern = "^(\\*|(\\*\\.)?[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*)$",
    .parse = parse_server_name,
    .format = format_server_name,
    .copy = copy_server_name};

static bool is_unreserved(int c)
{
    return isalnum(c) || (c && strchr("-._~", c));
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The forms that dataplane/http/normalize.h never lets through to the routes: a prefix with one of
 * them would match nothing. NULL: there is none. */
static const char *byte_fault(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = p[i];

        if (c == '%') {
            int hi = i + 2 < len ? hex(p[i + 1]) : -1, lo = i + 2 < len ? hex(p[i + 2]) : -1;
            int code = hi * 16 + lo;

            if (hi < 0 || lo < 0)
                return "\"%\" must be followed by two digits of 0-9A-F";
            if (is_unreserved(code))
                return "write letters, digits, \"-\", \".\", \"_\" and \"~\" without an escape";
            if (code < 0x20 || code == 0x7f || code == '/' || code == '\\')
                return "escaped slashes, backslashes and control characters match nothing";
        } else if (c == '?' || c == '#') {
            return "routes see the path only, not the query";
        } else if (c <= ' ' || c > '~' || strchr("\\\"<>^`{|}", c)) {
            return "write characters that a URL can't hold as escapes, such as %20";
        }
    }
    return NULL;
}

static const char *segment_fault(const char *p, size_t len)
{
    for (size_t i = 0, end; i < len; i = end) {
        size_t name;

        for (end = i + 1; end < len && p[end] != '/'; end++)
            ;
        for (name = i + 1; name < end && p[name] != ';'; name++)
            ;
        if (end == i + 1 && end < len)
            return "expected single slashes";
        if ((name == i + 2 && p[i + 1] == '.') || (name == i + 3 && !strncmp(p + i + 1, "..", 2)))
            return "\".\" and \"..\" segments match nothing";
    }
    return NULL;
}

const char *config_path_fault(const char *p, size_t len)
{
    const char *fault = byte_fault(p, len);

    return fault ? fault : segment_fault(p, len);
}

static const char *parse_path_prefix(const struct config_key *k, const struct yaml_node *n,
                                     struct arena *a, void *route)
{
    struct config_route *r = route;
    const char *fault;

    if (n->text[0] != '/' || n->len > PATH_MAX_LEN)
        return wrong(k, n, a);
    fault = config_path_fault(n->text, n->len);
    if (fault)
        return config_say(a, "%s, found %s", fault, yaml_quote(a, n->text, n->len));
    r->path_prefix_len = n->len;
    return store_text(a, n->text, n->len, &r->path_prefix);
}

static void format_path_prefix(const struct config_key *k, const void *route, FILE *f)
{
    const struct config_route *r = route;

    if (r->path_prefix)
        fputs(r->path_prefix, f);
}

static bool copy_path_prefix(void *route, struct arena *a)
{
    return copy_text(&((struct config_route *)route)->path_prefix, a);
}

const struct config_type config_path_prefix = {
    .name = "path prefix",
    .expected = "a path that starts with \"/\", at most 1024 bytes",
    .pattern = "^/[^?#]*$",
    .parse = parse_path_prefix,
    .format = format_path_prefix,
    .copy = copy_path_prefix};
