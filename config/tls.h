/* TLS of a listener, as configured. Part of snapshot.h. */
#ifndef MILLRACE_CONFIG_TLS_H
#define MILLRACE_CONFIG_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Paths of PEM files; `cert` holds the chain, leaf first. */
struct config_certificate {
    const char *cert, *key;
    const char *ocsp; /* DER, as `openssl ocsp -respout` writes it; NULL: nothing is stapled */
};

enum config_tls_version { CONFIG_TLS_1_2, CONFIG_TLS_1_3 };
enum config_client_auth { CONFIG_AUTH_NONE, CONFIG_AUTH_OPTIONAL, CONFIG_AUTH_REQUIRED };
/* When as many handshakes wait as may. */
enum config_tls_overload { CONFIG_OVERLOAD_WAIT, CONFIG_OVERLOAD_REFUSE };

struct tls_context; /* dataplane/tls/context.h */

struct config_tls {
    struct config_certificate *certificates; /* the first is the default */
    size_t ncertificates;
    enum config_tls_version min_version;
    const char *ciphers, *ciphersuites, *curves; /* as OpenSSL writes them, ":" between */
    const char **alpn;                           /* of a tunnel; an HTTP listener offers http/1.1 */
    size_t nalpn;
    bool tickets;
    const char *ticket_keys; /* file; NULL: keys of this process alone */
    uint64_t ticket_rotation;
    enum config_client_auth client_auth;
    const char *client_ca, *client_crl; /* PEM files */
    const char *client_header;          /* tells the origin the subject; NULL: none */
    uint64_t handshake_timeout;
    enum config_tls_overload overload;
    struct tls_context *context; /* set by who publishes */
};

/* What is wrong with what the files hold, or with a list of names that OpenSSL reads. */
struct config_tls_fault {
    const char *key; /* of config_tls, or of its certificate: "cert", "key", "client_auth.ca" … */
    size_t certificate; /* SIZE_MAX: not of one */
    char text[256];
};

/* Looks into the files. config/ itself knows no OpenSSL: who loads a configuration says how. */
struct config_tls_checker {
    /* False: *ret_fault says why. May block. */
    bool (*check)(void *ctx, const struct config_tls *tls, struct config_tls_fault *ret_fault);
    void *ctx;
};

#endif
