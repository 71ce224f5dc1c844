/* What the files of the script reader share. */
#ifndef MILLRACE_TESTS_KIT_SCRIPT_PRIV_H
#define MILLRACE_TESTS_KIT_SCRIPT_PRIV_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/task.h"
#include "tests/kit/script_segment.h"
#include "tests/kit/tcp_rig.h"

#define SCRIPT_CONNS  64
#define SCRIPT_LISTEN 8

struct script_conn {
    struct script_flow flow;
    struct stream *stream;
    struct task task;       /* registered with the stream, never spawned: waking it does nothing */
    uint32_t written, read; /* bytes */
};

struct script_out {
    uint64_t at;
    struct rte_mbuf *m;
};

struct script {
    const char *path;
    unsigned line; /* being run */
    char text[1024];
    FILE *log; /* transcript */
    jmp_buf failed;
    char error[1024];

    bool started;
    bool arp_auto;
    struct net_rig_opts net_opts;
    struct tcp_opts tcp_opts;
    uint32_t backlog;
    uint32_t chunk; /* bytes an mbuf that "write" makes */
    uint64_t tolerance_ns;
    uint32_t peer_isn, us_isn;
    bool us_isn_wanted;         /* flow 0 as a server, its SYN at time 0 */
    uint64_t start_at, base_at; /* virtual times: of the script, of the last event */
    struct tcp_rig rig;

    struct script_conn conns[SCRIPT_CONNS];
    struct script_conn *conn; /* current */
    struct stream *accepted[SCRIPT_CONNS];
    unsigned naccepted;
    struct tcp_listener *listeners[SCRIPT_LISTEN];
    unsigned nlisteners;
    struct rte_mbuf **held; /* taken from the pool by "mbufs leave" */
    unsigned nheld;

    struct rte_mempool *frames;  /* holds outs[], apart from the stack's pool */
    struct script_out outs[512]; /* sent by the stack, not yet expected */
    unsigned nouts;

    /* Counters as they were when last asked for. */
    uint64_t tcp_drops[TCP_DROP_COUNT], net_drops[NET_DROP_COUNT];
    struct tcp_stats stats;
};

/* Ends the script. Doesn't return. */
void script_fail(struct script *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));

void script_start(struct script *s); /* idempotent */

/* Clock. Collects what is sent into outs[]. */
void script_settle(struct script *s);
void script_run_until(struct script *s, uint64_t at, bool stop_at_output);
/* Fails when something has been sent that no line has expected. */
void script_no_output(struct script *s);

/* script_wire.c. `when` says when a packet must come (absolute). */
struct script_when {
    uint64_t earliest, latest;
};
void script_inject(struct script *s, const char *text, bool more_follow);
void script_expect(struct script *s, const char *text, const struct script_when *when);

/* script_app.c: one command; the words of the grammar in script.h. */
void script_command(struct script *s, char *text);
/* Ends the application's handles and gives back what is held. */
void script_app_end(struct script *s);

struct script_conn *script_conn_of(struct script *s, uint16_t peer_port);
void script_conn_reset(struct script *s, struct script_conn *c);

#endif
