/* When a listener that is gone from the configuration has no connection left, no core needs it (and
 * the upstreams that only it uses) any more. */
#ifndef MILLRACE_CONTROL_DRAINING_H
#define MILLRACE_CONTROL_DRAINING_H

#include "control/publish.h"
#include "control/status.h"

/* Marks those that are empty on every core. Says nothing when a core hasn't answered, or had not
 * taken the present version when it did. */
void draining_look(struct publish *p, const struct status_view *v);

#endif
