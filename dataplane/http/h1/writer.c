#include "dataplane/http/h1/writer.h"

#include <errno.h>

static void seal(struct h1_writer *w)
{
    struct rte_mbuf *m = w->mbuf;
    if (!m)
        return;
    w->mbuf = NULL;
    uint32_t len = (uint32_t)(w->p - rte_pktmbuf_mtod(m, char *));
    if (rope_push_mbuf(w->pool, &w->done, m, m->data_off, len) < 0) {
        rte_pktmbuf_free(m);
        w->failed = true;
    }
    w->p = w->end = NULL;
}

static bool next_mbuf(struct h1_writer *w)
{
    seal(w);
    w->mbuf = w->failed ? NULL : rope_mbuf_new(w->pool);
    if (!w->mbuf) {
        w->failed = true;
        return false;
    }
    w->p = rte_pktmbuf_mtod(w->mbuf, char *);
    w->end = w->p + rte_pktmbuf_tailroom(w->mbuf);
    return true;
}

void h1_put_slow(struct h1_writer *w, const char *data, size_t len)
{
    while (len) {
        if (w->p == w->end && !next_mbuf(w))
            return;
        size_t room = (size_t)(w->end - w->p);
        size_t here = len < room ? len : room;
        memcpy(w->p, data, here);
        w->p += here;
        data += here;
        len -= here;
    }
}

void h1_put_number(struct h1_writer *w, uint64_t n)
{
    char text[20], *p = text + sizeof(text);
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    h1_put(w, p, (size_t)(text + sizeof(text) - p));
}

int h1_writer_commit(struct h1_writer *w, struct rope *out)
{
    seal(w);
    if (w->failed) {
        rope_clear(w->pool, &w->done);
        return -ENOMEM;
    }
    rope_splice(out, &w->done);
    return 0;
}
