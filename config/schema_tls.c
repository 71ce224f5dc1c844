#include "config/schema_tls.h"

#include "config/schema_terms.h"
#include "config/snapshot.h"

static const char *const version_choices[] = {"1.2", "1.3", NULL};
static const char *const auth_choices[] = {"none", "optional", "required", NULL};
static const char *const overload_choices[] = {"wait", "refuse", NULL};

static void cert_identity(const void *base, FILE *f)
{
    const struct config_certificate *c = base;

    fputs(c->cert ? c->cert : "", f);
}

static const struct config_key certificate_keys[] = {
    {"cert", CONFIG_VALUE, &config_path, FIELD(config_certificate, cert), .required = true,
     .example = "/etc/millrace/www.pem",
     .doc = "PEM file: the certificate, then those of its issuers, without the root."},
    {"key", CONFIG_VALUE, &config_path, FIELD(config_certificate, key), .required = true,
     .example = "/etc/millrace/www.key", .doc = "PEM file: its private key, without a passphrase."},
    {"ocsp", CONFIG_VALUE, &config_path, FIELD(config_certificate, ocsp),
     .example = "/etc/millrace/www.ocsp",
     .doc = "DER file: the issuer's OCSP answer, stapled as it is; absent: none is."},
    END,
};
static const struct config_group certificate_group = {
    "certificates", "Who the listener is.", sizeof(struct config_certificate), certificate_keys,
    NULL,           cert_identity};

static const struct config_key ticket_keys[] = {
    {"enabled", CONFIG_VALUE, &config_boolean, FIELD(config_tls, tickets), .initial = "true",
     .doc = "Whether clients get tickets, by which a session is taken up again without a "
            "signature."},
    {"keys", CONFIG_VALUE, &config_path, FIELD(config_tls, ticket_keys),
     .example = "/etc/millrace/tickets",
     .doc = "File with keys, one a line, 80 random bytes in base64: the first seals, all open. For "
            "a fleet that shares them; absent: keys of this process."},
    {"rotation", CONFIG_VALUE, &config_duration, FIELD(config_tls, ticket_rotation),
     .initial = "12h", RANGE(1 * MIN, 24 * 7 * HR),
     .doc = "How often the process's own keys change; three older ones still open tickets. The "
            "shortest one of all listeners counts."},
    END,
};
static const struct config_group ticket_group = {
    "tickets", "Session tickets.", sizeof(struct config_tls), ticket_keys, NULL, NULL};

static const struct config_key auth_keys[] = {
    {"mode", CONFIG_VALUE, &config_choice, FIELD(config_tls, client_auth), .initial = "none",
     .choices = auth_choices,
     .doc = "`required`: no handshake without a client certificate that verifies; `optional`: "
            "without one is fine, with a bad one isn't."},
    {"ca", CONFIG_VALUE, &config_path, FIELD(config_tls, client_ca),
     .example = "/etc/millrace/clients.pem",
     .doc = "PEM file: who may issue clients' certificates."},
    {"crl", CONFIG_VALUE, &config_path, FIELD(config_tls, client_crl),
     .example = "/etc/millrace/clients.crl",
     .doc = "PEM file: certificates that are revoked, a list for each issuer in `ca`."},
    {"header", CONFIG_VALUE, &config_id_header, FIELD(config_tls, client_header),
     .example = "x-client-subject",
     .doc = "Header that tells the origin the subject of the client's certificate (RFC 2253). What "
            "clients send in it is taken out, whether there is a certificate or not."},
    END,
};
static const struct config_group auth_group = {
    "client_auth", "Client certificates.", sizeof(struct config_tls), auth_keys, NULL, NULL};

static const struct config_key tls_keys[] = {
    {"certificates", CONFIG_LIST, .group = &certificate_group,
     ELEMENTS(config_tls, certificates, ncertificates), .required = true, RANGE(1, 1000),
     .doc = "Who the listener is. A client gets the one with the name that it asks for (SNI), "
            "`*.example.com` standing for one label; those of one name and different kinds of key "
            "go together; the first one serves whoever asks for no name or an unknown one."},
    {"min_version", CONFIG_VALUE, &config_choice, FIELD(config_tls, min_version), .initial = "1.2",
     .choices = version_choices, .doc = "The oldest version of TLS that is spoken."},
    {"ciphers", CONFIG_VALUE, &config_text, FIELD(config_tls, ciphers),
     .initial = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
                "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
                "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
     .doc = "Cipher suites of TLS 1.2, the best first, as OpenSSL names them."},
    {"ciphersuites", CONFIG_VALUE, &config_text, FIELD(config_tls, ciphersuites),
     .initial = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
     .doc = "Cipher suites of TLS 1.3."},
    {"curves", CONFIG_VALUE, &config_text, FIELD(config_tls, curves),
     .initial = "X25519:P-256:P-384", .doc = "Groups for the key exchange, the best first."},
    {"alpn", CONFIG_VALUES, &config_text, ELEMENTS(config_tls, alpn, nalpn), RANGE(1, 16),
     .example = "[mqtt]",
     .doc = "Application protocols of a tunnel, the best first; absent: none is agreed upon. An "
            "HTTP listener always offers `http/1.1`. A client that knows none of them is refused."},
    {"tickets", CONFIG_GROUP, .group = &ticket_group, .doc = "Session tickets."},
    {"client_auth", CONFIG_GROUP, .group = &auth_group, .doc = "Client certificates."},
    {"handshake_timeout", CONFIG_VALUE, &config_duration, FIELD(config_tls, handshake_timeout),
     .initial = "10s", RANGE(10 * MS, 10 * MIN),
     .doc = "From the connection to the end of its handshake, waits included."},
    {"overload", CONFIG_VALUE, &config_choice, FIELD(config_tls, overload), .initial = "wait",
     .choices = overload_choices,
     .doc = "When `runtime.tls_queue` handshakes wait already: one more `wait`s for its place "
            "within `handshake_timeout`, or is `refuse`d at once."},
    END,
};
const struct config_group config_tls_group = {
    "tls",
    "TLS ends here: clients' bytes are sealed, the origin's are plain.",
    sizeof(struct config_tls),
    tls_keys,
    NULL,
    NULL};
