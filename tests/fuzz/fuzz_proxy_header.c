/* PROXY headers from any bytes. What has to hold:
 *   - no bytes crash or are read behind their end;
 *   - what the first bytes say, more of them don't change;
 *   - the length lies in its bounds, and what stands behind the first PROXY_HEADER_SEEN bytes
 *     doesn't count;
 *   - a header that was accepted is written, in both versions, as one that says the same. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/stream/proxy_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* In memory of just that size, so that the sanitizer sees a read behind it. */
static int parse(const uint8_t *data, size_t len, struct proxy_header *h)
{
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, data, len);
    int n = proxy_header_parse(copy, len, h);
    free(copy);
    return n;
}

static bool is_same_end(const struct inet_end *a, const struct inet_end *b)
{
    if (a->is_ip6 != b->is_ip6 || a->port != b->port)
        return false;
    return a->is_ip6 ? memcmp(a->ip6, b->ip6, 16) == 0 : a->addr == b->addr;
}

static bool is_same(const struct proxy_header *a, const struct proxy_header *b)
{
    if (a->local || b->local)
        return a->local == b->local;
    return is_same_end(&a->client, &b->client) && is_same_end(&a->to, &b->to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header h, other;
    int n = parse(data, size, &h);
    CHECK(n >= 0 || n == -ENOMSG || n == -EBADMSG);
    CHECK(n != 0 || size < PROXY_HEADER_SEEN);
    CHECK(n <= 16 + 65535 && (n <= 0 || n >= 15));
    size_t seen = size < PROXY_HEADER_SEEN ? size : PROXY_HEADER_SEEN;
    for (size_t cut = 0; cut <= seen; cut++) {
        int m = parse(data, cut, &other);
        CHECK(m == n || m == 0);
        CHECK(m <= 0 || is_same(&h, &other));
        CHECK(cut < PROXY_HEADER_SEEN || m == n);
    }
    for (unsigned version = 1; n > 0 && version <= 2; version++) {
        char text[PROXY_HEADER_WRITE];
        size_t len = proxy_header_write(version, &h, text);
        CHECK(len <= sizeof(text));
        CHECK(parse((const uint8_t *)text, len, &other) == (int)len && is_same(&h, &other));
    }
    return 0;
}
