/* Connection, and the fields that need its options (RFC 9110 §7.6.1). Internal to h1/. */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_CONNECTION_H
#define MILLRACE_DATAPLANE_HTTP_H1_CONNECTION_H

#include "dataplane/http/message.h"

/* From the fields of `head`: keep_alive, upgrade, te_trailers and the nominated flags. False when a
 * Connection field is malformed or names too many options. */
bool h1_connection_apply(struct http_head *head);

#endif
