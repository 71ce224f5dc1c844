#include "tests/kit/pki.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#define FROM 315532800  /* 1980 */
#define TO   3786912000 /* 2090 */

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "pki: %s\n", what);
    ERR_print_errors_fp(stderr);
    abort();
}

void pki_init(struct pki *p)
{
    strcpy(p->dir, "/tmp/millrace-pki-XXXXXX");
    must(mkdtemp(p->dir) != NULL, "mkdtemp");
}

void pki_fini(struct pki *p)
{
    char cmd[96];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", p->dir);
    must(system(cmd) == 0, cmd);
}

const char *pki_path(const struct pki *p, const char *file)
{
    static char paths[8][128];
    static unsigned turn;
    char *to = paths[turn++ % 8];
    snprintf(to, sizeof(paths[0]), "%s/%s", p->dir, file);
    return to;
}

static FILE *open_file(const struct pki *p, const char *file, const char *suffix, const char *mode)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s%s", p->dir, file, suffix);
    FILE *f = fopen(path, mode);
    must(f != NULL, path);
    return f;
}

void pki_write(const struct pki *p, const char *file, const void *bytes, size_t len)
{
    FILE *f = open_file(p, file, "", "w");
    must(fwrite(bytes, 1, len, f) == len, file);
    fclose(f);
}

void pki_remove(const struct pki *p, const char *file)
{
    unlink(pki_path(p, file));
}

static X509 *load_cert(const struct pki *p, const char *file)
{
    FILE *f = open_file(p, file, ".pem", "r");
    X509 *x = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    must(x != NULL, file);
    return x;
}

static EVP_PKEY *load_key(const struct pki *p, const char *file)
{
    FILE *f = open_file(p, file, ".key", "r");
    EVP_PKEY *k = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    must(k != NULL, file);
    return k;
}

static void extend(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v;
    X509V3_set_ctx(&v, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &v, nid, value);
    must(e && X509_add_ext(x, e, -1), value);
    X509_EXTENSION_free(e);
}

static void name(X509 *x, const char *cn)
{
    X509_NAME *n = X509_get_subject_name(x);
    must(X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1, 0) &&
             X509_NAME_add_entry_by_txt(n, "O", MBSTRING_UTF8, (const unsigned char *)"Mill, Inc",
                                        -1, -1, 0),
         "name");
}

void pki_make(const struct pki *p, const struct pki_cert *c)
{
    static long serials = 100;
    EVP_PKEY *key = c->kind == PKI_RSA ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
    EVP_PKEY *signer = c->issuer ? load_key(p, c->issuer) : key;
    X509 *issuer = c->issuer ? load_cert(p, c->issuer) : NULL, *x = X509_new();
    must(key && x, "no memory");
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), c->serial ? c->serial : serials++);
    ASN1_TIME_set(X509_getm_notBefore(x), c->from ? c->from : FROM);
    ASN1_TIME_set(X509_getm_notAfter(x), c->to ? c->to : TO);
    name(x, c->cn ? c->cn : c->file);
    X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x));
    X509_set_pubkey(x, key);
    extend(x, issuer ? issuer : x, NID_subject_key_identifier, "hash");
    if (c->is_ca)
        extend(x, issuer ? issuer : x, NID_basic_constraints, "critical,CA:TRUE");
    if (c->names)
        extend(x, issuer ? issuer : x, NID_subject_alt_name, c->names);
    must(X509_sign(x, signer, EVP_sha256()) > 0, "sign");
    FILE *f = open_file(p, c->file, ".pem", "w");
    PEM_write_X509(f, x);
    fclose(f);
    f = open_file(p, c->file, ".key", "w");
    PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    if (signer != key)
        EVP_PKEY_free(signer);
    EVP_PKEY_free(key);
    X509_free(issuer);
    X509_free(x);
}

void pki_revoke(const struct pki *p, const char *file, const char *issuer, long serial)
{
    X509 *ca = load_cert(p, issuer);
    EVP_PKEY *key = load_key(p, issuer);
    X509_CRL *crl = X509_CRL_new();
    ASN1_TIME *from = ASN1_TIME_set(NULL, FROM), *to = ASN1_TIME_set(NULL, TO);
    X509_CRL_set_version(crl, X509_CRL_VERSION_2);
    X509_CRL_set_issuer_name(crl, X509_get_subject_name(ca));
    X509_CRL_set1_lastUpdate(crl, from);
    X509_CRL_set1_nextUpdate(crl, to);
    if (serial) {
        X509_REVOKED *r = X509_REVOKED_new();
        ASN1_INTEGER *n = ASN1_INTEGER_new();
        ASN1_INTEGER_set(n, serial);
        X509_REVOKED_set_serialNumber(r, n);
        X509_REVOKED_set_revocationDate(r, from);
        X509_CRL_add0_revoked(crl, r);
        ASN1_INTEGER_free(n);
    }
    must(X509_CRL_sign(crl, key, EVP_sha256()) > 0, "sign crl");
    FILE *f = open_file(p, file, ".crl", "w");
    PEM_write_X509_CRL(f, crl);
    fclose(f);
    ASN1_TIME_free(from);
    ASN1_TIME_free(to);
    X509_CRL_free(crl);
    EVP_PKEY_free(key);
    X509_free(ca);
}
