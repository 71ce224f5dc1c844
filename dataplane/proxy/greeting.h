/* A connection of a source of PROXY headers, until its header is there: then it goes, with not a
 * byte read behind the header, to whoever serves the listener's clients, of whatever protocol.
 *
 * Private to proxy/.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_GREETING_H
#define MILLRACE_DATAPLANE_PROXY_GREETING_H

#include "dataplane/proxy/conn.h"

size_t greeting_size(void);

/* Does the listener take a header from that peer? */
bool greeting_is_due(const struct listener *l, uint32_t peer_addr);

/* Ends in listener_admit(). False: no memory, and the arrival is as it was. */
bool greeting_start(struct listener *l, const struct arrival *a);

#endif
