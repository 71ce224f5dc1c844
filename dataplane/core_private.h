/* What the files of one core share; used by core*.c only. */
#ifndef MILLRACE_DATAPLANE_CORE_PRIVATE_H
#define MILLRACE_DATAPLANE_CORE_PRIVATE_H

#include <poll.h>

#include "dataplane/core.h"
#include "dataplane/core_io.h"
#include "dataplane/gather.h"
#include "dataplane/proxy/proxy.h"
#include "dataplane/stream/rope.h"
#include "dataplane/tls/tls.h"
#include "runtime/hist.h"
#include "runtime/sched.h"

struct core {
    unsigned index, cpu;
    bool busy_poll;
    bool stopping;
    bool drained; /* counted in shared->drained */
    struct core_shared *shared;
    struct sched sched;
    struct mailbox mailbox;
    struct rope_pool ropes;
    struct net *net;
    struct tcp *tcp;
    struct tls *tls;
    struct proxy *proxy;
    struct access_ring *log;
    struct core_io io;
    const struct snapshot *snapshot;
    struct core_msg *watch;                             /* CORE_MSG_WATCH, until there is news */
    bool news;                                          /* about endpoints */
    uint64_t look_again_tsc;                            /* not before; 0 on a virtual clock */
    bool received_again;                                /* in this pass */
    uint64_t apply_again;                               /* after a snapshot could not be adopted */
    uint64_t drain_end;                                 /* 0: not draining */
    struct pollfd idle[1 + NET_MAX_IFS * IO_SLEEP_FDS]; /* to sleep on; trap.h knows its address */
    uint32_t tasks_permanent, timers_permanent;         /* what lives before the first packet */
    uint64_t tsc_hz, started_tsc, busy_tsc, busy_passes;
    struct gather gather;
    struct hist pass_ns; /* of passes that did something */
    /* Written by the core (release), read by control (acquire): the snapshot it works by. */
    _Atomic uint64_t acked_version;
    /* Written by the core, read by the watchdog; a count alone, so relaxed. */
    _Atomic uint64_t passes;
};

struct core_io *core_io_of(struct core *c);

/* Fills in everything but what the message carries. */
void core_fill_status(struct core *c, struct core_status *st);

#endif
