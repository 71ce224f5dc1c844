/* The inside of a context. Private to tls/. */
#ifndef MILLRACE_DATAPLANE_TLS_CONTEXT_PRIV_H
#define MILLRACE_DATAPLANE_TLS_CONTEXT_PRIV_H

#include <stdatomic.h>

#include <openssl/ssl.h>

#include "dataplane/tls/context.h"
#include "dataplane/tls/pem.h"

#define TLS_NAME_MAX 255

/* A name of a certificate, in lower case; "*.x" as it stands. */
struct tls_name {
    char *text;
    unsigned cert, group;
};

/* Certificates that serve the same names with different kinds of key. */
struct tls_group {
    unsigned certs[4];
    unsigned n;
};

struct tls_cert {
    char *file;
    char *name;
    const char *type;
    int64_t not_after;
    struct blob cert, key, ocsp; /* only while the context is made, but for ocsp */
};

/* One core's. */
struct tls_set {
    struct tls_context *context;
    SSL_CTX **ctx; /* by group; the first is the default */
    X509 **leaves; /* by certificate; borrowed */
};

struct tls_context {
    atomic_uint refs; /* acq_rel at the end, else relaxed */
    struct tls_cert *certs;
    size_t ncerts;
    struct tls_name *names; /* sorted */
    size_t nnames;
    struct tls_group *groups;
    size_t ngroups;
    struct tls_set *sets;
    unsigned nsets;
    struct tls_tickets *tickets; /* a reference; NULL: none are given */
    unsigned char *alpn;         /* as on the wire; NULL: not asked */
    unsigned alpn_len;
};

/* names.c: those of each certificate, and who serves which. 0 or -ENOMEM. */
int names_add(struct tls_context *c, unsigned cert, X509 *leaf);
int names_group(struct tls_context *c);
void names_free(struct tls_context *c);
/* The group for what a client asks for; 0, the default, when nobody has that name. */
unsigned names_find(const struct tls_context *c, const char *name);

/* setup.c: everything of an SSL_CTX but its certificates. 0 or -EINVAL. */
struct tls_files {
    struct blob ca, crl;
};
int setup_ctx(SSL_CTX *ctx, struct tls_set *set, const struct config_tls *cfg,
              const struct tls_files *files, struct config_tls_fault *fault);

#endif
