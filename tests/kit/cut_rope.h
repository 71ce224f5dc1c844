/* Bytes as a rope of many nodes, without a pool: for parsers that only read. */
#ifndef MILLRACE_TESTS_KIT_CUT_ROPE_H
#define MILLRACE_TESTS_KIT_CUT_ROPE_H

#include <stdlib.h>
#include <string.h>

#include "dataplane/stream/rope.h"

/* Each node's bytes are in memory of just that size, so that the sanitizer sees a read behind it.
 */
static inline void cut_rope_add(struct rope *r, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    struct rope_node *n = calloc(1, sizeof(*n));
    n->mbuf = calloc(1, sizeof(*n->mbuf));
    n->mbuf->buf_addr = malloc(len);
    memcpy(n->mbuf->buf_addr, bytes, len);
    n->len = (uint32_t)len;
    if (r->tail)
        r->tail->next = n;
    else
        r->head = n;
    r->tail = n;
    r->len += len;
    r->nodes++;
}

static inline void cut_rope_free(struct rope *r)
{
    while (r->head) {
        struct rope_node *n = r->head;
        r->head = n->next;
        free(n->mbuf->buf_addr);
        free(n->mbuf);
        free(n);
    }
    *r = (struct rope){0};
}

#endif
