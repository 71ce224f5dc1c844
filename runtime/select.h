/* Select: the first of several futures to be ready.
 *
 * Order, per poll: futures are polled one after the other and the first that is ready wins; those
 * behind it are not polled in that poll, so nothing of theirs is lost or taken.
 *   biased   from index 0: the lowest index wins. Put what must not starve (cancellation, a
 *            deadline) first.
 *   fair     from behind the last winner, wrapping round: one that is always ready wins at least
 *            every n-th round. No randomness: a seed replays.
 *
 * Losers are left as they are: parked, with their place in every queue, and pollable. The caller
 * goes on with them (select_next(), or polling one by its name), or drops them all by dropping the
 * select.
 *
 * Cancel safety: a future that loses and is then dropped must be cancel safe, or what it has got so
 * far is lost; its header says which it is. Going on with the losers needs no cancel safety.
 *
 * Thread: the core of the task.
 */
#ifndef MILLRACE_RUNTIME_SELECT_H
#define MILLRACE_RUNTIME_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"

#define SELECT_MAX 8

/* status: the winner's; -ENOENT when no future was left (`winner` is then n). Dropping it drops all
 * of `of`, winners too. Cancel safe as far as every one of `of` is. */
struct select {
    struct future f;
    struct future *const *of_;
    uint8_t n_;
    uint8_t first_; /* where the next poll begins */
    bool is_fair_;
    uint8_t winner; /* index, once ready */
};

/* `of` is borrowed until the end: n <= SELECT_MAX distinct futures that this task alone polls.
 * Finished ones are passed over. */
void select_init_biased(struct select *s, struct future *const *of, unsigned n);
void select_init_fair(struct select *s, struct future *const *of, unsigned n);

/* After it was ready: makes it pollable for the next round, over those that aren't finished. One
 * that the caller has initialised anew takes part again. */
void select_next(struct select *s);

#endif
