/* What a listener's handshakes need: certificates by name, versions, ciphers, tickets, and how
 * clients show who they are.
 *
 * A context is built by control from a listener's configuration and the files that it names, and is
 * immutable from then on; a change of a file makes a new context. It holds one set of SSL_CTX for
 * each core, so that cores don't write each other's reference counts; the blocking pool's threads
 * use the set of the core whose handshake they do.
 *
 * May use: stream, OpenSSL. Used by: control (this header and registry.h alone), core, proxy.
 * Thread: tls_context_new() may block: control's. References: any.
 */
#ifndef MILLRACE_DATAPLANE_TLS_CONTEXT_H
#define MILLRACE_DATAPLANE_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"

struct tls_context;
struct tls_tickets; /* tickets.h */

#define TLS_ID 32

struct tls_build {
    const struct config_tls *cfg;
    bool http; /* offers http/1.1 by ALPN */
    unsigned ncores;
    int64_t wall_s; /* seconds since 1970: certificates outside their time are faults … */
    bool any_time;  /* … unless this says so, for a start that must not fail for it */
    struct tls_tickets *tickets; /* the context takes a reference; NULL: none are given */
};

/* 0; -EINVAL and what is wrong; -ENOMEM. The one reference is the caller's. */
int tls_context_new(const struct tls_build *b, struct tls_context **ret_context,
                    struct config_tls_fault *ret_fault);
void tls_context_get(struct tls_context *c);
void tls_context_put(struct tls_context *c); /* the last one wipes the keys */

/* ret_words: the same for the same configuration, whatever its files hold; ret_id: for the same
 * contents of the files, too. 0, or -EINVAL when a file can't be read: ret_words is set then. */
int tls_context_identify(const struct config_tls *cfg, bool http, uint8_t ret_words[TLS_ID],
                         uint8_t ret_id[TLS_ID], struct config_tls_fault *ret_fault);

/* For a configuration that isn't published (yet): are its files in order? False: *ret_fault. */
bool tls_context_check(const struct config_tls *cfg, bool any_time, int64_t wall_s,
                       struct config_tls_fault *ret_fault);

/* A certificate of a context, for what is exported about it. */
struct tls_cert_info {
    const char *file;  /* the context's */
    const char *name;  /* its first one; the context's; "": none */
    const char *type;  /* "EC", "RSA", "ED25519" …; a literal */
    int64_t not_after; /* seconds since 1970, of whatever in its chain ends first */
};
size_t tls_context_certs(const struct tls_context *c);
void tls_context_cert(const struct tls_context *c, size_t i, struct tls_cert_info *ret_info);

/* OpenSSL's own set-up, before anything else here: reads its configuration, seeds. Control's
 * thread, once. */
int tls_library_init(void);

/* On a core's own thread, before its first session: what OpenSSL keeps for each thread, generators
 * among it, takes a lock that all threads share. */
void tls_thread_init(void);

#endif
