#include "dataplane/tcp/state.h"

#include <assert.h>

#include "dataplane/tcp/tcb.h"

static const char *const names[] = {
#define STATE(name, edges) #name,
#include "dataplane/tcp/state.def"
#undef STATE
};

#define TO(name) (1u << TCP_##name)
static const uint16_t edges_of[] = {
#define STATE(name, edges) [TCP_##name] = edges,
#include "dataplane/tcp/state.def"
#undef STATE
};
#undef TO

const char *tcp_state_name(enum tcp_state s)
{
    return s < TCP_STATE_COUNT ? names[s] : "?";
}

bool tcp_state_may(enum tcp_state from, enum tcp_state to)
{
    return edges_of[from] & 1u << to;
}

void tcb_set_state(struct tcb *tcb, enum tcp_state to)
{
    assert(tcp_state_may(tcb->state, to));
    tcb->state = to;
}
