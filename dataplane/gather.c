#include "dataplane/gather.h"

/* Too little traffic, or the core slept: what was measured says nothing. */
static void start_over(struct gather *g)
{
    gather_init(g);
}

/* One comparison: the trial against the mean of its neighbours. A quarter of the average. */
static void compare(struct gather *g, uint64_t after)
{
    uint64_t chosen = (g->before_ + after) / 2;
    uint64_t with_long = g->is_long ? chosen : g->tried_;
    uint64_t with_short = g->is_long ? g->tried_ : chosen;
    uint64_t permil = with_long * 1000 / with_short;
    if (permil > 2000)
        permil = 2000;
    g->permil_ = (uint16_t)((3 * g->permil_ + permil) / 4);
    g->is_long = g->permil_ >= GATHER_KEEP_PERMIL;
}

static unsigned cycle(const struct gather *g)
{
    return g->permil_ < GATHER_CLEAR_PERMIL ? GATHER_CYCLE_CLEAR : GATHER_CYCLE;
}

void gather_stretch(struct gather *g, uint64_t ns)
{
    if (g->frames_ < GATHER_MIN_FRAMES || ns > 2 * (uint64_t)GATHER_STRETCH_NS) {
        start_over(g);
        return;
    }
    uint64_t rate = g->frames_ * UINT64_C(1000000000) / ns;
    g->stretch_++;
    if (g->stretch_ == cycle(g) - 2) {
        g->before_ = rate;
        g->trial_ = true;
    } else if (g->trial_) {
        g->tried_ = rate;
        g->trial_ = false;
    } else if (g->stretch_ == cycle(g)) {
        g->stretch_ = 0;
        compare(g, rate);
    }
}
