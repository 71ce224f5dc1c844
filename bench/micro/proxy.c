/* What one request costs a core, without a wire: 64 keep-alive clients and an origin on the
 * simulated wire, the core's passes timed by TSC. Prints ns of core time per request.
 *
 *   micro_proxy [REQUESTS]
 *
 * Under callgrind with --toggle-collect=core_pass it counts the core's instructions alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/clock.h"
#include "tests/kit/world.h"

#define CLIENTS 64
#define BODY    811

static const char yaml[] =
    "version: 1\n"
    "runtime: { cores: [0] }\n"
    "ports:\n"
    "  - { name: p, driver: veth, device: mill0, addresses: [10.9.0.1/24] }\n"
    "listeners:\n"
    "  - name: web\n"
    "    address: 10.9.0.1:80\n"
    "    http: { routes: [ { upstream: app } ] }\n"
    "upstreams:\n"
    "  - { name: app, endpoints: [10.9.0.2:9000] }\n";

static const char request[] = "GET /index.html HTTP/1.1\r\nHost: 10.79.0.1:8080\r\n\r\n";

struct load {
    struct world *w;
    struct peer *clients[CLIENTS];
    char answer[2048];
    unsigned answer_len;
    uint64_t sent, answered, want;
};

static bool step(void *ctx)
{
    struct load *l = ctx;
    list_for_each(n, &l->w->peers)
    {
        struct peer *p = container_of(n, struct peer, node);
        if (p->host == &l->w->origin) {
            if (p->rx_len > 4 && memcmp(p->rx + p->rx_len - 4, "\r\n\r\n", 4) == 0) {
                p->rx_len = 0;
                peer_send(p, l->answer, l->answer_len);
            }
            continue;
        }
        bool whole = p->rx_len > BODY && memcmp(p->rx + p->rx_len - 3, "end", 3) == 0;
        if (p->connected && (whole || !p->user)) {
            l->answered += whole;
            p->user = p;
            p->rx_len = 0;
            peer_send(p, request, sizeof(request) - 1);
        }
    }
    return l->answered >= l->want;
}

int main(int argc, char **argv)
{
    static struct load l;
    uint64_t warm = 2 * CLIENTS, n = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
    struct world_opts o = {
        .yaml = yaml, .mbufs = 16383, .plain = true, .path = {.delay_ns = 50000}};
    l.w = world_new(&o);
    l.answer_len = (unsigned)snprintf(
        l.answer, sizeof(l.answer),
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 17:33:32 GMT\r\n"
        "Content-Type: text/html\r\nContent-Length: %u\r\nLast-Modified: Mon, 30 Nov 2026 17:33:31 "
        "GMT\r\nConnection: keep-alive\r\nETag: \"6b0db36b-32b\"\r\nAccept-Ranges: "
        "bytes\r\n\r\n%*s",
        BODY, BODY, "end");
    world_listen(l.w, 9000);
    for (unsigned i = 0; i < CLIENTS; i++)
        l.clients[i] = world_connect(l.w, 80);
    l.want = warm;
    world_run(l.w, step, &l, 100 * WORLD_S);
    l.w->core_tsc = 0;
    l.want = warm + n;
    if (!world_run(l.w, step, &l, 10000 * WORLD_S)) {
        world_dump(l.w);
        return 1;
    }
    struct core_status *st = world_status(l.w);
    double ns = (double)clock_tsc_to_ns(l.w->core_tsc, clock_tsc_calibrate());
    printf("%" PRIu64 " requests: %.0f ns of core time each, %.2f segments in, %.2f out, %.2f of "
           "them without a copy\n",
           n, ns / (double)n, (double)st->tcp.segs_in / (double)l.answered,
           (double)st->tcp.segs_out / (double)l.answered,
           (double)st->tcp.zero_copy_out / (double)l.answered);
    return 0;
}
