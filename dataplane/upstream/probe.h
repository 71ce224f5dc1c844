/* Active probes: a task for each endpoint on the core that probes its upstream. Private to
 * upstream/.
 *
 * A probe opens a connection of its own, asks for what upstream.cfg->health says, and tells the
 * outcome through judge_report(); then it sleeps until the next. It reads the settings anew each
 * time, so a reload changes what it does, not what is known.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_PROBE_H
#define MILLRACE_DATAPLANE_UPSTREAM_PROBE_H

#include "dataplane/upstream/upstream.h"

#define PROBE_SCRATCH 16384 /* of an answer, that much is looked at: head and body each */

size_t probe_size(void);

/* Is it this core that probes the upstream? */
bool probe_is_ours(const struct upstream *up);

/* Starts or goes on, or ends, as the settings say. -ENOMEM: not probed. */
int probe_prepare(struct endpoint *ep);
/* Ends it. */
void probe_stop(struct endpoint *ep);

/* False: no probe has ended yet. */
bool probe_last(const struct probe *p, int32_t *ret_streak, uint8_t *ret_result);

#endif
