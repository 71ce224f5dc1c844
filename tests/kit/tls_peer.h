/* A TLS client of a test: OpenSSL over a peer of the world. */
#ifndef MILLRACE_TESTS_KIT_TLS_PEER_H
#define MILLRACE_TESTS_KIT_TLS_PEER_H

#include <openssl/ssl.h>

#include "tests/kit/world.h"

struct tls_peer {
    struct world *world;
    struct peer *peer;
    SSL *ssl;
    BIO *in, *out; /* the SSL's */
    size_t fed;    /* of peer->rx */
    char *rx;      /* NUL-terminated */
    size_t rx_len, taken;
    bool drips;   /* one byte a segment */
    bool done;    /* the handshake */
    bool got_end; /* close_notify */
    int error;    /* SSL_get_error() of what failed; 0 */
    int alert;    /* the last one received; -1: none */
};

/* `ctx` may be NULL: a client that takes any certificate. */
struct tls_peer *tls_peer_new(struct world *w, uint16_t port, SSL_CTX *ctx, const char *sni);
void tls_peer_free(struct tls_peer *t);

/* Feeds what has come, drives the handshake, reads, sends. */
void tls_peer_pump(struct tls_peer *t);

/* Until the handshake is over; true if it is done. */
bool tls_peer_handshake(struct tls_peer *t);
void tls_peer_say(struct tls_peer *t, const char *text);
void tls_peer_send(struct tls_peer *t, const void *data, size_t len);
/* Until exactly that has come, not yet taken. */
void tls_peer_expect(struct tls_peer *t, const char *text);
/* Until that is in what has come; all up to its end is taken. */
void tls_peer_expect_through(struct tls_peer *t, const char *text);
void tls_peer_expect_bytes(struct tls_peer *t, size_t n);
/* close_notify, then FIN. */
void tls_peer_expect_end(struct tls_peer *t);
/* The connection is over, whatever was said. */
void tls_peer_expect_over(struct tls_peer *t);

#endif
