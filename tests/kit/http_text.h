/* HTTP messages as text, for tests: a parsed head in one canonical form, and bytes fed to a rope in
 * mbufs of their own. */
#ifndef MILLRACE_TESTS_KIT_HTTP_TEXT_H
#define MILLRACE_TESTS_KIT_HTTP_TEXT_H

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/http/message.h"
#include "dataplane/stream/rope.h"

struct text {
    char *buf;
    size_t len, cap;
};

static inline void text_add(struct text *t, const char *data, size_t len)
{
    if (t->len + len + 1 > t->cap) {
        t->cap = (t->len + len + 1) * 2;
        t->buf = realloc(t->buf, t->cap);
        assert(t->buf);
    }
    if (len)
        memcpy(t->buf + t->len, data, len);
    t->len += len;
    t->buf[t->len] = '\0';
}

static inline void __attribute__((format(printf, 2, 3)))
text_addf(struct text *t, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof(line));
    text_add(t, line, (size_t)n);
}

static inline void text_add_rope(struct text *t, const struct rope *r)
{
    for (const struct rope_node *n = r->head; n; n = n->next)
        text_add(t, rope_node_data(n), n->len);
}

static inline void text_add_span(struct text *t, const char *name, const struct http_head *h,
                                 struct http_span s)
{
    text_addf(t, " %s=", name);
    text_add(t, http_head_at(h, s), s.len);
}

/* The start line and what was understood of the fields. */
static inline void text_add_start(struct text *t, const struct http_head *h)
{
    if (h->is_request) {
        text_add_span(t, "method", h, h->method_text);
        text_add_span(t, "target", h, h->target);
        text_add_span(t, "authority", h, h->authority);
        text_add_span(t, "path", h, h->path);
        if (h->has_query)
            text_add_span(t, "query", h, h->query);
    } else {
        text_addf(t, " status=%u", h->status);
        text_add_span(t, "reason", h, h->reason);
    }
    static const char *const framings[] = {"none", "length", "chunked", "until-close"};
    text_addf(t, " 1.%u body=%s", h->version_minor, framings[h->framing]);
    if (h->has_length)
        text_addf(t, " length=%llu", (unsigned long long)h->content_length);
    text_addf(t, "%s%s%s%s%s\n", h->keep_alive ? " keep-alive" : "", h->upgrade ? " upgrade" : "",
              h->expect_continue ? " expect" : "", h->te_trailers ? " te-trailers" : "",
              h->is_https ? " https" : "");
}

static inline void text_add_fields(struct text *t, const struct http_head *h)
{
    for (unsigned i = 0; i < h->nheaders; i++) {
        const struct http_header *f = &h->headers[i];
        text_add(t, h->base + f->name_off, f->name_len);
        text_add(t, "=", 1);
        text_add(t, h->base + f->value_off, f->value_len);
        text_addf(t, " (%u%s)\n", f->id, f->flags & HTTP_HF_NOMINATED ? " nominated" : "");
    }
}

static inline void text_free(struct text *t)
{
    free(t->buf);
    memset(t, 0, sizeof(*t));
}

/* `len` bytes as the sole content of a new mbuf each time: what a segment of that size would be. */
static inline void rope_feed(struct rope_pool *p, struct rope *r, const char *data, size_t len)
{
    while (len) {
        struct rte_mbuf *m = rte_pktmbuf_alloc(p->mbufs);
        assert(m);
        size_t room = rte_pktmbuf_tailroom(m);
        size_t here = len < room ? len : room;
        memcpy(rte_pktmbuf_mtod(m, char *), data, here);
        int ret = rope_push_mbuf(p, r, m, m->data_off, (uint32_t)here);
        assert(ret == 0);
        (void)ret;
        data += here;
        len -= here;
    }
}

#endif
