/* What the files of a configuration hold: read whole, taken apart from memory. Private to tls/.
 *
 * Thread: control's; blocks.
 */
#ifndef MILLRACE_DATAPLANE_TLS_PEM_H
#define MILLRACE_DATAPLANE_TLS_PEM_H

#include <stddef.h>

#include <openssl/ssl.h>

#include "config/snapshot.h"

#define PEM_FILE_MAX (4u << 20)

struct blob {
    char *bytes; /* NULL: there is no such file */
    size_t len;
};

/* 0, or -EINVAL with the text of the fault. */
int blob_read(const char *path, struct blob *ret_blob, struct config_tls_fault *fault);
/* Wiped: it may have been a key. */
void blob_free(struct blob *b);

/* Each one more reference for the caller; NULL or less than 1 with the text of the fault. */
STACK_OF(X509) * pem_chain(const struct blob *b, struct config_tls_fault *fault);
EVP_PKEY *pem_key(const struct blob *b, struct config_tls_fault *fault);
int pem_crls(const struct blob *b, X509_STORE *to, struct config_tls_fault *fault);

__attribute__((format(printf, 2, 3))) void fault_say(struct config_tls_fault *f, const char *format,
                                                     ...);
/* What OpenSSL has to say about the last call; empties its queue. */
const char *fault_reason(void);

#endif
