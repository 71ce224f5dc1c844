/* Which endpoints of an upstream are used now. Private to upstream/. */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_USABLE_H
#define MILLRACE_DATAPLANE_UPSTREAM_USABLE_H

#include "dataplane/upstream/upstream.h"

/* After endpoints, weights or what is known of them have changed: fills the balancer's set anew.
 * Those that left it lose their idle connections, and who waits for one of theirs chooses again. */
void upstream_refresh(struct upstream *up);

#endif
