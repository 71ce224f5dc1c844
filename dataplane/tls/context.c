#include "dataplane/tls/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "dataplane/tls/context_priv.h"
#include "dataplane/tls/tickets.h"

int tls_library_init(void)
{
    return OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CONFIG, NULL) ? 0
                                                                                            : -EIO;
}

void tls_thread_init(void)
{
    unsigned char byte;
    ERR_clear_error();
    if (RAND_bytes(&byte, 1) != 1 || RAND_priv_bytes(&byte, 1) != 1)
        ERR_clear_error();
}

void tls_context_get(struct tls_context *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

static void cert_free(struct tls_cert *cert)
{
    free(cert->file);
    free(cert->name);
    blob_free(&cert->cert);
    blob_free(&cert->key);
    blob_free(&cert->ocsp);
}

static void set_free(struct tls_context *c, struct tls_set *set)
{
    for (size_t i = 0; set->ctx && i < c->ngroups; i++)
        SSL_CTX_free(set->ctx[i]);
    free(set->ctx);
    free(set->leaves);
}

void tls_context_put(struct tls_context *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; c->sets && i < c->nsets; i++)
        set_free(c, &c->sets[i]);
    free(c->sets);
    names_free(c);
    for (size_t i = 0; c->certs && i < c->ncerts; i++)
        cert_free(&c->certs[i]);
    free(c->certs);
    tls_tickets_put(c->tickets);
    free(c->alpn);
    free(c);
}

/* --- what is in the files ------------------------------------------------------------------------
 */

static int64_t seconds_of(const ASN1_TIME *t)
{
    struct tm tm;
    return ASN1_TIME_to_tm(t, &tm) ? timegm(&tm) : 0;
}

static const char *type_of(X509 *leaf)
{
    EVP_PKEY *key = X509_get0_pubkey(leaf);
    const char *name = key ? EVP_PKEY_get0_type_name(key) : NULL;
    static const char *const known[] = {"EC", "RSA", "RSA-PSS", "ED25519", "ED448"};
    for (size_t i = 0; name && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i]) == 0)
            return known[i];
    return "other";
}

static int check_time(const struct tls_build *b, X509 *x, int at, struct config_tls_fault *fault)
{
    char text[32];
    int64_t until = seconds_of(X509_get0_notAfter(x)), from = seconds_of(X509_get0_notBefore(x));
    time_t shown = (time_t)(b->wall_s > until ? until : from);
    struct tm tm;
    if (b->any_time || (b->wall_s <= until && b->wall_s >= from))
        return 0;
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&shown, &tm));
    fault_say(fault, "%s %s %s", at ? "an issuer's certificate in it" : "the certificate",
              b->wall_s > until ? "expired on" : "isn't valid before", text);
    return -EINVAL;
}

static int check_chain(const struct tls_build *b, struct tls_cert *cert, STACK_OF(X509) * chain,
                       struct config_tls_fault *fault)
{
    cert->type = type_of(sk_X509_value(chain, 0));
    for (int i = 0; i < sk_X509_num(chain); i++) {
        X509 *x = sk_X509_value(chain, i);
        int64_t until = seconds_of(X509_get0_notAfter(x));
        if (check_time(b, x, i, fault) < 0)
            return -EINVAL;
        if (i == 0 || until < cert->not_after)
            cert->not_after = until;
        if (i > 0 && X509_check_issued(x, sk_X509_value(chain, i - 1)) != X509_V_OK) {
            fault_say(fault, "certificate %d in it didn't issue the one before", i + 1);
            return -EINVAL;
        }
    }
    return 0;
}

static int check_key(const struct tls_cert *cert, X509 *leaf, struct config_tls_fault *fault)
{
    fault->key = "key";
    EVP_PKEY *key = pem_key(&cert->key, fault);
    bool fits = key && X509_check_private_key(leaf, key);
    if (key && !fits)
        fault_say(fault, "the key doesn't belong to the certificate in %s", cert->file);
    ERR_clear_error();
    EVP_PKEY_free(key);
    return fits ? 0 : -EINVAL;
}

static int read_cert(const struct tls_build *b, struct tls_context *c, unsigned i,
                     struct config_tls_fault *fault)
{
    const struct config_certificate *from = &b->cfg->certificates[i];
    struct tls_cert *cert = &c->certs[i];
    STACK_OF(X509) *chain = NULL;
    int err = 0;
    fault->certificate = i;
    fault->key = "cert";
    cert->file = strdup(from->cert);
    if (!cert->file)
        return -ENOMEM;
    err = blob_read(from->cert, &cert->cert, fault);
    if (!err)
        chain = pem_chain(&cert->cert, fault);
    if (!chain)
        return -EINVAL;
    err = check_chain(b, cert, chain, fault);
    fault->key = err ? "cert" : "key";
    if (!err)
        err = blob_read(from->key, &cert->key, fault);
    if (!err)
        err = check_key(cert, sk_X509_value(chain, 0), fault);
    if (!err)
        err = names_add(c, i, sk_X509_value(chain, 0));
    sk_X509_pop_free(chain, X509_free);
    if (err || !from->ocsp)
        return err;
    fault->key = "ocsp";
    return blob_read(from->ocsp, &cert->ocsp, fault);
}

static int read_certs(const struct tls_build *b, struct tls_context *c,
                      struct config_tls_fault *fault)
{
    int err = 0;
    c->certs = calloc(b->cfg->ncertificates, sizeof(c->certs[0]));
    if (!c->certs)
        return -ENOMEM;
    c->ncerts = b->cfg->ncertificates;
    for (unsigned i = 0; i < c->ncerts && !err; i++)
        err = read_cert(b, c, i, fault);
    if (err)
        return err;
    fault->certificate = SIZE_MAX;
    return names_group(c);
}

static void files_free(struct tls_files *f)
{
    blob_free(&f->ca);
    blob_free(&f->crl);
}

static int files_read(const struct config_tls *cfg, struct tls_files *f,
                      struct config_tls_fault *fault)
{
    int err = 0;
    fault->key = "client_auth.ca";
    if (cfg->client_ca)
        err = blob_read(cfg->client_ca, &f->ca, fault);
    if (err || !cfg->client_crl)
        return err;
    fault->key = "client_auth.crl";
    return blob_read(cfg->client_crl, &f->crl, fault);
}

/* --- sets ----------------------------------------------------------------------------------------
 */

/* Each set parses its own, so that no reference count of a key or a certificate is shared. */
static int use_cert(struct tls_set *set, SSL_CTX *ctx, unsigned i, struct config_tls_fault *fault)
{
    struct tls_cert *cert = &set->context->certs[i];
    fault->certificate = i;
    fault->key = "cert";
    STACK_OF(X509) *chain = pem_chain(&cert->cert, fault);
    EVP_PKEY *key = chain ? pem_key(&cert->key, fault) : NULL;
    X509 *leaf = chain ? sk_X509_shift(chain) : NULL;
    int ok = key && leaf && SSL_CTX_use_cert_and_key(ctx, leaf, key, chain, 1);
    if (ok)
        set->leaves[i] = leaf;
    else if (key && leaf)
        fault_say(fault, "OpenSSL refuses the certificate: %s", fault_reason());
    X509_free(leaf); /* ctx holds it, too */
    sk_X509_pop_free(chain, X509_free);
    EVP_PKEY_free(key);
    return ok ? 0 : -EINVAL;
}

static int make_ctx(struct tls_set *set, const struct config_tls *cfg,
                    const struct tls_files *files, size_t group, struct config_tls_fault *fault)
{
    const struct tls_group *g = &set->context->groups[group];
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return -ENOMEM;
    set->ctx[group] = ctx;
    int err = setup_ctx(ctx, set, cfg, files, fault);
    for (unsigned i = 0; i < g->n && !err; i++)
        err = use_cert(set, ctx, g->certs[i], fault);
    return err;
}

static int make_set(struct tls_context *c, struct tls_set *set, const struct config_tls *cfg,
                    const struct tls_files *files, struct config_tls_fault *fault)
{
    int err = 0;
    set->context = c;
    set->ctx = calloc(c->ngroups, sizeof(set->ctx[0]));
    set->leaves = calloc(c->ncerts, sizeof(set->leaves[0]));
    if (!set->ctx || !set->leaves)
        return -ENOMEM;
    for (size_t i = 0; i < c->ngroups && !err; i++)
        err = make_ctx(set, cfg, files, i, fault);
    return err;
}

static int make_sets(const struct tls_build *b, struct tls_context *c,
                     const struct tls_files *files, struct config_tls_fault *fault)
{
    int err = 0;
    c->sets = calloc(b->ncores, sizeof(c->sets[0]));
    if (!c->sets)
        return -ENOMEM;
    c->nsets = b->ncores;
    for (unsigned i = 0; i < c->nsets && !err; i++)
        err = make_set(c, &c->sets[i], b->cfg, files, fault);
    return err;
}

/* --- ALPN ----------------------------------------------------------------------------------------
 */

static int make_alpn(const struct tls_build *b, struct tls_context *c)
{
    static const char *const http[] = {"http/1.1"};
    const char *const *list = b->http ? http : b->cfg->alpn;
    size_t n = b->http ? 1 : b->cfg->nalpn, len = 0;
    for (size_t i = 0; i < n; i++)
        len += 1 + strlen(list[i]);
    if (len == 0)
        return 0;
    c->alpn = malloc(len);
    if (!c->alpn)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t one = strlen(list[i]);
        c->alpn[c->alpn_len++] = (unsigned char)one;
        memcpy(c->alpn + c->alpn_len, list[i], one);
        c->alpn_len += (unsigned)one;
    }
    return 0;
}

/* What is only needed to make sets; the keys live on in OpenSSL's own objects, which wipe them. */
static void forget_files(struct tls_context *c)
{
    for (size_t i = 0; c->certs && i < c->ncerts; i++) {
        blob_free(&c->certs[i].cert);
        blob_free(&c->certs[i].key);
    }
}

int tls_context_new(const struct tls_build *b, struct tls_context **ret_context,
                    struct config_tls_fault *ret_fault)
{
    struct tls_files files = {0};
    struct tls_context *c = calloc(1, sizeof(*c));
    *ret_fault = (struct config_tls_fault){.key = "certificates", .certificate = SIZE_MAX};
    if (!c)
        return -ENOMEM;
    atomic_init(&c->refs, 1);
    if (b->tickets)
        tls_tickets_get(b->tickets);
    c->tickets = b->tickets;
    int err = read_certs(b, c, ret_fault);
    if (!err)
        err = files_read(b->cfg, &files, ret_fault);
    if (!err)
        err = make_alpn(b, c);
    if (!err)
        err = make_sets(b, c, &files, ret_fault);
    files_free(&files);
    forget_files(c);
    ERR_clear_error();
    if (err) {
        tls_context_put(c);
        return err;
    }
    *ret_context = c;
    return 0;
}

/* --- identity ------------------------------------------------------------------------------------
 */

static bool digest_text(EVP_MD_CTX *md, const char *text)
{
    return EVP_DigestUpdate(md, text ? text : "", text ? strlen(text) + 1 : 1);
}

static int digest_file(EVP_MD_CTX *md, const char *path, struct config_tls_fault *fault)
{
    struct blob b = {0};
    if (!path)
        return 0;
    int err = blob_read(path, &b, fault);
    if (!err &&
        !(EVP_DigestUpdate(md, &b.len, sizeof(b.len)) && EVP_DigestUpdate(md, b.bytes, b.len)))
        err = -ENOMEM;
    blob_free(&b);
    return err;
}

static int digest_cert(EVP_MD_CTX *md, const struct config_certificate *c,
                       struct config_tls_fault *fault)
{
    fault->key = "cert";
    int err = digest_file(md, c->cert, fault);
    fault->key = err ? "cert" : "key";
    if (!err)
        err = digest_file(md, c->key, fault);
    if (err)
        return err;
    fault->key = "ocsp";
    return digest_file(md, c->ocsp, fault);
}

static int digest_certs(EVP_MD_CTX *md, const struct config_tls *cfg,
                        struct config_tls_fault *fault)
{
    int err = 0;
    for (size_t i = 0; i < cfg->ncertificates && !err; i++) {
        fault->certificate = i;
        err = digest_cert(md, &cfg->certificates[i], fault);
    }
    if (!err)
        fault->certificate = SIZE_MAX;
    return err;
}

static bool digest_words(EVP_MD_CTX *md, const struct config_tls *cfg, bool http)
{
    uint8_t flags[] = {(uint8_t)cfg->min_version, (uint8_t)cfg->client_auth, cfg->tickets, http};
    bool ok = EVP_DigestUpdate(md, flags, sizeof(flags)) && digest_text(md, cfg->ciphers) &&
              digest_text(md, cfg->ciphersuites) && digest_text(md, cfg->curves) &&
              digest_text(md, cfg->ticket_keys) && digest_text(md, cfg->client_ca) &&
              digest_text(md, cfg->client_crl);
    for (size_t i = 0; i < cfg->nalpn && ok; i++)
        ok = digest_text(md, cfg->alpn[i]);
    for (size_t i = 0; i < cfg->ncertificates && ok; i++)
        ok = digest_text(md, cfg->certificates[i].cert) &&
             digest_text(md, cfg->certificates[i].key) &&
             digest_text(md, cfg->certificates[i].ocsp);
    return ok;
}

static int digest_files(EVP_MD_CTX *md, const struct config_tls *cfg,
                        struct config_tls_fault *fault)
{
    int err = digest_certs(md, cfg, fault);
    if (!err) {
        fault->key = "client_auth.ca";
        err = digest_file(md, cfg->client_ca, fault);
    }
    if (!err) {
        fault->key = "client_auth.crl";
        err = digest_file(md, cfg->client_crl, fault);
    }
    return err;
}

int tls_context_identify(const struct config_tls *cfg, bool http, uint8_t ret_words[TLS_ID],
                         uint8_t ret_id[TLS_ID], struct config_tls_fault *ret_fault)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    *ret_fault = (struct config_tls_fault){.key = "certificates", .certificate = SIZE_MAX};
    int err = -ENOMEM;
    if (md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) && digest_words(md, cfg, http) &&
        EVP_DigestFinal_ex(md, ret_words, NULL) && EVP_DigestInit_ex(md, EVP_sha256(), NULL) &&
        EVP_DigestUpdate(md, ret_words, TLS_ID))
        err = digest_files(md, cfg, ret_fault);
    if (!err && !EVP_DigestFinal_ex(md, ret_id, NULL))
        err = -ENOMEM;
    EVP_MD_CTX_free(md);
    return err;
}

/* --- what is exported ----------------------------------------------------------------------------
 */

size_t tls_context_certs(const struct tls_context *c)
{
    return c->ncerts;
}

void tls_context_cert(const struct tls_context *c, size_t i, struct tls_cert_info *ret_info)
{
    const struct tls_cert *cert = &c->certs[i];
    *ret_info = (struct tls_cert_info){
        .file = cert->file,
        .name = cert->name ? cert->name : "",
        .type = cert->type,
        .not_after = cert->not_after,
    };
}
