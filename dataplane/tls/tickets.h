/* Keys of session tickets (RFC 5077, RFC 8446 §4.6.1).
 *
 * The newest key seals; the older ones open what they have sealed, and the client gets a new ticket
 * then. Keys are made here and rotated by control, or come from a file that a fleet shares.
 *
 * Threads: control makes, rotates and replaces; handshakes on any thread read, without a lock. Keys
 * that were replaced are kept for a few changes more, since a handshake may be at them.
 */
#ifndef MILLRACE_DATAPLANE_TLS_TICKETS_H
#define MILLRACE_DATAPLANE_TLS_TICKETS_H

#include <stddef.h>
#include <stdint.h>

#define TLS_TICKET_NAME 16
#define TLS_TICKET_KEY  80 /* bytes of a key in a file: name, AES-256, HMAC-SHA-256 */
#define TLS_TICKET_KEYS 4  /* in use at once: one seals, all open */

struct tls_ticket_key {
    uint8_t name[TLS_TICKET_NAME];
    uint8_t aes[32], hmac[32];
};
_Static_assert(sizeof(struct tls_ticket_key) == TLS_TICKET_KEY, "as in a file");

struct tls_tickets;

/* With one random key. NULL: no memory, or no random numbers. */
struct tls_tickets *tls_tickets_new(void);
void tls_tickets_get(struct tls_tickets *t);
void tls_tickets_put(struct tls_tickets *t);

/* A new random key seals from now on. 0, -ENOMEM or -EIO. */
int tls_tickets_rotate(struct tls_tickets *t);

/* These instead, the first one seals. 0 or -ENOMEM. */
int tls_tickets_replace(struct tls_tickets *t, const struct tls_ticket_key *keys, size_t n);

/* From a file's text: base64 of TLS_TICKET_KEY bytes a line, at most TLS_TICKET_KEYS. How many, or
 * -EINVAL. */
int tls_tickets_parse(const char *text, size_t len, struct tls_ticket_key ret[TLS_TICKET_KEYS]);

/* For SSL_CTX_set_tlsext_ticket_key_evp_cb(): the callback finds the keys by tls_tickets_bind(). */
struct ssl_ctx_st;
void tls_tickets_bind(struct tls_tickets *t, struct ssl_ctx_st *ctx);

#endif
