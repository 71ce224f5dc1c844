#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/err.h>

#include "tests/kit/tls_peer.h"

#define LIMIT (120 * WORLD_S)

static void on_info(const SSL *ssl, int where, int ret)
{
    struct tls_peer *t = SSL_get_app_data(ssl);
    if (where == SSL_CB_READ_ALERT)
        t->alert = ret & 0xff;
}

static SSL_CTX *any_ctx(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    return ctx;
}

struct tls_peer *tls_peer_new(struct world *w, uint16_t port, SSL_CTX *ctx, const char *sni)
{
    struct tls_peer *t = calloc(1, sizeof(*t));
    SSL_CTX *used = ctx ? ctx : any_ctx();
    t->world = w;
    t->alert = -1;
    t->peer = world_connect(w, port);
    t->ssl = SSL_new(used);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_app_data(t->ssl, t);
    SSL_set_info_callback(t->ssl, on_info);
    SSL_set_connect_state(t->ssl);
    if (sni)
        SSL_set_tlsext_host_name(t->ssl, sni);
    t->rx = calloc(1, 1);
    if (!ctx)
        SSL_CTX_free(used);
    return t;
}

void tls_peer_free(struct tls_peer *t)
{
    SSL_free(t->ssl);
    free(t->rx);
    free(t);
}

static void keep(struct tls_peer *t, const char *bytes, size_t n)
{
    t->rx = realloc(t->rx, t->rx_len + n + 1);
    memcpy(t->rx + t->rx_len, bytes, n);
    t->rx_len += n;
    t->rx[t->rx_len] = 0;
}

static void fail_with(struct tls_peer *t, int rc)
{
    int e = SSL_get_error(t->ssl, rc);
    if (e == SSL_ERROR_ZERO_RETURN)
        t->got_end = true;
    else if (e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE)
        t->error = e;
    ERR_clear_error();
}

static void flush(struct tls_peer *t)
{
    char buf[16384];
    int n;
    while (t->peer->stream && (n = BIO_read(t->out, buf, t->drips ? 1 : (int)sizeof(buf))) > 0) {
        peer_send(t->peer, buf, (size_t)n);
        if (t->drips)
            world_sleep(t->world, WORLD_MS);
    }
}

void tls_peer_pump(struct tls_peer *t)
{
    char buf[16384];
    int rc;
    size_t n = t->peer->rx_len - t->fed;
    if (n) {
        BIO_write(t->in, t->peer->rx + t->fed, (int)n);
        t->fed += n;
    }
    if (!t->done && !t->error) {
        rc = SSL_do_handshake(t->ssl);
        t->done = rc == 1;
        if (rc != 1)
            fail_with(t, rc);
    }
    while (t->done && !t->error && !t->got_end) {
        rc = SSL_read(t->ssl, buf, sizeof(buf));
        if (rc <= 0) {
            fail_with(t, rc);
            break;
        }
        keep(t, buf, (size_t)rc);
    }
    flush(t);
}

static bool is_over(const struct tls_peer *t)
{
    return t->peer->eof || t->peer->err || !t->peer->stream;
}

static bool handshake_over(void *ctx)
{
    struct tls_peer *t = ctx;
    tls_peer_pump(t);
    return t->done || t->error || is_over(t);
}

bool tls_peer_handshake(struct tls_peer *t)
{
    if (!world_run(t->world, handshake_over, t, LIMIT)) {
        world_dump(t->world);
        fail_msg("the handshake doesn't end");
    }
    tls_peer_pump(t);
    return t->done && !t->error;
}

void tls_peer_send(struct tls_peer *t, const void *data, size_t len)
{
    assert_int_equal(SSL_write(t->ssl, data, (int)len), len);
    flush(t);
}

void tls_peer_say(struct tls_peer *t, const char *text)
{
    tls_peer_send(t, text, strlen(text));
}

struct waiting {
    struct tls_peer *t;
    const char *text;
    size_t len;
};

static bool has_len(void *ctx)
{
    struct waiting *x = ctx;
    tls_peer_pump(x->t);
    return x->t->rx_len - x->t->taken >= x->len || x->t->error || x->t->got_end || is_over(x->t);
}

static bool has_text(void *ctx)
{
    struct waiting *x = ctx;
    tls_peer_pump(x->t);
    return strstr(x->t->rx + x->t->taken, x->text) || x->t->error || x->t->got_end || is_over(x->t);
}

static void report(struct tls_peer *t, const char *what)
{
    world_dump(t->world);
    fail_msg("expected %s, got \"%s\" (error %d, alert %d, end %d)", what, t->rx + t->taken,
             t->error, t->alert, t->got_end);
}

void tls_peer_expect_bytes(struct tls_peer *t, size_t n)
{
    struct waiting x = {.t = t, .len = n};
    if (!world_run(t->world, has_len, &x, LIMIT) || t->rx_len - t->taken < n)
        report(t, "more bytes");
    t->taken += n;
}

void tls_peer_expect(struct tls_peer *t, const char *text)
{
    struct waiting x = {.t = t, .len = strlen(text)};
    world_run(t->world, has_len, &x, LIMIT);
    if (strcmp(t->rx + t->taken, text) != 0)
        report(t, text);
    t->taken = t->rx_len;
}

void tls_peer_expect_through(struct tls_peer *t, const char *text)
{
    struct waiting x = {.t = t, .text = text};
    world_run(t->world, has_text, &x, LIMIT);
    const char *at = strstr(t->rx + t->taken, text);
    if (!at)
        report(t, text);
    t->taken = (size_t)(at - t->rx) + strlen(text);
}

static bool over(void *ctx)
{
    tls_peer_pump(ctx);
    return is_over(ctx);
}

void tls_peer_expect_over(struct tls_peer *t)
{
    if (!world_run(t->world, over, t, LIMIT))
        report(t, "the end of the connection");
    tls_peer_pump(t);
}

void tls_peer_expect_end(struct tls_peer *t)
{
    tls_peer_expect_over(t);
    if (!t->got_end || !t->peer->eof)
        report(t, "close_notify and FIN");
}
