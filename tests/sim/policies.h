/* The simulator's part about an upstream's policies: clients that ask, and may go away, an upstream
 * of three endpoints that fail in every way, with limits, an adaptive queue, retries, tries and
 * ejection, and reloads that move all of it. What must hold is looked at after every pass. */
#ifndef MILLRACE_TESTS_SIM_POLICIES_H
#define MILLRACE_TESTS_SIM_POLICIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/kit/world.h"

/* Listeners' route and upstreams of it, to be put into the configuration's text. */
#define POLICIES_ROUTE "        - { match: { path_prefix: /tight }, upstream: tight }\n"

struct policies;

/* Draws everything from the seed. */
struct policies *policies_new(uint64_t seed);
void policies_free(struct policies *p);

/* Appends what is drawn now: limits of the upstream before it, then the upstream `tight`. */
void policies_yaml(const struct policies *p, char *out, size_t size);

/* The world has started by that text. */
void policies_start(struct policies *p, struct world *w);

/* An origin's connection of ours has news. False: it isn't ours. */
bool policies_serve(struct policies *p, struct peer *o, uint16_t port);

/* After each pass: goes on with the clients, and checks. */
void policies_step(struct policies *p);

/* What is due outside of world_run(): answers and checks of the slow kind. Returns when to be
 * called again, ns from now. True through ret_reload: draw anew was due, publish policies_yaml().
 */
uint64_t policies_turn(struct policies *p, bool *ret_reload);
void policies_published(struct policies *p);

bool policies_is_done(const struct policies *p);

/* Some time after the last answer. */
void policies_end(struct policies *p);

/* One line, into `out`. */
void policies_tell(const struct policies *p, char *out, size_t size);

/* What doesn't hold, or NULL. */
const char *policies_wrong(const struct policies *p);

#endif
