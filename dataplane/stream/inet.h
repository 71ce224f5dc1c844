/* An address with a port, of either family. Our own stack speaks IPv4; others tell us of clients
 * who came to them by IPv6 (proxy_header.h).
 *
 * Thread: any; plain values.
 */
#ifndef MILLRACE_DATAPLANE_STREAM_INET_H
#define MILLRACE_DATAPLANE_STREAM_INET_H

#include <stdbool.h>
#include <stdint.h>

#define INET_TEXT 46 /* "ffff:…:255.255.255.255" and its NUL */

struct inet_end {
    uint32_t addr; /* network order; 0 when it is of IPv6 */
    uint16_t port; /* host order */
    bool is_ip6;
    uint8_t ip6[16]; /* undefined when it isn't */
};

/* Without the port: "192.0.2.1", "2001:db8::1". */
void inet_format(char to[INET_TEXT], const struct inet_end *e);

/* From 16 bytes of the wire; ::ffff:192.0.2.1 is the IPv4 address that it stands for. */
struct inet_end inet_from_ip6(const uint8_t bytes[16], uint16_t port);

/* 0.0.0.0 or ::, which is nobody's. */
bool inet_is_nobody(const struct inet_end *e);

/* The address, not the port; the same on every core and host (runtime/hash.h). */
uint64_t inet_hash(const struct inet_end *e);

#endif
