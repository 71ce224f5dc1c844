/* Many small writes into fresh mbufs: a bare pointer into the last one, no rope call per write.
 * Internal to http/.
 *
 *     h1_writer_begin(&w, pool); h1_put(...); ...; return h1_writer_commit(&w, out);
 *
 * Running out of mbufs is remembered, so that only commit has to be checked.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_WRITER_H
#define MILLRACE_DATAPLANE_HTTP_H1_WRITER_H

#include <string.h>

#include "dataplane/stream/rope.h"

struct h1_writer {
    char *p, *end; /* free bytes of `mbuf` */
    struct rte_mbuf *mbuf;
    struct rope_pool *pool;
    struct rope done; /* full mbufs */
    bool failed;
};

static inline void h1_writer_begin(struct h1_writer *w, struct rope_pool *pool)
{
    *w = (struct h1_writer){.pool = pool};
}

void h1_put_slow(struct h1_writer *w, const char *data, size_t len);

static inline void h1_put(struct h1_writer *w, const char *data, size_t len)
{
    if (__builtin_expect((size_t)(w->end - w->p) < len, 0)) {
        h1_put_slow(w, data, len);
        return;
    }
    /* len 0 may come before the first mbuf. */
    if (len) {
        memcpy(w->p, data, len);
        w->p += len;
    }
}

#define H1_PUT(w, literal) h1_put(w, literal, sizeof(literal) - 1)

static inline void h1_put_text(struct h1_writer *w, const char *text)
{
    h1_put(w, text, strlen(text));
}

void h1_put_number(struct h1_writer *w, uint64_t n);

/* 0 and everything at the end of `out`, or -ENOMEM and nothing. */
int h1_writer_commit(struct h1_writer *w, struct rope *out);

#endif
