/* The listeners of one core: which are open, which drain, and how a reload changes that.
 *
 * One that keeps its name, address and kind through a reload is untouched. One that goes stops
 * accepting and keeps its connections. An address that passes from one listener to another is never
 * closed in between: handshakes under way end at the new one.
 *
 * Private to proxy/.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_LISTENER_H
#define MILLRACE_DATAPLANE_PROXY_LISTENER_H

#include "dataplane/proxy/conn.h"

/* Everything that can fail of listeners_commit(): objects for what is new in `s`, and open sockets.
 * 0, or -ENOMEM with nothing changed. Ends in a commit or a rollback. */
int listeners_prepare(struct proxy *p, const struct snapshot *s);
void listeners_rollback(struct proxy *p);
void listeners_commit(struct proxy *p, const struct snapshot *s);

/* For the end of the process: nothing more is accepted, idle connections are woken to see it. */
void listeners_drain(struct proxy *p);

/* Whose client is known now is served, or turned away by the listener's limits (duties.h): the
 * arrival is used up. */
void listener_admit(struct listener *l, struct arrival *a);
/* A connection that may come in, plain or opened, to whoever serves it. False: no memory, and the
 * arrival is as it was. */
bool listener_serve(struct listener *l, const struct arrival *a);

void listener_abort_all(struct listener *l);
void listener_free(struct listener *l);

#endif
