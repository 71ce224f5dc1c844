/* The states of a connection and the one gate between them. */
#ifndef MILLRACE_DATAPLANE_TCP_STATE_H
#define MILLRACE_DATAPLANE_TCP_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum tcp_state {
#define STATE(name, edges) TCP_##name,
#include "dataplane/tcp/state.def"
#undef STATE
    TCP_STATE_COUNT
};

const char *tcp_state_name(enum tcp_state s);
bool tcp_state_may(enum tcp_state from, enum tcp_state to);

struct tcb;

/* The only writer of tcb->state; asserts that the edge is legal. */
void tcb_set_state(struct tcb *tcb, enum tcp_state to);

#endif
