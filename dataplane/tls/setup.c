#include <errno.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>

#include "dataplane/tls/context_priv.h"
#include "dataplane/tls/tickets.h"

static int on_server_name(SSL *ssl, int *alert, void *arg)
{
    const struct tls_set *set = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (!name)
        return SSL_TLSEXT_ERR_NOACK;
    unsigned group = names_find(set->context, name);
    if (group && !SSL_set_SSL_CTX(ssl, set->ctx[group]))
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    return SSL_TLSEXT_ERR_OK;
}

/* RFC 7301 §3.2: nothing in common ends the handshake, so that no other protocol's client takes us
 * for its server. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
    const struct tls_context *c = arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, c->alpn, c->alpn_len, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static const struct blob *ocsp_of(const struct tls_set *set, const X509 *leaf)
{
    for (size_t i = 0; i < set->context->ncerts; i++)
        if (set->leaves[i] == leaf)
            return &set->context->certs[i].ocsp;
    return NULL;
}

static int on_status(SSL *ssl, void *arg)
{
    const struct blob *answer = ocsp_of(arg, SSL_get_certificate(ssl));
    if (!answer || !answer->bytes)
        return SSL_TLSEXT_ERR_NOACK;
    unsigned char *copy = OPENSSL_memdup(answer->bytes, answer->len);
    if (!copy)
        return SSL_TLSEXT_ERR_NOACK;
    SSL_set_tlsext_status_ocsp_resp(ssl, copy, (long)answer->len); /* takes the copy */
    return SSL_TLSEXT_ERR_OK;
}

static int set_names(int ok, const char *key, struct config_tls_fault *fault)
{
    if (ok)
        return 0;
    fault->key = key;
    fault_say(fault, "OpenSSL knows none, or not all, of these: %s", fault_reason());
    return -EINVAL;
}

static int set_algorithms(SSL_CTX *ctx, const struct config_tls *cfg,
                          struct config_tls_fault *fault)
{
    int err = set_names(SSL_CTX_set_cipher_list(ctx, cfg->ciphers), "ciphers", fault);
    if (!err)
        err = set_names(SSL_CTX_set_ciphersuites(ctx, cfg->ciphersuites), "ciphersuites", fault);
    if (!err)
        err = set_names((int)SSL_CTX_set1_groups_list(ctx, cfg->curves), "curves", fault);
    return err;
}

static int set_cas(SSL_CTX *ctx, const struct blob *ca, struct config_tls_fault *fault)
{
    fault->key = "client_auth.ca";
    STACK_OF(X509) *all = pem_chain(ca, fault);
    STACK_OF(X509_NAME) *names = sk_X509_NAME_new_null();
    bool ok = all && names;
    for (int i = 0; ok && i < sk_X509_num(all); i++) {
        X509 *x = sk_X509_value(all, i);
        X509_NAME *name = X509_NAME_dup(X509_get_subject_name(x));
        ok = name && X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x) &&
             sk_X509_NAME_push(names, name);
    }
    sk_X509_pop_free(all, X509_free);
    SSL_CTX_set_client_CA_list(ctx, names); /* takes them */
    return ok ? 0 : -EINVAL;
}

/* With a list, each leaf must be on nobody's: a CA without one is no CA whose clients are let in.
 */
static int set_crls(SSL_CTX *ctx, const struct blob *crl, struct config_tls_fault *fault)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    fault->key = "client_auth.crl";
    if (pem_crls(crl, store, fault) < 0)
        return -EINVAL;
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    return 0;
}

/* Tickets say who the client is, so they are good only where the same is asked of clients. */
static int set_session_id(SSL_CTX *ctx, const struct config_tls *cfg, const struct tls_files *files)
{
    unsigned char id[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    uint8_t mode = (uint8_t)cfg->client_auth;
    bool ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
              EVP_DigestUpdate(md, "millrace", 8) && EVP_DigestUpdate(md, &mode, 1);
    if (ok && files->ca.bytes)
        ok = EVP_DigestUpdate(md, files->ca.bytes, files->ca.len);
    if (ok && files->crl.bytes)
        ok = EVP_DigestUpdate(md, files->crl.bytes, files->crl.len);
    ok = ok && EVP_DigestFinal_ex(md, id, &len) && len <= SSL_MAX_SID_CTX_LENGTH &&
         SSL_CTX_set_session_id_context(ctx, id, len);
    EVP_MD_CTX_free(md);
    return ok ? 0 : -ENOMEM;
}

static int set_client_auth(SSL_CTX *ctx, const struct config_tls *cfg,
                           const struct tls_files *files, struct config_tls_fault *fault)
{
    int err = set_session_id(ctx, cfg, files);
    if (err || cfg->client_auth == CONFIG_AUTH_NONE)
        return err;
    SSL_CTX_set_verify(
        ctx,
        SSL_VERIFY_PEER |
            (cfg->client_auth == CONFIG_AUTH_REQUIRED ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
        NULL);
    err = set_cas(ctx, &files->ca, fault);
    return !err && files->crl.bytes ? set_crls(ctx, &files->crl, fault) : err;
}

static void set_tickets(SSL_CTX *ctx, const struct tls_context *c)
{
    /* Sessions live in tickets alone: no cache, whose lock handshakes would share. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (c->tickets) {
        tls_tickets_bind(c->tickets, ctx);
        SSL_CTX_set_num_tickets(ctx, 1);
    } else {
        SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(ctx, 0);
    }
}

int setup_ctx(SSL_CTX *ctx, struct tls_set *set, const struct config_tls *cfg,
              const struct tls_files *files, struct config_tls_fault *fault)
{
    struct tls_context *c = set->context;
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(ctx, cfg->min_version == CONFIG_TLS_1_3 ? TLS1_3_VERSION
                                                                          : TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    int err = set_algorithms(ctx, cfg, fault);
    if (!err)
        err = set_client_auth(ctx, cfg, files, fault);
    if (err)
        return err;
    set_tickets(ctx, c);
    SSL_CTX_set_tlsext_servername_callback(ctx, on_server_name);
    SSL_CTX_set_tlsext_servername_arg(ctx, set);
    SSL_CTX_set_tlsext_status_cb(ctx, on_status);
    SSL_CTX_set_tlsext_status_arg(ctx, set);
    if (c->alpn)
        SSL_CTX_set_alpn_select_cb(ctx, on_alpn, c);
    return 0;
}
