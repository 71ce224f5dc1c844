/* What a request stays with its endpoint by. */
#include <string.h>
#include <strings.h>

#include "dataplane/proxy/exchange.h"
#include "runtime/hash.h"

static struct http_span find_header(const struct http_head *head, const char *name)
{
    size_t len = strlen(name);
    for (unsigned i = 0; i < head->nheaders; i++) {
        const struct http_header *f = &head->headers[i];
        if (f->name_len == len && strncasecmp(head->base + f->name_off, name, len) == 0)
            return http_header_value(f);
    }
    return (struct http_span){0};
}

/* RFC 6265 §4.2.1: "a=b; c=d". */
static struct http_span find_pair(const struct http_head *head, struct http_span line,
                                  const char *name)
{
    const char *p = http_head_at(head, line), *end = p + line.len;
    size_t len = strlen(name);
    while (p < end) {
        const char *semicolon = memchr(p, ';', (size_t)(end - p));
        const char *stop = semicolon ? semicolon : end;
        while (p < stop && *p == ' ')
            p++;
        if ((size_t)(stop - p) > len && p[len] == '=' && memcmp(p, name, len) == 0)
            return (struct http_span){(uint32_t)(p + len + 1 - head->base),
                                      (uint32_t)(stop - p - (ptrdiff_t)len - 1)};
        p = stop + 1;
    }
    return (struct http_span){0};
}

static struct http_span find_cookie(const struct http_head *head, const char *name)
{
    struct http_span found = {0};
    for (unsigned i = 0; i < head->nheaders && !found.len; i++)
        if (head->headers[i].id == HTTP_H_COOKIE)
            found = find_pair(head, http_header_value(&head->headers[i]), name);
    return found;
}

uint64_t exchange_hash(const struct upstream *up, const struct exchange_request *r,
                       const struct access_record *record)
{
    const struct config_hash *h = &up->cfg->hash;
    struct http_span s = {0};
    if (up->balance.kind != &balance_consistent_hash)
        return 0;
    switch (h->by) {
    case CONFIG_HASH_SOURCE:
        break;
    case CONFIG_HASH_PATH:
        return hash_bytes(r->key->path, r->key->path_len, 0);
    case CONFIG_HASH_HEADER:
        s = find_header(r->head, h->name);
        break;
    case CONFIG_HASH_COOKIE:
        s = find_cookie(r->head, h->name);
        break;
    }
    if (s.len)
        return hash_bytes(http_head_at(r->head, s), s.len, 0);
    struct inet_end client = record_end(record);
    return inet_hash(&client);
}
