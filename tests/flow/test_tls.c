/* TLS at a listener: what clients that know it, clients that don't, and the hostile get. */
#include "tests/flow/flow.h"
#include "tests/kit/pki.h"
#include "tests/kit/tls_peer.h"

#include <openssl/err.h>

static struct pki pki;

#define TLS_YAML                                                                                   \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:443\n"                                                                  \
    "    tls:\n"                                                                                   \
    "      certificates:\n"                                                                        \
    "        - { cert: %s/a.pem, key: %s/a.key }\n"                                                \
    "        - { cert: %s/a-rsa.pem, key: %s/a-rsa.key }\n"                                        \
    "        - { cert: %s/wild.pem, key: %s/wild.key }\n"                                          \
    "%s"                                                                                           \
    "    http:\n"                                                                                  \
    "      timeouts: { header: 10s, idle: 60s, body: 30s }\n"                                      \
    "      routes: [ { upstream: app } ]\n"                                                        \
    "  - name: raw\n"                                                                              \
    "    address: 10.9.0.1:444\n"                                                                  \
    "    tls: { certificates: [ { cert: %s/a.pem, key: %s/a.key } ], alpn: [mqtt] }\n"             \
    "    tunnel: { upstream: app }\n" FLOW_UPSTREAM

static const char *yaml(const char *more)
{
    static char text[8192];
    const char *d = pki.dir;
    snprintf(text, sizeof(text), TLS_YAML, d, d, d, d, d, d, more, d, d);
    return text;
}

static struct world *start(const char *more)
{
    return flow_start(yaml(more));
}

static const struct tls_stats *stats(struct world *w)
{
    return &world_status(w)->tls;
}

static void finish(struct world *w)
{
    world_sleep(w, WORLD_S);
    assert_int_equal(stats(w)->handshaking, 0);
    assert_int_equal(stats(w)->jobs_out, 0);
    world_free(w);
}

static SSL_CTX *client(int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(ctx, version);
    SSL_CTX_set_max_proto_version(ctx, version);
    return ctx;
}

static struct tls_peer *open_peer(struct world *w, SSL_CTX *ctx, const char *sni)
{
    struct tls_peer *t = tls_peer_new(w, 443, ctx, sni);
    if (!tls_peer_handshake(t)) {
        world_dump(w);
        fail_msg("no handshake: error %d, alert %d", t->error, t->alert);
    }
    return t;
}

/* One request and its answer; *o: the origin's end, once there is one. */
static void ask(struct world *w, struct tls_peer *t, struct peer **o)
{
    tls_peer_say(t, GET);
    if (!*o)
        *o = world_accept(w);
    const char *head = peer_expect_through(*o, "\r\n\r\n");
    assert_has(head, "X-Forwarded-Proto: https\r\n");
    peer_say(*o, OK2);
    tls_peer_expect_through(t, "\r\n\r\nok");
}

static void both_versions_are_spoken(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct world *w = start("");
    struct peer *o = NULL;
    for (unsigned i = 0; i < 2; i++) {
        SSL_CTX *ctx = client(versions[i]);
        struct tls_peer *t = open_peer(w, ctx, "a.example");
        assert_int_equal(SSL_version(t->ssl), versions[i]);
        for (unsigned n = 0; n < 3; n++)
            ask(w, t, &o);
        peer_close(t->peer);
        tls_peer_free(t);
        SSL_CTX_free(ctx);
    }
    assert_int_equal(stats(w)->started, 2);
    assert_int_equal(stats(w)->done, 2);
    assert_int_equal(stats(w)->resumed, 0);
    finish(w);
}

static void a_close_is_answered_and_said(void **state)
{
    struct world *w = start("");
    struct peer *o = NULL;
    struct tls_peer *t = open_peer(w, NULL, NULL);
    ask(w, t, &o);
    /* Theirs first: ours comes. */
    SSL_shutdown(t->ssl);
    tls_peer_pump(t);
    tls_peer_expect_end(t);
    tls_peer_free(t);
    /* Ours first, after Connection: close. */
    t = open_peer(w, NULL, NULL);
    tls_peer_say(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, OK2);
    tls_peer_expect_through(t, "\r\n\r\nok");
    tls_peer_expect_end(t);
    tls_peer_free(t);
    finish(w);
}

static void any_fragments_will_do(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct world *w = start("      handshake_timeout: 60s\n");
    struct peer *o = NULL;
    for (unsigned i = 0; i < 2; i++) {
        SSL_CTX *ctx = client(versions[i]);
        struct tls_peer *t = tls_peer_new(w, 443, ctx, "a.example");
        uint64_t jobs = stats(w)->jobs;
        t->drips = true;
        assert_true(tls_peer_handshake(t));
        ask(w, t, &o);
        assert_true(stats(w)->jobs - jobs <= 4); /* not one a byte */
        peer_close(t->peer);
        tls_peer_free(t);
        SSL_CTX_free(ctx);
    }
    finish(w);
}

/* A ClientHello in records of one byte each. */
static void any_records_will_do(void **state)
{
    struct world *w = start("");
    struct tls_peer *t = tls_peer_new(w, 443, NULL, "a.example");
    char hello[4096];
    SSL_do_handshake(t->ssl);
    int n = BIO_read(t->out, hello, sizeof(hello));
    for (int i = 5; i < n; i++) {
        char record[] = {22, 3, 1, 0, 1, hello[i]};
        peer_send(t->peer, record, sizeof(record));
        if (i % 50 == 0)
            world_sleep(w, WORLD_MS);
    }
    assert_true(tls_peer_handshake(t));
    assert_true(stats(w)->jobs <= 3);
    peer_close(t->peer);
    tls_peer_free(t);
    finish(w);
}

static void plain_http_is_told_so(void **state)
{
    struct world *w = start("");
    struct peer *c = world_connect(w, 443);
    peer_say(c, "G");
    world_sleep(w, WORLD_S);
    peer_say(c, "ET / HTTP/1.1\r\nHost: a\r\n\r\n");
    peer_expect_through(c, "HTTP/1.1 400 Bad Request\r\n");
    peer_expect_through(c, "plain HTTP was received.\n");
    peer_expect_eof(c);
    peer_close(c);
    assert_int_equal(stats(w)->failed[TLS_FAIL_plain_http], 1);
    assert_int_equal(stats(w)->jobs, 0);
    finish(w);
}

struct nonsense {
    const char *bytes;
    size_t len;
    enum tls_fail why;
    unsigned jobs;
};

#define BYTES(text) text, sizeof(text) - 1

static const struct nonsense nonsense[] = {
    {BYTES("SSH-2.0-OpenSSH_9.2\r\n"), TLS_FAIL_not_tls, 0},
    {BYTES("\0\0\0\0\0\0\0\0"), TLS_FAIL_not_tls, 0},
    {BYTES("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"), TLS_FAIL_not_tls, 0}, /* SSLv2 */
    {BYTES("\x16\x02\x01\x00\x05hello"), TLS_FAIL_not_tls, 0},
    {BYTES("\x16\x03\x01\x40\x01"), TLS_FAIL_oversized, 0},
    {BYTES("\x16\x03\x01\xff\xff"), TLS_FAIL_oversized, 0},
    {BYTES("\x16\x03\x01\x00\x04\x01\x10\x00\x00"), TLS_FAIL_oversized, 0}, /* 1 MiB of hello */
    {BYTES("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), TLS_FAIL_protocol, 1},
    {BYTES("\x16\x03\x01\x00\x04\x02\x00\x00\x00"), TLS_FAIL_protocol, 1}, /* a ServerHello */
    {BYTES("\x15\x03\x01\x00\x02\x02\x28"), TLS_FAIL_not_tls, 0},
};

static void garbage_is_refused_and_counted(void **state)
{
    struct world *w = start("");
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        const struct nonsense *n = &nonsense[i];
        uint64_t failed = stats(w)->failed[n->why], jobs = stats(w)->jobs;
        struct peer *c = world_connect(w, 443);
        peer_send(c, n->bytes, n->len);
        peer_expect_bytes(c, 7);
        assert_int_equal(c->rx[0], 21); /* an alert */
        peer_expect_eof(c);
        peer_close(c);
        if (stats(w)->failed[n->why] != failed + 1)
            fail_msg("case %zu: not counted as %s", i, tls_fail_name(n->why));
        assert_int_equal(stats(w)->jobs - jobs, n->jobs);
    }
    finish(w);
}

static void a_client_that_stops_is_given_up(void **state)
{
    struct world *w = start("      handshake_timeout: 2s\n");
    struct peer *silent = world_connect(w, 443);
    struct tls_peer *t = tls_peer_new(w, 443, NULL, NULL);
    struct peer *half = world_connect(w, 443);
    tls_peer_pump(t); /* the ClientHello, and nothing after it */
    peer_send(half, "\x16\x03\x01\x02\x00\x01\x00", 7);
    world_sleep(w, 1900 * WORLD_MS);
    assert_int_equal(stats(w)->handshaking, 3);
    world_sleep(w, 200 * WORLD_MS);
    assert_int_equal(stats(w)->failed[TLS_FAIL_timeout], 3);
    peer_expect_error(silent, -ECONNRESET);
    peer_expect_error(half, -ECONNRESET);
    peer_expect_error(t->peer, -ECONNRESET);
    tls_peer_free(t);
    /* And those that go by themselves. */
    struct peer *gone = world_connect(w, 443), *reset = world_connect(w, 443);
    world_sleep(w, WORLD_MS);
    peer_close(gone);
    peer_abort(reset);
    world_sleep(w, 100 * WORLD_MS);
    assert_int_equal(stats(w)->failed[TLS_FAIL_closed], 2);
    finish(w);
}

/* A body that ends with the connection must not be taken for whole when the connection was cut. */
static void a_cut_is_no_end(void **state)
{
    struct world *w = start("");
    struct tls_peer *t = tls_peer_new(w, 444, NULL, NULL);
    assert_true(tls_peer_handshake(t));
    tls_peer_say(t, "half of it");
    struct peer *o = world_accept(w);
    peer_expect(o, "half of it");
    peer_shutdown(t->peer);  /* FIN without close_notify */
    world_sleep(w, WORLD_S); /* at once, not when something else runs out */
    assert_int_equal(o->err, -ECONNRESET);
    assert_false(o->eof);
    assert_int_equal(stats(w)->truncated, 1);
    tls_peer_free(t);

    t = tls_peer_new(w, 444, NULL, NULL);
    assert_true(tls_peer_handshake(t));
    tls_peer_say(t, "all of it");
    o = world_accept(w);
    SSL_shutdown(t->ssl);
    tls_peer_pump(t);
    peer_expect(o, "all of it");
    peer_expect_eof(o);
    peer_say(o, "answer"); /* half-closed, as TCP has it */
    tls_peer_expect(t, "answer");
    peer_shutdown(o);
    world_sleep(w, WORLD_S);
    peer_close(t->peer);
    tls_peer_free(t);
    finish(w);
}

static void a_cut_upload_never_reaches_the_origin_as_whole(void **state)
{
    struct world *w = start("");
    struct tls_peer *t = open_peer(w, NULL, NULL);
    tls_peer_say(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    struct peer *o = world_accept(w);
    peer_expect_through(o, "half");
    peer_shutdown(t->peer);
    world_sleep(w, WORLD_S);
    assert_int_equal(o->err, -ECONNRESET);
    assert_false(o->eof);
    tls_peer_free(t);
    finish(w);
}

static void a_broken_record_ends_it(void **state)
{
    struct world *w = start("");
    struct peer *o = NULL;
    struct tls_peer *t = open_peer(w, NULL, NULL);
    ask(w, t, &o);
    peer_send(t->peer, "\x17\x03\x03\x00\x20 this is no record of that key ...", 37);
    tls_peer_expect_over(t);
    assert_int_equal(t->alert, 20); /* bad_record_mac */
    assert_int_equal(stats(w)->broken, 1);
    peer_close(t->peer);
    tls_peer_free(t);
    t = open_peer(w, NULL, NULL);
    peer_send(t->peer, "\x17\x03\x03\x60\x00 too long", 13);
    tls_peer_expect_over(t);
    assert_int_equal(t->alert, 22); /* record_overflow */
    peer_close(t->peer);
    tls_peer_free(t);
    finish(w);
}

static void renegotiation_is_refused(void **state)
{
    struct world *w = start("");
    SSL_CTX *ctx = client(TLS1_2_VERSION);
    struct peer *o = NULL;
    struct tls_peer *t = open_peer(w, ctx, NULL);
    ask(w, t, &o);
    SSL_renegotiate(t->ssl);
    SSL_do_handshake(t->ssl);
    tls_peer_pump(t);
    world_sleep(w, WORLD_S);
    tls_peer_pump(t);
    assert_int_equal(t->alert, 100); /* no_renegotiation */
    assert_int_equal(stats(w)->done, 1);
    peer_close(t->peer);
    tls_peer_free(t);
    SSL_CTX_free(ctx);
    finish(w);
}

static void key_updates_are_answered(void **state)
{
    struct world *w = start("");
    SSL_CTX *ctx = client(TLS1_3_VERSION);
    struct peer *o = NULL;
    struct tls_peer *t = open_peer(w, ctx, NULL);
    for (unsigned i = 0; i < 5; i++) {
        SSL_key_update(t->ssl, i % 2 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
        ask(w, t, &o);
    }
    peer_close(t->peer);
    tls_peer_free(t);
    SSL_CTX_free(ctx);
    finish(w);
}

static void expect_cert(struct world *w, SSL_CTX *ctx, const char *sni, const char *cn)
{
    struct tls_peer *t = open_peer(w, ctx, sni);
    X509 *x = SSL_get1_peer_certificate(t->ssl);
    char got[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, got, sizeof(got));
    assert_string_equal(got, cn);
    X509_free(x);
    peer_close(t->peer);
    tls_peer_free(t);
}

static void the_certificate_is_the_one_asked_for(void **state)
{
    struct world *w = start("");
    SSL_CTX *any = client(TLS1_3_VERSION), *rsa = client(TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(rsa, "ECDHE-RSA-AES128-GCM-SHA256");
    expect_cert(w, any, "a.example", "a-ec");
    expect_cert(w, rsa, "a.example", "a-rsa");
    expect_cert(w, any, "A.Example", "a-ec");
    expect_cert(w, any, "x.w.example", "wild");
    expect_cert(w, any, "also.example", "wild");
    expect_cert(w, any, "x.y.w.example", "a-ec");
    expect_cert(w, any, "w.example", "a-ec");
    expect_cert(w, any, "unknown.example", "a-ec");
    expect_cert(w, any, NULL, "a-ec");
    expect_cert(w, rsa, NULL, "a-rsa");
    SSL_CTX_free(any);
    SSL_CTX_free(rsa);
    finish(w);
}

static void what_is_not_in_common_is_said(void **state)
{
    struct world *w = start("      min_version: 1.3\n");
    SSL_CTX *old = client(TLS1_2_VERSION), *odd = client(TLS1_3_VERSION),
            *suite = client(TLS1_3_VERSION);
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL_CTX_set1_groups_list(odd, "P-521");
    SSL_CTX_set_ciphersuites(suite, "TLS_AES_128_CCM_SHA256");
    struct {
        SSL_CTX *ctx;
        bool h2;
        int alert;
        enum tls_fail why;
    } cases[] = {
        {old, false, 70, TLS_FAIL_version},
        {odd, false, 40, TLS_FAIL_cipher},
        {suite, false, 40, TLS_FAIL_cipher},
        {NULL, true, 120, TLS_FAIL_alpn},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tls_peer *t = tls_peer_new(w, 443, cases[i].ctx, NULL);
        if (cases[i].h2)
            SSL_set_alpn_protos(t->ssl, h2, sizeof(h2));
        assert_false(tls_peer_handshake(t));
        tls_peer_expect_over(t);
        if (t->alert != cases[i].alert || stats(w)->failed[cases[i].why] == 0)
            fail_msg("case %zu: alert %d", i, t->alert);
        peer_close(t->peer);
        tls_peer_free(t);
    }
    SSL_CTX_free(old);
    SSL_CTX_free(odd);
    SSL_CTX_free(suite);
    finish(w);
}

/* Bodies of all sizes, slowly and fast, both ways: bytes in are bytes out. */
static void bodies_come_through(void **state)
{
    struct world *w = start("");
    struct tls_peer *t = tls_peer_new(w, 444, NULL, NULL);
    size_t size = 3000000;
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + (i >> 9));
    assert_true(tls_peer_handshake(t));
    tls_peer_send(t, bytes, size);
    struct peer *o = world_accept(w);
    o->paused = true;
    world_sleep(w, 10 * WORLD_S);
    o->paused = false;
    peer_send(o, bytes, size);
    peer_pause(o, false);
    tls_peer_expect_bytes(t, size);
    assert_memory_equal(t->rx, bytes, size);
    peer_expect_bytes(o, size);
    assert_memory_equal(o->rx, bytes, size);
    /* A reader that stalls holds the writer, and what is held is bounded. */
    peer_pause(t->peer, true);
    peer_send(o, bytes, size);
    world_sleep(w, 30 * WORLD_S);
    assert_true(world_status(w)->rope_nodes < 1500);
    peer_pause(t->peer, false);
    tls_peer_expect_bytes(t, size);
    peer_close(o);
    peer_close(t->peer);
    tls_peer_free(t);
    free(bytes);
    finish(w);
}

static bool same_ticket(const SSL_SESSION *a, const SSL_SESSION *b)
{
    const unsigned char *x, *y;
    size_t n, m;
    SSL_SESSION_get0_ticket(a, &x, &n);
    SSL_SESSION_get0_ticket(b, &y, &m);
    return n == m && memcmp(x, y, n) == 0;
}

static void sessions_are_taken_up_again(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned i = 0; i < 2; i++) {
        struct world *w = start("");
        struct peer *o = NULL;
        SSL_CTX *ctx = client(versions[i]);
        SSL_SESSION *session = NULL;
        for (unsigned n = 0; n < 4; n++) {
            struct tls_peer *t = tls_peer_new(w, 443, ctx, "a.example");
            if (session)
                SSL_set_session(t->ssl, session);
            assert_true(tls_peer_handshake(t));
            ask(w, t, &o);
            assert_int_equal(SSL_session_reused(t->ssl), n > 0);
            SSL_SESSION *used = session;
            session = SSL_get1_session(t->ssl);
            /* A ticket of 1.3 is for use once: there is a new one each time. */
            assert_true(!used || versions[i] == TLS1_2_VERSION || !same_ticket(used, session));
            SSL_SESSION_free(used);
            SSL_shutdown(t->ssl);
            tls_peer_pump(t);
            tls_peer_expect_end(t);
            tls_peer_free(t);
            if (n == 1) /* the same keys after a reload, of the certificate, too */
                pki_make(&pki,
                         &(struct pki_cert){.file = "a", .cn = "a-ec", .names = "DNS:a.example"});
            if (n == 1)
                world_reload(w, yaml("      curves: X25519\n"));
        }
        assert_int_equal(stats(w)->resumed, 3);
        SSL_SESSION_free(session);
        SSL_CTX_free(ctx);
        finish(w);
    }
}

/* Connections of before go on with what they have. */
static void a_reload_leaves_connections_alone(void **state)
{
    struct world *w = start("");
    struct peer *o = NULL;
    struct tls_peer *t = open_peer(w, NULL, "a.example");
    struct tls_peer *half = tls_peer_new(w, 443, NULL, "a.example");
    tls_peer_pump(half);
    ask(w, t, &o);
    world_reload(w, yaml("      min_version: 1.3\n"));
    assert_true(tls_peer_handshake(half));
    ask(w, t, &o);
    ask(w, half, &o);
    world_reload(w, FLOW_YAML);
    world_sleep(w, WORLD_S);
    tls_peer_expect_end(t); /* the listener is gone, and they were idle */
    tls_peer_expect_end(half);
    tls_peer_free(t);
    tls_peer_free(half);
    finish(w);
}

static void a_drain_ends_handshakes(void **state)
{
    struct world *w = start("");
    struct tls_peer *half = tls_peer_new(w, 443, NULL, NULL);
    struct peer *silent = world_connect(w, 443);
    tls_peer_pump(half);
    world_sleep(w, WORLD_S);
    world_reload(w, FLOW_YAML);
    peer_expect_error(silent, -ECONNRESET);
    tls_peer_expect_over(half);
    assert_int_equal(stats(w)->failed[TLS_FAIL_shutdown], 2);
    tls_peer_free(half);
    finish(w);
}

/* --- client certificates -------------------------------------------------------------------------
 */

#define AUTH(mode, more)                                                                           \
    "      client_auth: { mode: " mode ", ca: %s/ca.pem" more ", header: X-Subject }\n"

static struct world *start_auth(const char *format)
{
    char more[512];
    snprintf(more, sizeof(more), format, pki.dir, pki.dir);
    return start(more);
}

static SSL_CTX *client_with(const char *file, int version)
{
    SSL_CTX *ctx = client(version);
    char name[32];
    if (!file)
        return ctx;
    snprintf(name, sizeof(name), "%s.pem", file);
    assert_int_equal(SSL_CTX_use_certificate_file(ctx, pki_path(&pki, name), SSL_FILETYPE_PEM), 1);
    snprintf(name, sizeof(name), "%s.key", file);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, pki_path(&pki, name), SSL_FILETYPE_PEM), 1);
    return ctx;
}

#define FORGED "GET / HTTP/1.1\r\nHost: a\r\nX-Subject: CN=admin\r\n\r\n"

/* `subject`: what the origin hears, "": nothing; NULL: no handshake. */
static void expect_subject(struct world *w, struct peer **o, const char *file, int version,
                           const char *subject, enum tls_fail why)
{
    SSL_CTX *ctx = client_with(file, version);
    struct tls_peer *t = tls_peer_new(w, 443, ctx, NULL);
    tls_peer_handshake(t); /* of 1.3 the client's part is done before ours */
    if (subject) {
        tls_peer_say(t, FORGED);
        if (!*o)
            *o = world_accept(w);
        const char *head = peer_expect_through(*o, "\r\n\r\n");
        assert_has_not(head, "admin");
        if (*subject)
            assert_has(head, subject);
        else
            assert_has_not(head, "X-Subject");
        peer_say(*o, OK2);
        tls_peer_expect_through(t, "\r\n\r\nok");
    } else {
        tls_peer_expect_over(t);
        assert_true(t->alert > 0);
        assert_int_equal(stats(w)->failed[why], 1);
    }
    peer_close(t->peer);
    world_sleep(w, WORLD_S);
    tls_peer_free(t);
    SSL_CTX_free(ctx);
}

#define ALICE "X-Subject: O=Mill\\, Inc,CN=alice\r\n"

static void client_certificates_are_asked_for(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned i = 0; i < 2; i++) {
        int v = versions[i];
        struct peer *o = NULL;
        struct world *w = start_auth(AUTH("required", ""));
        expect_subject(w, &o, "alice", v, ALICE, 0);
        expect_subject(w, &o, NULL, v, NULL, TLS_FAIL_no_client_cert);
        expect_subject(w, &o, "stranger", v, NULL, TLS_FAIL_bad_client_cert);
        finish(w);

        o = NULL;
        w = start_auth(AUTH("optional", ", crl: %s/ca.crl"));
        expect_subject(w, &o, "alice", v, ALICE, 0);
        expect_subject(w, &o, NULL, v, "", 0);
        expect_subject(w, &o, "mallory", v, NULL, TLS_FAIL_bad_client_cert); /* revoked */
        finish(w);
    }
}

/* A ticket says who the client is; where others are asked for, it is no good. */
static void a_ticket_keeps_the_subject(void **state)
{
    struct world *w = start_auth(AUTH("required", ""));
    SSL_CTX *ctx = client_with("alice", TLS1_3_VERSION);
    SSL_SESSION *session = NULL;
    struct peer *o = NULL;
    for (unsigned i = 0; i < 3; i++) {
        struct tls_peer *t = tls_peer_new(w, 443, ctx, NULL);
        if (session)
            SSL_set_session(t->ssl, session);
        SSL_SESSION_free(session);
        assert_true(tls_peer_handshake(t));
        tls_peer_say(t, FORGED);
        if (!o)
            o = world_accept(w);
        assert_has(peer_expect_through(o, "\r\n\r\n"), ALICE);
        peer_say(o, OK2);
        tls_peer_expect_through(t, "\r\n\r\nok");
        assert_int_equal(SSL_session_reused(t->ssl), i == 1);
        session = SSL_get1_session(t->ssl);
        SSL_shutdown(t->ssl);
        tls_peer_pump(t);
        tls_peer_expect_end(t);
        tls_peer_free(t);
        if (i == 1) {
            char more[512];
            snprintf(more, sizeof(more), AUTH("required", ", crl: %s/ca.crl"), pki.dir, pki.dir);
            world_reload(w, yaml(more));
        }
    }
    SSL_SESSION_free(session);
    SSL_CTX_free(ctx);
    finish(w);
}

/* --- what is stapled -----------------------------------------------------------------------------
 */

static void an_ocsp_answer_is_stapled_as_it_is(void **state)
{
    char more[512];
    pki_write(&pki, "a.ocsp", "not looked into", 15);
    snprintf(more, sizeof(more),
             "%s/wild.key }\n        - { cert: %s/b.pem, key: %s/b.key, ocsp: "
             "%s/a.ocsp",
             pki.dir, pki.dir, pki.dir, pki.dir);
    char *text = strdup(yaml("")), *at = strstr(text, "/wild.key");
    char with[9000];
    at -= strlen(pki.dir);
    snprintf(with, sizeof(with), "%.*s%s%s", (int)(at - text), text, more,
             at + strlen(pki.dir) + strlen("/wild.key"));
    struct world *w = flow_start(with);
    for (unsigned i = 0; i < 2; i++) {
        struct tls_peer *t = tls_peer_new(w, 443, NULL, i ? "b.example" : "a.example");
        const unsigned char *got;
        SSL_set_tlsext_status_type(t->ssl, TLSEXT_STATUSTYPE_ocsp);
        assert_true(tls_peer_handshake(t));
        long n = SSL_get_tlsext_status_ocsp_resp(t->ssl, &got);
        assert_int_equal(n, i ? 15 : -1);
        if (i)
            assert_memory_equal(got, "not looked into", 15);
        peer_close(t->peer);
        tls_peer_free(t);
    }
    free(text);
    finish(w);
}

static int make_certs(void **state)
{
    pki_init(&pki);
    pki_make(&pki, &(struct pki_cert){.file = "ca", .cn = "clients' CA", .is_ca = true});
    pki_make(&pki, &(struct pki_cert){.file = "alice", .cn = "alice", .issuer = "ca"});
    pki_make(&pki,
             &(struct pki_cert){.file = "mallory", .cn = "mallory", .issuer = "ca", .serial = 666});
    pki_make(&pki, &(struct pki_cert){.file = "stranger", .cn = "alice"});
    pki_revoke(&pki, "ca", "ca", 666);
    pki_make(&pki, &(struct pki_cert){.file = "b", .cn = "b", .names = "DNS:b.example"});
    pki_make(&pki, &(struct pki_cert){.file = "a", .cn = "a-ec", .names = "DNS:a.example"});
    pki_make(&pki, &(struct pki_cert){
                       .file = "a-rsa", .cn = "a-rsa", .names = "DNS:a.example", .kind = PKI_RSA});
    pki_make(&pki, &(struct pki_cert){
                       .file = "wild", .cn = "wild", .names = "DNS:*.w.example,DNS:also.example"});
    return 0;
}

static int remove_certs(void **state)
{
    pki_fini(&pki);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_are_spoken),
        cmocka_unit_test(a_close_is_answered_and_said),
        cmocka_unit_test(any_fragments_will_do),
        cmocka_unit_test(any_records_will_do),
        cmocka_unit_test(plain_http_is_told_so),
        cmocka_unit_test(garbage_is_refused_and_counted),
        cmocka_unit_test(a_client_that_stops_is_given_up),
        cmocka_unit_test(a_cut_is_no_end),
        cmocka_unit_test(a_cut_upload_never_reaches_the_origin_as_whole),
        cmocka_unit_test(a_broken_record_ends_it),
        cmocka_unit_test(renegotiation_is_refused),
        cmocka_unit_test(key_updates_are_answered),
        cmocka_unit_test(the_certificate_is_the_one_asked_for),
        cmocka_unit_test(what_is_not_in_common_is_said),
        cmocka_unit_test(bodies_come_through),
        cmocka_unit_test(sessions_are_taken_up_again),
        cmocka_unit_test(a_reload_leaves_connections_alone),
        cmocka_unit_test(a_drain_ends_handshakes),
        cmocka_unit_test(client_certificates_are_asked_for),
        cmocka_unit_test(a_ticket_keeps_the_subject),
        cmocka_unit_test(an_ocsp_answer_is_stapled_as_it_is),
    };
    return cmocka_run_group_tests(tests, make_certs, remove_certs);
}
