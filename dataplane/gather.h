/* How long an adaptive core without work lets frames gather before it looks again: interrupt
 * moderation for a core that polls.
 *
 * Frames taken together share one kick of the driver, warm caches and one wake-up of who receives
 * them. But where the peers wait for our answers before they send more, waiting longer just slows
 * all down. Which of the two it is shows in the rate alone. So now and then a short stretch runs
 * with the other time, and its rate is compared with that of the stretches before and after: the
 * long time stays as long as it costs no frames.
 *
 * Thread: the core's own; a pure state machine.
 */
#ifndef MILLRACE_DATAPLANE_GATHER_H
#define MILLRACE_DATAPLANE_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#define GATHER_SHORT_NS     15000u
#define GATHER_LONG_NS      50000u
#define GATHER_STRETCH_NS   8000000u
#define GATHER_CYCLE        8  /* stretches, of which the last but one is the trial */
#define GATHER_CYCLE_CLEAR  32 /* when the last trials were clearly bad */
#define GATHER_CLEAR_PERMIL 850
#define GATHER_MIN_FRAMES   64 /* in a stretch: with fewer there is nothing to gather */
#define GATHER_KEEP_PERMIL  950

struct gather {
    bool is_long; /* the choice */
    bool trial_;  /* this stretch runs with the other */
    uint8_t stretch_;
    uint16_t permil_; /* rate with the long time over that with the short, averaged */
    uint32_t frames_; /* in this stretch */
    uint64_t from_;
    uint64_t before_, tried_; /* frames/s of the stretches to compare */
};

static inline void gather_init(struct gather *g)
{
    *g = (struct gather){.permil_ = 1000};
}

/* The time to wait now, ns. */
static inline uint32_t gather_ns(const struct gather *g)
{
    return g->is_long != g->trial_ ? GATHER_LONG_NS : GATHER_SHORT_NS;
}

/* A stretch has ended: `ns` is its length. */
void gather_stretch(struct gather *g, uint64_t ns);

/* After each pass: the frames it took. */
static inline void gather_pass(struct gather *g, uint64_t now, unsigned frames)
{
    g->frames_ += frames;
    if (now - g->from_ < GATHER_STRETCH_NS)
        return;
    gather_stretch(g, now - g->from_);
    g->from_ = now;
    g->frames_ = 0;
}

#endif
