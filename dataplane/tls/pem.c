#include "dataplane/tls/pem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>

void fault_say(struct config_tls_fault *f, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(f->text, sizeof(f->text), format, ap);
    va_end(ap);
}

const char *fault_reason(void)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return why ? why : "no reason given";
}

static int read_whole(int fd, size_t size, struct blob *to)
{
    to->bytes = malloc(size + 1);
    if (!to->bytes)
        return -ENOMEM;
    while (to->len < size) {
        ssize_t n = read(fd, to->bytes + to->len, size - to->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EAGAIN;
        to->len += (size_t)n;
    }
    to->bytes[size] = 0;
    return 0;
}

static int read_fd(int fd, struct blob *to)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size > PEM_FILE_MAX)
        return -EFBIG;
    return read_whole(fd, (size_t)st.st_size, to);
}

int blob_read(const char *path, struct blob *ret_blob, struct config_tls_fault *fault)
{
    struct blob b = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int err = fd < 0 ? -errno : read_fd(fd, &b);
    if (fd >= 0)
        close(fd);
    if (err) {
        blob_free(&b);
        fault_say(fault, "%s can't be read: %s", path, strerror(-err));
        return -EINVAL;
    }
    *ret_blob = b;
    return 0;
}

void blob_free(struct blob *b)
{
    if (b->bytes)
        OPENSSL_cleanse(b->bytes, b->len);
    free(b->bytes);
    *b = (struct blob){0};
}

/* A key with a passphrase is none: nobody could type it. */
static int no_passphrase(char *buf, int size, int writing, void *ctx)
{
    return -1;
}

static BIO *open_blob(const struct blob *b)
{
    ERR_clear_error();
    return BIO_new_mem_buf(b->bytes, (int)b->len);
}

/* True at the end of the file; false when something in it is broken. */
static bool is_end(void)
{
    unsigned long e = ERR_peek_last_error();
    bool end = ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE;
    if (end)
        ERR_clear_error();
    return end;
}

STACK_OF(X509) * pem_chain(const struct blob *b, struct config_tls_fault *fault)
{
    STACK_OF(X509) *chain = sk_X509_new_null();
    BIO *bio = open_blob(b);
    X509 *x;
    while (chain && bio && (x = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)))
        sk_X509_push(chain, x);
    bool whole = chain && bio && is_end() && sk_X509_num(chain) > 0;
    BIO_free(bio);
    if (whole)
        return chain;
    if (chain && sk_X509_num(chain) == 0 && !ERR_peek_last_error())
        fault_say(fault, "there is no certificate in it");
    else
        fault_say(fault, "certificate can't be read: %s", fault_reason());
    sk_X509_pop_free(chain, X509_free);
    return NULL;
}

EVP_PKEY *pem_key(const struct blob *b, struct config_tls_fault *fault)
{
    BIO *bio = open_blob(b);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    if (key)
        return key;
    if (strstr(b->bytes, "ENCRYPTED"))
        fault_say(fault, "the key has a passphrase; expected one without");
    else if (!strstr(b->bytes, "PRIVATE KEY-----"))
        fault_say(fault, "there is no private key in it");
    else
        fault_say(fault, "private key can't be read: %s", fault_reason());
    ERR_clear_error();
    return NULL;
}

int pem_crls(const struct blob *b, X509_STORE *to, struct config_tls_fault *fault)
{
    BIO *bio = open_blob(b);
    X509_CRL *crl;
    int n = 0;
    while (bio && (crl = PEM_read_bio_X509_CRL(bio, NULL, no_passphrase, NULL))) {
        n += X509_STORE_add_crl(to, crl);
        X509_CRL_free(crl);
    }
    bool whole = bio && is_end() && n > 0;
    BIO_free(bio);
    if (!whole)
        fault_say(fault, "there is no revocation list in it");
    return whole ? n : -EINVAL;
}
