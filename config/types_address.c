/* IPv4 addresses, with a prefix, a port or neither. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include "config/schema.h"
#include "config/units.h"

static const char *not_an_address(const struct config_key *k, const struct yaml_node *n,
                                  struct arena *a)
{
    return config_say(a, "expected %s%s%s, found %s", k->type->expected, k->word ? " or " : "",
                      k->word ? k->word : "", yaml_quote(a, n->text, n->len));
}

static const char *address_fault(const struct config_key *k, const struct yaml_node *n,
                                 struct arena *a, int rc)
{
    const char *slash = memchr(n->text, '/', n->len), *colon = memchr(n->text, ':', n->len);

    if (rc == -EAFNOSUPPORT)
        return config_say(a, "IPv6 is not supported yet: expected %s, found %s", k->type->expected,
                          yaml_quote(a, n->text, n->len));
    if (rc == -ERANGE)
        return config_say(a, "%s, found %s",
                          k->type == &config_cidr ? "a prefix is 1 to 32" : "a port is 1 to 65535",
                          yaml_quote(a, n->text, n->len));
    if (k->type == &config_cidr && !slash)
        return config_say(a, "%s (the prefix after \"/\" is missing)", not_an_address(k, n, a));
    if ((k->type == &config_endpoint || k->type == &config_listen) && !colon)
        return config_say(a, "%s (the port after \":\" is missing)", not_an_address(k, n, a));
    if (k->type == &config_endpoint && isalpha((unsigned char)n->text[0]))
        return config_say(a, "%s (host names are not resolved)", not_an_address(k, n, a));
    return not_an_address(k, n, a);
}

static const char *parse_ip(const struct config_key *k, const struct yaml_node *n, struct arena *a,
                            void *field)
{
    int rc = units_parse_ip(n->text, n->len, field);

    return rc ? address_fault(k, n, a, rc) : NULL;
}

static void format_ip(const struct config_key *k, const void *field, FILE *f)
{
    char text[UNITS_TEXT_MAX];
    uint32_t addr = config_fetch(field, sizeof(addr));

    if (!addr)
        return;
    units_format_ip(addr, text);
    fputs(text, f);
}

const struct config_type config_ip = {.name = "IPv4 address",
                                      .expected = "an IPv4 address such as 10.77.0.2",
                                      .pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}$",
                                      .parse = parse_ip,
                                      .format = format_ip};

static const char *parse_cidr(const struct config_key *k, const struct yaml_node *n,
                              struct arena *a, void *field)
{
    int rc = units_parse_cidr(n->text, n->len, field);

    return rc ? address_fault(k, n, a, rc) : NULL;
}

static void format_cidr(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_addr *addr = field;
    char text[UNITS_TEXT_MAX];

    if (!addr->addr)
        return;
    units_format_cidr(addr, text);
    fputs(text, f);
}

const struct config_type config_cidr = {.name = "IPv4 address with prefix",
                                        .plural = "IPv4 addresses with prefix",
                                        .expected =
                                            "an IPv4 address with its prefix, such as 10.77.0.1/24",
                                        .pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2}$",
                                        .parse = parse_cidr,
                                        .format = format_cidr};

static const char *parse_endpoint(const struct config_key *k, const struct yaml_node *n,
                                  struct arena *a, void *field)
{
    int rc = units_parse_endpoint(n->text, n->len, field);

    return rc ? address_fault(k, n, a, rc) : NULL;
}

static const char *parse_listen(const struct config_key *k, const struct yaml_node *n,
                                struct arena *a, void *field)
{
    int rc;

    if (k->word && !strcmp(n->text, k->word))
        return NULL;
    rc = units_parse_listen(n->text, n->len, field);
    return rc ? address_fault(k, n, a, rc) : NULL;
}

static void format_listen(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_addr *addr = field;
    char text[UNITS_TEXT_MAX];

    if (!addr->port) {
        fputs(k->word ? k->word : "", f);
        return;
    }
    units_format_listen(addr, text);
    fputs(text, f);
}

const struct config_type config_endpoint = {.name = "IPv4 address with port",
                                            .plural = "IPv4 addresses with port",
                                            .expected =
                                                "an IPv4 address and port such as 10.77.0.2:9000",
                                            .pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}:[0-9]{1,5}$",
                                            .parse = parse_endpoint,
                                            .format = format_listen};

const struct config_type config_listen = {
    .name = "IPv4 address or * with port",
    .expected = "an IPv4 address and port such as 10.77.0.1:8080, or *:8080",
    .pattern = "^([0-9]{1,3}(\\.[0-9]{1,3}){3}|\\*):[0-9]{1,5}$",
    .parse = parse_listen,
    .format = format_listen};
