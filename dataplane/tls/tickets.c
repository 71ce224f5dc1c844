#include "dataplane/tls/tickets.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#define KEPT 8 /* sets of keys that were replaced */

/* Never changes once it is published. */
struct key_set {
    size_t n;
    struct tls_ticket_key keys[TLS_TICKET_KEYS];
};

struct tls_tickets {
    atomic_uint refs; /* acq_rel at the end, else relaxed */
    EVP_CIPHER *cipher;
    _Atomic(struct key_set *) now; /* release by control, acquire by handshakes */
    struct key_set *old[KEPT];
    unsigned next_old;
};

static void set_free(struct key_set *s)
{
    if (s)
        OPENSSL_cleanse(s, sizeof(*s));
    free(s);
}

/* A handshake looks at a set for microseconds, and there are KEPT changes until it is wiped. */
static void publish(struct tls_tickets *t, struct key_set *s)
{
    struct key_set *before = atomic_exchange_explicit(&t->now, s, memory_order_acq_rel);
    set_free(t->old[t->next_old]);
    t->old[t->next_old] = before;
    t->next_old = (t->next_old + 1) % KEPT;
}

int tls_tickets_rotate(struct tls_tickets *t)
{
    const struct key_set *now = atomic_load_explicit(&t->now, memory_order_relaxed);
    struct key_set *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    if (RAND_priv_bytes((unsigned char *)&s->keys[0], sizeof(s->keys[0])) != 1) {
        set_free(s);
        return -EIO;
    }
    s->n = 1;
    for (size_t i = 0; now && i < now->n && s->n < TLS_TICKET_KEYS; i++)
        s->keys[s->n++] = now->keys[i];
    publish(t, s);
    return 0;
}

int tls_tickets_replace(struct tls_tickets *t, const struct tls_ticket_key *keys, size_t n)
{
    struct key_set *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->n = n < TLS_TICKET_KEYS ? n : TLS_TICKET_KEYS;
    memcpy(s->keys, keys, s->n * sizeof(s->keys[0]));
    publish(t, s);
    return 0;
}

struct tls_tickets *tls_tickets_new(void)
{
    struct tls_tickets *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    t->cipher = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    if (!t->cipher || tls_tickets_rotate(t) != 0) {
        tls_tickets_put(t);
        return NULL;
    }
    return t;
}

void tls_tickets_get(struct tls_tickets *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

void tls_tickets_put(struct tls_tickets *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1)
        return;
    set_free(atomic_load_explicit(&t->now, memory_order_relaxed));
    for (unsigned i = 0; i < KEPT; i++)
        set_free(t->old[i]);
    EVP_CIPHER_free(t->cipher);
    free(t);
}

/* One line; 0 or -EINVAL. */
static int parse_line(const char *line, size_t len, struct tls_ticket_key *ret)
{
    uint8_t bytes[TLS_TICKET_KEY + 4];
    size_t padded = (TLS_TICKET_KEY + 2) / 3 * 4;
    int err = -EINVAL;
    if (len == padded &&
        EVP_DecodeBlock(bytes, (const unsigned char *)line, (int)len) == (int)(padded / 4 * 3)) {
        memcpy(ret, bytes, sizeof(*ret));
        err = 0;
    }
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return err;
}

int tls_tickets_parse(const char *text, size_t len, struct tls_ticket_key ret[TLS_TICKET_KEYS])
{
    int n = 0;
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t line = end ? (size_t)(end - text) : len;
        size_t used = line + (end ? 1 : 0);
        if (line && (n == TLS_TICKET_KEYS || parse_line(text, line, &ret[n++]) != 0))
            return -EINVAL;
        text += used;
        len -= used;
    }
    return n ? n : -EINVAL;
}

static int set_mac(EVP_MAC_CTX *mac, const struct tls_ticket_key *k)
{
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)k->hmac, sizeof(k->hmac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params);
}

static int seal(const struct tls_tickets *t, const struct tls_ticket_key *k, unsigned char *name,
                unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac)
{
    memcpy(name, k->name, TLS_TICKET_NAME);
    if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(t->cipher)) != 1 ||
        !EVP_EncryptInit_ex2(cipher, t->cipher, k->aes, iv, NULL) || !set_mac(mac, k))
        return -1;
    return 1;
}

/* 2: opened, and due for a new one. In TLS 1.3 always: a ticket is for use once (RFC 8446 §C.4),
 * and a client that has used all of its tickets would have to begin anew. */
static int open_with(const SSL *ssl, const struct tls_tickets *t, const struct key_set *s, size_t i,
                     const unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac)
{
    const struct tls_ticket_key *k = &s->keys[i];
    if (!EVP_DecryptInit_ex2(cipher, t->cipher, k->aes, iv, NULL) || !set_mac(mac, k))
        return -1;
    return i || SSL_version(ssl) == TLS1_3_VERSION ? 2 : 1;
}

static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int sealing)
{
    const struct tls_tickets *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const struct key_set *s = atomic_load_explicit(&t->now, memory_order_acquire);
    if (sealing)
        return seal(t, &s->keys[0], name, iv, cipher, mac);
    for (size_t i = 0; i < s->n; i++)
        if (CRYPTO_memcmp(name, s->keys[i].name, TLS_TICKET_NAME) == 0)
            return open_with(ssl, t, s, i, iv, cipher, mac);
    return 0;
}

void tls_tickets_bind(struct tls_tickets *t, struct ssl_ctx_st *ctx)
{
    SSL_CTX_set_app_data(ctx, t);
    SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket);
}
