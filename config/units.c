#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "config/units.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: formatting takes the first that divides. */
static const struct unit durations[] = {
    {"h", 3600000000000}, {"m", 60000000000}, {"s", 1000000000}, {"ms", 1000000},
    {"us", 1000},         {"ns", 1},          {NULL, 0},
};
static const struct unit sizes[] = {
    {"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"B", 1}, {NULL, 0},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits at the start: no sign, no leading zero (it would mean octal to some). */
static int parse_digits(const char *text, size_t len, uint64_t *ret, size_t *ret_used)
{
    uint64_t value = 0;
    bool overflow = false;
    size_t i;

    for (i = 0; i < len && is_digit(text[i]); i++)
        overflow |= __builtin_mul_overflow(value, 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value);
    if (!i || (i > 1 && text[0] == '0'))
        return -EINVAL;
    *ret_used = i;
    *ret = value;
    return overflow ? -ERANGE : 0;
}

int units_parse_integer(const char *text, size_t len, uint64_t *ret)
{
    uint64_t value;
    size_t used;
    int rc = parse_digits(text, len, &value, &used);

    if (rc == -EINVAL || used != len)
        return -EINVAL;
    if (!rc)
        *ret = value;
    return rc;
}

static int parse_with_unit(const struct unit *units, const char *text, size_t len, uint64_t *ret)
{
    uint64_t value;
    size_t used;
    int rc = parse_digits(text, len, &value, &used);

    if (rc == -EINVAL)
        return rc;
    for (const struct unit *u = units; u->name; u++) {
        if (strlen(u->name) != len - used || memcmp(u->name, text + used, len - used))
            continue;
        if (rc || __builtin_mul_overflow(value, u->factor, &value))
            return -ERANGE;
        *ret = value;
        return 0;
    }
    return -EINVAL;
}

int units_parse_duration(const char *text, size_t len, uint64_t *ret)
{
    return parse_with_unit(durations, text, len, ret);
}

int units_parse_size(const char *text, size_t len, uint64_t *ret)
{
    return parse_with_unit(sizes, text, len, ret);
}

int units_parse_percent(const char *text, size_t len, uint64_t *ret)
{
    static const struct unit percent[] = {{"%", 1}, {NULL, 0}};

    return parse_with_unit(percent, text, len, ret);
}

void units_format_integer(uint64_t value, char text[UNITS_TEXT_MAX])
{
    snprintf(text, UNITS_TEXT_MAX, "%ju", (uintmax_t)value);
}

static void format_with_unit(const struct unit *u, const char *zero, uint64_t value, char *text)
{
    if (!value) {
        snprintf(text, UNITS_TEXT_MAX, "%s", zero);
        return;
    }
    while (value % u->factor)
        u++;
    snprintf(text, UNITS_TEXT_MAX, "%ju%s", (uintmax_t)(value / u->factor), u->name);
}

void units_format_duration(uint64_t ns, char text[UNITS_TEXT_MAX])
{
    format_with_unit(durations, "0s", ns, text);
}

void units_format_size(uint64_t bytes, char text[UNITS_TEXT_MAX])
{
    format_with_unit(sizes, "0B", bytes, text);
}

void units_format_percent(uint64_t percent, char text[UNITS_TEXT_MAX])
{
    snprintf(text, UNITS_TEXT_MAX, "%ju%%", (uintmax_t)percent);
}

/* With or without brackets, prefix or port. */
static bool looks_like_ipv6(const char *text, size_t len)
{
    unsigned colons = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == ':')
            colons++;
        else if (!text[i] || !strchr("0123456789abcdefABCDEF[]./%", text[i]))
            return false;
    }
    return colons > 1;
}

static int parse_ip(const char *text, size_t len, uint32_t *ret)
{
    char copy[INET_ADDRSTRLEN];
    struct in_addr in;

    if (len >= sizeof(copy) || memchr(text, 0, len))
        return -EINVAL;
    memcpy(copy, text, len);
    copy[len] = 0;
    if (inet_pton(AF_INET, copy, &in) != 1)
        return -EINVAL;
    *ret = in.s_addr;
    return 0;
}

int units_parse_ip(const char *text, size_t len, uint32_t *ret)
{
    return looks_like_ipv6(text, len) ? -EAFNOSUPPORT : parse_ip(text, len, ret);
}

/* "address<mark>number" with the number in min…max. */
static int parse_pair(const char *text, size_t len, char mark, uint64_t max, uint32_t *ret_addr,
                      uint64_t *ret_number)
{
    const char *at = memrchr(text, mark, len);
    uint64_t number;
    uint32_t addr = 0;
    int rc;

    if (looks_like_ipv6(text, len))
        return -EAFNOSUPPORT;
    if (!at)
        return -EINVAL;
    if (!ret_addr && (at != text + 1 || *text != '*'))
        return -EINVAL;
    if (ret_addr && parse_ip(text, at - text, &addr))
        return -EINVAL;
    rc = units_parse_integer(at + 1, text + len - at - 1, &number);
    if (rc)
        return rc;
    if (!number || number > max)
        return -ERANGE;
    if (ret_addr)
        *ret_addr = addr;
    *ret_number = number;
    return 0;
}

int units_parse_cidr(const char *text, size_t len, struct config_addr *ret)
{
    uint64_t prefix;
    uint32_t addr;
    int rc = parse_pair(text, len, '/', 32, &addr, &prefix);

    if (!rc)
        *ret = (struct config_addr){.addr = addr, .prefix = prefix};
    return rc;
}

int units_parse_endpoint(const char *text, size_t len, struct config_addr *ret)
{
    uint64_t port;
    uint32_t addr;
    int rc = parse_pair(text, len, ':', 65535, &addr, &port);

    if (!rc)
        *ret = (struct config_addr){.addr = addr, .port = port};
    return rc;
}

int units_parse_listen(const char *text, size_t len, struct config_addr *ret)
{
    uint64_t port;
    int rc;

    if (!len || *text != '*')
        return units_parse_endpoint(text, len, ret);
    rc = parse_pair(text, len, ':', 65535, NULL, &port);
    if (!rc)
        *ret = (struct config_addr){.port = port};
    return rc;
}

void units_format_ip(uint32_t addr, char text[UNITS_TEXT_MAX])
{
    inet_ntop(AF_INET, &(struct in_addr){addr}, text, UNITS_TEXT_MAX);
}

void units_format_cidr(const struct config_addr *a, char text[UNITS_TEXT_MAX])
{
    units_format_ip(a->addr, text);
    snprintf(text + strlen(text), UNITS_TEXT_MAX - strlen(text), "/%u", a->prefix);
}

void units_format_listen(const struct config_addr *a, char text[UNITS_TEXT_MAX])
{
    if (a->addr)
        units_format_ip(a->addr, text);
    else
        snprintf(text, UNITS_TEXT_MAX, "*");
    snprintf(text + strlen(text), UNITS_TEXT_MAX - strlen(text), ":%u", a->port);
}
