/* What the steer program and its loader agree on. Included by BPF code: no libc. */
#ifndef MILLRACE_DATAPLANE_XDP_STEER_MAPS_H
#define MILLRACE_DATAPLANE_XDP_STEER_MAPS_H

#define STEER_MAX_QUEUES 64
#define STEER_MAX_ADDRS  256
#define STEER_PROG_NAME  "millrace_steer"

enum steer_verdict {
    STEER_REDIRECT, /* to our socket */
    STEER_PASS,     /* to the kernel */
    STEER_DROP,     /* ours, on a queue that nobody serves */
    STEER_VERDICTS,
};

#endif
