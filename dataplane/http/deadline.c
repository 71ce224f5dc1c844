#include "dataplane/http/deadline.h"

#include <inttypes.h>
#include <stdio.h>

#define NS_PER_MS UINT64_C(1000000)
#define GRPC_MAX  UINT64_C(99999999) /* eight digits */

static const struct grpc_unit {
    char letter;
    uint64_t ns;
} grpc_units[] = {
    {'n', 1},
    {'u', 1000},
    {'m', NS_PER_MS},
    {'S', 1000 * NS_PER_MS},
    {'M', 60000 * NS_PER_MS},
    {'H', 3600000 * NS_PER_MS},
};
#define GRPC_UNITS (sizeof(grpc_units) / sizeof(grpc_units[0]))

static bool parse_digits(const char *text, size_t len, size_t most, uint64_t *ret)
{
    uint64_t v = 0;
    if (len == 0 || len > most)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = v;
    return true;
}

static uint64_t times(uint64_t n, uint64_t unit)
{
    return n > UINT64_MAX / unit ? UINT64_MAX : n * unit;
}

bool http_deadline_parse_ms(const char *text, size_t len, uint64_t *ret_ns)
{
    uint64_t ms;
    if (!parse_digits(text, len, 15, &ms))
        return false;
    *ret_ns = times(ms, NS_PER_MS);
    return true;
}

bool http_deadline_parse_grpc(const char *text, size_t len, uint64_t *ret_ns)
{
    uint64_t n;
    if (len < 2 || !parse_digits(text, len - 1, 8, &n))
        return false;
    for (size_t i = 0; i < GRPC_UNITS; i++) {
        if (grpc_units[i].letter == text[len - 1]) {
            *ret_ns = times(n, grpc_units[i].ns);
            return true;
        }
    }
    return false;
}

size_t http_deadline_format_ms(uint64_t ns, char text[HTTP_DEADLINE_TEXT_MAX])
{
    return (size_t)snprintf(text, HTTP_DEADLINE_TEXT_MAX, "%" PRIu64, ns / NS_PER_MS);
}

/* The finest unit whose number fits. */
size_t http_deadline_format_grpc(uint64_t ns, char text[HTTP_DEADLINE_TEXT_MAX])
{
    size_t i = 0;
    while (i + 1 < GRPC_UNITS && ns / grpc_units[i].ns > GRPC_MAX)
        i++;
    uint64_t n = ns / grpc_units[i].ns;
    return (size_t)snprintf(text, HTTP_DEADLINE_TEXT_MAX, "%" PRIu64 "%c",
                            n > GRPC_MAX ? GRPC_MAX : n, grpc_units[i].letter);
}
