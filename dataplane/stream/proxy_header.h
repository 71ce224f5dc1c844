/* The PROXY protocol's header, versions 1 and 2 (haproxy.org, proxy-protocol.txt): what a proxy
 * says, before anything else, of the connection that it passes on.
 *
 * Strict. Version 1: single spaces, addresses in their usual notation, ports without leading zeros,
 * CRLF, at most 107 bytes. Version 2: known commands, families and transports only; TLVs are
 * skipped and not looked at. UNKNOWN, LOCAL, addresses of Unix sockets and datagrams, and a client
 * at 0.0.0.0 or :: say nothing of a client: the connection is taken for the sender's own.
 *
 * Thread: any; nothing is kept.
 */
#ifndef MILLRACE_DATAPLANE_STREAM_PROXY_HEADER_H
#define MILLRACE_DATAPLANE_STREAM_PROXY_HEADER_H

#include <stddef.h>

#include "dataplane/stream/inet.h"

#define PROXY_HEADER_SEEN  107 /* bytes at its front that tell all there is to be told */
#define PROXY_HEADER_WRITE 107 /* room for one of ours */

struct proxy_header {
    bool local;                 /* the sender's own connection: no addresses */
    struct inet_end client, to; /* who connected, and to which address of theirs */
};

/* Looks at the first bytes of a connection. > 0: there is a header of that length, to be taken off
 * (all of it may not be here yet). 0: not enough bytes yet. -ENOMSG: something else begins here.
 * -EBADMSG: a header, but a bad one. */
int proxy_header_parse(const void *bytes, size_t len, struct proxy_header *ret_header);

/* `version`: 1 or 2. Returns the length. */
size_t proxy_header_write(unsigned version, const struct proxy_header *h,
                          char to[PROXY_HEADER_WRITE]);

#endif
