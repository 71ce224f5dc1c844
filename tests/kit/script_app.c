/* The script's side of the application. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tests/kit/eal.h"
#include "tests/kit/script_priv.h"

#define PEER_PORT_BASE 40000

/* --- small parsing --- */

/* Takes the next word off *text; "" at the end. */
static char *word(char **text)
{
    char *p = *text + strspn(*text, " \t");
    size_t n = strcspn(p, " \t");
    *text = p + n;
    if (p[n])
        *(*text)++ = 0;
    return p;
}

static uint64_t number(struct script *s, char **text)
{
    char *w = word(text), *end;
    uint64_t v = strtoull(w, &end, 0);
    if (end == w || *end)
        script_fail(s, "a number was expected, not '%s'", w);
    return v;
}

static uint64_t seconds(struct script *s, char **text)
{
    char *w = word(text), *end;
    double v = strtod(w, &end);
    if (end == w || *end || v < 0)
        script_fail(s, "a time in seconds was expected, not '%s'", w);
    return (uint64_t)(v * 1e9 + 0.5);
}

static int errno_of(struct script *s, const char *name)
{
    for (int e = 1; e < 134; e++) {
        const char *n = strerrorname_np(e);
        if (n && strcmp(n, name) == 0)
            return e;
    }
    script_fail(s, "'%s' is no error's name", name);
}

static const char *name_of(int64_t result, char *buf, size_t size)
{
    if (result < 0)
        snprintf(buf, size, "%s", strerrorname_np((int)-result));
    else
        snprintf(buf, size, "%lld", (long long)result);
    return buf;
}

/* "= N", "= NAME", or nothing: `otherwise`. */
static void check_result(struct script *s, char **text, int64_t result, int64_t otherwise)
{
    char *w = word(text), is[32], want[32];
    if (strcmp(w, "=") == 0)
        w = word(text);
    if (*w)
        otherwise = isdigit((unsigned char)*w) ? (int64_t)strtoull(w, NULL, 0) : -errno_of(s, w);
    if (result != otherwise)
        script_fail(s, "result is %s, expected %s", name_of(result, is, sizeof is),
                    name_of(otherwise, want, sizeof want));
}

static struct stream *stream_of(struct script *s)
{
    if (!s->conn->stream)
        script_fail(s, "this flow has no open stream");
    return s->conn->stream;
}

/* --- options before the start --- */

static void cmd_set(struct script *s, char *text)
{
    char *key = word(&text);
    if (s->started && strcmp(key, "tolerance") != 0)
        script_fail(s, "options come before the first event");
    const struct {
        const char *key;
        uint32_t *u32;
        uint64_t *ns;
    } keys[] = {
        {"rcv_buf", &s->tcp_opts.rcv_buf, NULL},
        {"snd_buf", &s->tcp_opts.snd_buf, NULL},
        {"max_conns", &s->tcp_opts.max_conns, NULL},
        {"max_half_open", &s->tcp_opts.max_half_open, NULL},
        {"max_time_wait", &s->tcp_opts.max_time_wait, NULL},
        {"mbuf_low", &s->tcp_opts.mbuf_low, NULL},
        {"isn_offset", &s->tcp_opts.isn_offset, NULL},
        {"backlog", &s->backlog, NULL},
        {"chunk", &s->chunk, NULL},
        {"mbufs", &s->net_opts.mbufs, NULL},
        {"offloads", &s->net_opts.offloads, NULL},
        {"keepalive_idle", NULL, &s->tcp_opts.keepalive_idle_ns},
        {"time_wait", NULL, &s->tcp_opts.time_wait_ns},
        {"connect_timeout", NULL, &s->tcp_opts.connect_timeout_ns},
        {"tolerance", NULL, &s->tolerance_ns},
    };
    for (unsigned i = 0; i < RTE_DIM(keys); i++) {
        if (strcmp(key, keys[i].key) != 0)
            continue;
        if (keys[i].u32)
            *keys[i].u32 = (uint32_t)number(s, &text);
        else
            *keys[i].ns = seconds(s, &text);
        return;
    }
    if (strcmp(key, "mtu") == 0)
        s->net_opts.mtu = (uint16_t)number(s, &text);
    else if (strcmp(key, "our_isn") == 0) {
        s->us_isn = (uint32_t)number(s, &text);
        s->us_isn_wanted = true;
    } else if (strcmp(key, "ports") == 0) {
        s->tcp_opts.port_lo = (uint16_t)number(s, &text);
        s->tcp_opts.port_hi = (uint16_t)number(s, &text);
    } else
        script_fail(s, "unknown option '%s'", key);
}

/* --- flows --- */

struct script_conn *script_conn_of(struct script *s, uint16_t peer_port)
{
    for (unsigned i = 0; i < SCRIPT_CONNS; i++)
        if (s->conns[i].flow.peer_port == peer_port)
            return &s->conns[i];
    return NULL;
}

void script_conn_reset(struct script *s, struct script_conn *c)
{
    uint16_t us_port = c->flow.us_port, peer_port = c->flow.peer_port;
    c->flow = (struct script_flow){.peer_port = peer_port, .us_port = us_port};
    c->flow.peer_isn = s->peer_isn;
    c->written = c->read = 0;
}

static void cmd_conn(struct script *s, char *text)
{
    uint64_t i = number(s, &text);
    if (i >= SCRIPT_CONNS)
        script_fail(s, "flows are 0 to %d", SCRIPT_CONNS - 1);
    uint16_t us_port = s->conn->flow.us_port;
    s->conn = &s->conns[i];
    if (s->conn->flow.peer_port)
        return;
    s->conn->flow.peer_port = (uint16_t)(PEER_PORT_BASE + i);
    s->conn->flow.us_port = us_port;
    script_conn_reset(s, s->conn);
}

static void cmd_flow(struct script *s, char *text)
{
    if (strcmp(word(&text), "new") != 0)
        script_fail(s, "only 'flow new'");
    script_conn_reset(s, s->conn);
}

static void cmd_peer_isn(struct script *s, char *text)
{
    s->peer_isn = (uint32_t)number(s, &text);
    s->conn->flow.peer_isn = s->peer_isn;
}

/* --- streams --- */

static void on_accept(void *ctx, struct stream *st)
{
    struct script *s = ctx;
    if (s->naccepted == SCRIPT_CONNS)
        stream_abort(st);
    else
        s->accepted[s->naccepted++] = st;
}

static void cmd_listen(struct script *s, char *text)
{
    uint16_t port = (uint16_t)number(s, &text);
    const struct tcp_listener_opts o = {
        .port = port, .backlog = s->backlog, .on_accept = on_accept, .ctx = s};
    if (s->nlisteners == SCRIPT_LISTEN)
        script_fail(s, "too many listeners");
    int err = tcp_listen(s->rig.tcp, &o, &s->listeners[s->nlisteners]);
    check_result(s, &text, err, 0);
    if (!err)
        s->nlisteners++;
    s->conn->flow.us_port = port;
}

static void cmd_unlisten(struct script *s, char *text)
{
    if (s->nlisteners == 0)
        script_fail(s, "nothing listens");
    tcp_listener_free(s->rig.tcp, s->listeners[--s->nlisteners]);
}

static void cmd_accept(struct script *s, char *text)
{
    for (unsigned i = 0; i < s->naccepted; i++) {
        struct stream_info info;
        stream_get_info(s->accepted[i], &info);
        if (info.peer_port != s->conn->flow.peer_port)
            continue;
        s->conn->stream = s->accepted[i];
        memmove(s->accepted + i, s->accepted + i + 1, (--s->naccepted - i) * sizeof *s->accepted);
        return;
    }
    script_fail(s, "no connection of this flow waits to be accepted");
}

static void cmd_connect(struct script *s, char *text)
{
    if (isdigit((unsigned char)text[strspn(text, " \t")]))
        s->conn->flow.peer_port = (uint16_t)number(s, &text);
    s->conn->flow.us_port = 0;
    script_conn_reset(s, s->conn);
    const struct tcp_connect_opts o = {
        .dst = RIG_PEER, .dst_port = s->conn->flow.peer_port, .task = &s->conn->task};
    struct stream *st = NULL;
    int err = tcp_connect(s->rig.tcp, &o, &st);
    check_result(s, &text, err, 0);
    s->conn->stream = st;
}

/* Bytes of our stream from relative number `seq` on, in an mbuf of their own. */
static bool push_chunk(struct script *s, struct rope *r, uint32_t seq, uint32_t len)
{
    struct rte_mbuf *m = rope_mbuf_new(&s->rig.ropes);
    uint8_t *p = m ? (uint8_t *)rte_pktmbuf_append(m, (uint16_t)len) : NULL;
    for (uint32_t i = 0; p && i < len; i++)
        p[i] = script_byte(true, seq + i);
    if (p && rope_push_mbuf(&s->rig.ropes, r, m, m->data_off, len) == 0)
        return true;
    rte_pktmbuf_free(m);
    return false;
}

static void cmd_write(struct script *s, char *text)
{
    struct stream *st = stream_of(s);
    uint64_t n = number(s, &text);
    struct rope r = {0};
    for (uint64_t i = 0; i < n;) {
        uint32_t k = n - i < s->chunk ? (uint32_t)(n - i) : s->chunk;
        if (!push_chunk(s, &r, s->conn->written + 1 + (uint32_t)i, k)) {
            rope_clear(&s->rig.ropes, &r);
            script_fail(s, "no mbufs for the bytes to write");
        }
        i += k;
    }
    ssize_t done = stream_write(st, &s->conn->task, &r);
    if (done > 0)
        s->conn->written += (uint32_t)done;
    rope_clear(&s->rig.ropes, &r);
    check_result(s, &text, done, (int64_t)n);
}

static ssize_t read_some(struct script *s, uint64_t max)
{
    struct rope r = {0};
    ssize_t n = stream_read(stream_of(s), &s->conn->task, &r, max);
    uint8_t *bytes = malloc(r.len + 1);
    rope_copy_out(&r, 0, bytes, r.len);
    bool same = n <= 0 || (uint64_t)n == r.len;
    uint32_t i = 0;
    for (; i < r.len && bytes[i] == script_byte(false, s->conn->read + 1 + i); i++)
        ;
    bool good = i == r.len;
    free(bytes);
    s->conn->read += (uint32_t)r.len;
    rope_clear(&s->rig.ropes, &r);
    if (!same)
        script_fail(s, "read says %zd and moved another number of bytes", n);
    if (!good)
        script_fail(s, "wrong byte read at sequence number %u",
                    s->conn->read - (uint32_t)r.len + 1 + i);
    return n;
}

static void cmd_read(struct script *s, char *text)
{
    uint64_t n = number(s, &text);
    check_result(s, &text, read_some(s, n), (int64_t)n);
}

static void cmd_shutdown(struct script *s, char *text)
{
    check_result(s, &text, stream_shutdown(stream_of(s)), 0);
}

static void cmd_close(struct script *s, char *text)
{
    stream_close(stream_of(s));
    s->conn->stream = NULL;
}

static void cmd_abort(struct script *s, char *text)
{
    stream_abort(stream_of(s));
    s->conn->stream = NULL;
}

/* --- expectations --- */

static void equal(struct script *s, const char *what, uint64_t is, uint64_t want)
{
    if (is != want)
        script_fail(s, "%s is %llu, expected %llu", what, (unsigned long long)is,
                    (unsigned long long)want);
}

static uint64_t since(const uint64_t *now, uint64_t *then)
{
    uint64_t d = *now - *then;
    *then = *now;
    return d;
}

static void expect_drop(struct script *s, char *text)
{
    const char *name = word(&text);
    uint64_t want = number(s, &text);
    for (unsigned d = 0; d < TCP_DROP_COUNT; d++)
        if (strcmp(tcp_drop_name(d), name) == 0) {
            equal(s, name, since(&tcp_stats(s->rig.tcp)->drops[d], &s->tcp_drops[d]), want);
            return;
        }
    for (unsigned d = 0; d < NET_DROP_COUNT; d++)
        if (strcmp(net_drop_name(d), name) == 0) {
            equal(s, name, since(&net_stats(s->rig.net.net)->drops[d], &s->net_drops[d]), want);
            return;
        }
    script_fail(s, "'%s' is no drop reason", name);
}

static void expect_stat(struct script *s, char *text)
{
#define STAT(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct tcp_stats, name)                                                    \
    }
    static const struct {
        const char *name;
        size_t at;
    } stats[] = {
        STAT(segs_in),
        STAT(segs_out),
        STAT(bytes_in),
        STAT(bytes_out),
        STAT(accepted),
        STAT(connected),
        STAT(refused),
        STAT(reset_in),
        STAT(reset_out),
        STAT(timeouts),
        STAT(retransmits),
        STAT(fast_retransmits),
        STAT(rto),
        STAT(keepalives),
        STAT(zero_window_probes),
        STAT(dup_acks_in),
        STAT(ooo_in),
        STAT(challenge_acks),
        STAT(listen_overflow),
    };
#undef STAT
    const char *name = word(&text);
    uint64_t want = number(s, &text);
    for (unsigned i = 0; i < RTE_DIM(stats); i++) {
        if (strcmp(stats[i].name, name) != 0)
            continue;
        const uint64_t *now = (const uint64_t *)((const char *)tcp_stats(s->rig.tcp) + stats[i].at);
        equal(s, name, since(now, (uint64_t *)((char *)&s->stats + stats[i].at)), want);
        return;
    }
    script_fail(s, "'%s' is no counter", name);
}

static void expect_status(struct script *s, int want)
{
    char is[32], wanted[32];
    int status = stream_status(stream_of(s));
    if (status != want)
        script_fail(s, "status is %s, expected %s", name_of(status, is, sizeof is),
                    name_of(want, wanted, sizeof wanted));
}

static void cmd_expect(struct script *s, char *text)
{
    const char *what = word(&text);
    const struct tcp_stats *st = tcp_stats(s->rig.tcp);
    if (strcmp(what, "drop") == 0)
        expect_drop(s, text);
    else if (strcmp(what, "stat") == 0)
        expect_stat(s, text);
    else if (strcmp(what, "error") == 0)
        expect_status(s, -errno_of(s, word(&text)));
    else if (strcmp(what, "connected") == 0)
        expect_status(s, 0);
    else if (strcmp(what, "connecting") == 0)
        expect_status(s, -EAGAIN);
    else if (strcmp(what, "read") == 0)
        check_result(s, &text, read_some(s, UINT32_MAX), 0);
    else if (strcmp(what, "eof") == 0)
        equal(s, "at end", stream_at_eof(stream_of(s)), 1);
    else if (strcmp(what, "avail") == 0)
        equal(s, "readable", stream_read_avail(stream_of(s)), number(s, &text));
    else if (strcmp(what, "space") == 0)
        equal(s, "room to write", stream_write_space(stream_of(s)), number(s, &text));
    else if (strcmp(what, "conns") == 0)
        equal(s, "connections", st->conns, number(s, &text));
    else if (strcmp(what, "half_open") == 0)
        equal(s, "half-open connections", st->half_open, number(s, &text));
    else if (strcmp(what, "time_wait") == 0)
        equal(s, "connections in TIME_WAIT", st->time_wait, number(s, &text));
    else if (strcmp(what, "held") == 0)
        equal(s, "held mbufs", st->mbufs_held, number(s, &text));
    else if (strcmp(what, "held_below") == 0) {
        uint64_t max = number(s, &text);
        if (st->mbufs_held >= max)
            script_fail(s, "%llu mbufs held, expected fewer than %llu",
                        (unsigned long long)st->mbufs_held, (unsigned long long)max);
    } else
        script_fail(s, "nothing known to expect: '%s'", what);
}

/* --- the rest --- */

static void cmd_silence(struct script *s, char *text)
{
    script_no_output(s);
    script_run_until(s, tcp_rig_now(&s->rig) + seconds(s, &text), true);
    script_no_output(s);
    s->base_at = tcp_rig_now(&s->rig);
}

static void forget_outs(struct script *s)
{
    for (unsigned i = 0; i < s->nouts; i++)
        rte_pktmbuf_free(s->outs[i].m);
    s->nouts = 0;
}

static void cmd_ignore(struct script *s, char *text)
{
    uint64_t end = tcp_rig_now(&s->rig) + seconds(s, &text);
    do {
        script_run_until(s, end, true);
        forget_outs(s);
    } while (tcp_rig_now(&s->rig) < end);
    s->base_at = end;
}

static void cmd_arp(struct script *s, char *text)
{
    s->arp_auto = strcmp(word(&text), "off") != 0;
}

static void release_mbufs(struct script *s)
{
    for (unsigned i = 0; i < s->nheld; i++)
        rte_pktmbuf_free(s->held[i]);
    free(s->held);
    s->held = NULL;
    s->nheld = 0;
}

static void cmd_mbufs(struct script *s, char *text)
{
    const char *what = word(&text);
    release_mbufs(s);
    if (strcmp(what, "leave") != 0)
        return;
    uint64_t leave = number(s, &text);
    unsigned avail = rte_mempool_avail_count(s->rig.net.pool);
    s->held = calloc(avail + 1, sizeof *s->held);
    while (avail > leave && (s->held[s->nheld] = rte_pktmbuf_alloc(s->rig.net.pool))) {
        s->nheld++;
        avail--;
    }
}

void script_app_end(struct script *s)
{
    forget_outs(s);
    release_mbufs(s);
    for (unsigned i = 0; i < SCRIPT_CONNS; i++)
        if (s->conns[i].stream)
            stream_abort(s->conns[i].stream);
    for (unsigned i = 0; i < s->naccepted; i++)
        stream_abort(s->accepted[i]);
    tcp_rig_settle(&s->rig);
}

void script_command(struct script *s, char *text)
{
    static const struct {
        const char *name;
        void (*run)(struct script *s, char *text);
        bool before_start, sends;
    } commands[] = {
        {"set", cmd_set, true, false},           {"peer_isn", cmd_peer_isn, true, false},
        {"conn", cmd_conn, true, false},         {"flow", cmd_flow, true, false},
        {"arp", cmd_arp, true, false},           {"listen", cmd_listen, false, false},
        {"unlisten", cmd_unlisten, false, true}, {"accept", cmd_accept, false, false},
        {"connect", cmd_connect, false, true},   {"write", cmd_write, false, true},
        {"read", cmd_read, false, true},         {"shutdown", cmd_shutdown, false, true},
        {"close", cmd_close, false, true},       {"abort", cmd_abort, false, true},
        {"expect", cmd_expect, false, false},    {"silence", cmd_silence, false, false},
        {"ignore", cmd_ignore, false, false},    {"mbufs", cmd_mbufs, false, false},
    };
    char *name = word(&text);
    for (unsigned i = 0; i < RTE_DIM(commands); i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (!commands[i].before_start)
            script_start(s);
        if (s->started)
            fprintf(s->log, "%11.6f . %s %s\n", (double)(tcp_rig_now(&s->rig) - s->start_at) / 1e9,
                    name, text);
        commands[i].run(s, text);
        if (commands[i].sends)
            script_settle(s);
        return;
    }
    script_fail(s, "unknown command '%s'", name);
}
