/* Keys, certificates and revocation lists in files of a directory of the test's own. */
#ifndef MILLRACE_TESTS_KIT_PKI_H
#define MILLRACE_TESTS_KIT_PKI_H

#include <stdbool.h>
#include <stdint.h>

#include <openssl/ssl.h>

struct pki {
    char dir[64];
};

enum pki_kind { PKI_EC, PKI_RSA };

struct pki_cert {
    const char *file;  /* <dir>/<file>.pem and .key */
    const char *names; /* "DNS:a.example,DNS:*.b.example"; NULL: the common name alone */
    const char *cn;
    enum pki_kind kind;
    const char *issuer; /* the file of another; NULL: by itself */
    bool is_ca;
    int64_t from, to; /* seconds since 1970; 0: 1980 and 2090 */
    long serial;      /* 0: any */
};

void pki_init(struct pki *p);
/* Removes the directory. */
void pki_fini(struct pki *p);

void pki_make(const struct pki *p, const struct pki_cert *c);
/* <dir>/<file>.crl of `issuer`, with one serial number on it (0: none). */
void pki_revoke(const struct pki *p, const char *file, const char *issuer, long serial);
/* "<dir>/<file>"; good for eight calls. */
const char *pki_path(const struct pki *p, const char *file);
void pki_write(const struct pki *p, const char *file, const void *bytes, size_t len);
void pki_remove(const struct pki *p, const char *file);

#endif
