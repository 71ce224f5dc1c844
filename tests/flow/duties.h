/* What the tests of the edge's own duties share: a configuration with two listeners, and words for
 * asking and being answered. */
#ifndef MILLRACE_TESTS_FLOW_DUTIES_H
#define MILLRACE_TESTS_FLOW_DUTIES_H

#include "dataplane/core_private.h"
#include "dataplane/proxy/access_log.h"
#include "tests/flow/flow.h"

#define WEB(listener, http, routes)                                                                \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n" listener "    http:\n" http "      routes:\n" routes              \
    "  - name: raw\n"                                                                              \
    "    address: 10.9.0.1:81\n" listener "    tunnel: { upstream: app }\n" FLOW_UPSTREAM

#define APP "        - { upstream: app }\n"

/* Whatever its address: `path`. */
static inline void ask(struct peer *c, const char *path)
{
    char text[512];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", path);
    peer_say(c, text);
}

/* The whole answer, of our own, with its body; as text until the next call. */
static inline const char *answer(struct peer *c)
{
    static char text[4096];
    const char *length;
    snprintf(text, sizeof(text), "%s", peer_expect_through(c, "\r\n\r\n"));
    length = strstr(text, "Content-Length: ");
    assert_non_null(length);
    size_t at = strlen(text), n = (size_t)atoi(length + 16);
    assert_true(at + n < sizeof(text));
    peer_expect_bytes(c, n);
    memcpy(text + at, c->rx + c->taken - n, n);
    text[at + n] = 0;
    return text;
}

static inline void assert_status(const char *text, int status)
{
    if (atoi(text + 9) != status)
        fail_msg("expected %d: %s", status, text);
}

/* A request that the origin answers, on `c`; returns what the origin got. */
static inline const char *through(struct world *w, struct peer *c, const char *request,
                                  struct peer **o)
{
    static char seen[4096];
    peer_say(c, request);
    if (!*o)
        *o = world_accept(w);
    snprintf(seen, sizeof(seen), "%s", peer_expect_through(*o, "\r\n\r\n"));
    peer_say(*o, OK2);
    assert_status(answer(c), 200);
    return seen;
}

/* The oldest record of the access log. */
static inline struct access_record record(struct world *w)
{
    struct access_record r;
    assert_true(access_ring_take(core_access_ring(w->cores[0]), &r));
    return r;
}

static inline void assert_recorded(struct world *w, int status, enum access_reason why)
{
    struct access_record r = record(w);
    assert_int_equal(r.status, status);
    assert_string_equal(access_reason_name(r.reason), access_reason_name(why));
}

static inline const struct listener_stats *listener(struct world *w, unsigned i)
{
    return &world_status(w)->listeners[i];
}

#endif
