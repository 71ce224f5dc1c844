/* The configuration that the flow tests share, and short names for what they do all the time. */
#ifndef MILLRACE_TESTS_FLOW_FLOW_H
#define MILLRACE_TESTS_FLOW_FLOW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kit/world.h"

#define FLOW_HEAD(cores)                                                                           \
    "version: 1\n"                                                                                 \
    "runtime: { cores: " cores " }\n"                                                              \
    "ports:\n"                                                                                     \
    "  - { name: p, driver: veth, device: mill0, addresses: [10.9.0.1/24], mtu: 1500 }\n"

#define FLOW_LISTENERS(extra)                                                                      \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    limits: { connections: 100 }\n"                                                           \
    "    http:\n"                                                                                  \
    "      timeouts: { header: 10s, idle: 60s, body: 30s }\n"                                      \
    "      limits: { header_size: 8KiB, header_count: 64, body_size: 4MiB }\n"                     \
    "      routes:\n"                                                                              \
    "        - { upstream: app }\n" extra "  - name: raw\n"                                        \
    "    address: 10.9.0.1:81\n"                                                                   \
    "    tunnel: { upstream: app, timeouts: { idle: 5m } }\n"

#define FLOW_UPSTREAM                                                                              \
    "upstreams:\n"                                                                                 \
    "  - name: app\n"                                                                              \
    "    endpoints: [10.9.0.2:9000]\n"                                                             \
    "    timeouts: { connect: 1s, request: 15s, idle: 60s }\n"

#define FLOW_YAML FLOW_HEAD("[0]") FLOW_LISTENERS("") FLOW_UPSTREAM

#define GET "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
#define OK2 "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* A world with an origin that listens. */
static inline struct world *flow_start(const char *yaml)
{
    struct world_opts o = {.yaml = yaml, .seed = 1, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    world_listen(w, 9000);
    return w;
}

/* The client has sent `request`; the origin's end, having received a head. */
static inline struct peer *flow_origin(struct world *w)
{
    struct peer *o = world_accept(w);
    peer_expect_through(o, "\r\n\r\n");
    return o;
}

/* An answer's status as the client sees it; takes the head. */
static inline int flow_status(struct peer *c)
{
    const char *head = peer_expect_through(c, "\r\n\r\n");
    assert_memory_equal(head, "HTTP/1.1 ", 9);
    return atoi(head + 9);
}

static inline void assert_has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "");
}

static inline void assert_has_not(const char *text, const char *part)
{
    if (!text || strstr(text, part))
        fail_msg("\"%s\" is in \"%s\"", part, text ? text : "");
}

#endif
