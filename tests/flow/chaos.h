/* What the chaos test's users and origins have to say, and what they say it to. */
#ifndef MILLRACE_TESTS_FLOW_CHAOS_H
#define MILLRACE_TESTS_FLOW_CHAOS_H

#include "tests/flow/flow.h"

#define CHAOS_YAML(runtime)                                                                        \
    "version: 1\n"                                                                                 \
    "runtime: { cores: [0]" runtime " }\n"                                                         \
    "ports:\n"                                                                                     \
    "  - { name: p, driver: veth, device: mill0, addresses: [10.9.0.1/24], mtu: 1500 }\n"          \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    limits: { connections: 6 }\n"                                                             \
    "    http:\n"                                                                                  \
    "      timeouts: { header: 2s, idle: 5s, body: 3s }\n"                                         \
    "      limits: { header_size: 4KiB, header_count: 16, body_size: 16KiB }\n"                    \
    "      routes:\n"                                                                              \
    "        - { upstream: app }\n"                                                                \
    "        - { match: { path_prefix: /none }, upstream: nobody }\n"                              \
    "  - name: raw\n"                                                                              \
    "    address: 10.9.0.1:81\n"                                                                   \
    "    tunnel: { upstream: app, timeouts: { idle: 5s } }\n"                                      \
    "upstreams:\n"                                                                                 \
    "  - name: app\n"                                                                              \
    "    endpoints: [10.9.0.2:9000, 10.9.0.2:9001]\n"                                              \
    "    timeouts: { connect: 1s, request: 8s, idle: 3s }\n"                                       \
    "  - { name: nobody, endpoints: [10.9.0.2:9999] }\n"

/* Ample buffers, and buffers that are always full. */
static const char *const chaos_yamls[] = {
    CHAOS_YAML(""),
    CHAOS_YAML(", receive_buffer: 16KiB, send_buffer: 16KiB"),
};

static const char *const requests[] = {
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /%2e%2e/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://b.example/x?y HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3;x=y\r\nabc\r\n8\r\n01234567\r\n0\r\nX-Sum: 1\r\n\r\n",
};

/* X-Len says how long the body is that the origin means. */
static const char *const answers[] = {
    "HTTP/1.1 200 OK\r\nX-Len: 2\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-Len: 0\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX-Len: 8\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3\r\nabc\r\n5\r\ndefgh\r\n0\r\nX-Sum: 1\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    "HTTP/1.1 503 Not Now\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
};

static const char *const answers_in_part[] = {
    "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\npart",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\npart",
    "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
    "HTTP/1.1 200 OK\r\nX: ",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "\r\n\r\n",
};

#endif
