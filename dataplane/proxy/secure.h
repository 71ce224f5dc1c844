/* Handshakes of a listener's clients, until they are clients: a task of its own kind for each.
 * Private to proxy/. */
#ifndef MILLRACE_DATAPLANE_PROXY_SECURE_H
#define MILLRACE_DATAPLANE_PROXY_SECURE_H

#include "dataplane/proxy/conn.h"

/* The listener's clients speak TLS. False: no memory, and the arrival is as it was. */
bool secure_start(struct listener *l, const struct arrival *a);
size_t secure_size(void);

#endif
