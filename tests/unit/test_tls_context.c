/* Contexts from files: what is wrong with them is told, what is the same is known for the same, and
 * ticket keys come, go and are shared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/snapshot.h"
#include "dataplane/tls/context.h"
#include "dataplane/tls/registry.h"
#include "dataplane/tls/tickets.h"
#include "tests/kit/pki.h"

#define NOW 1800000000 /* 2027 */

static struct pki pki;

static struct config_tls config_of(struct config_certificate *cert)
{
    return (struct config_tls){
        .certificates = cert,
        .ncertificates = 1,
        .ciphers = "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256",
        .ciphersuites = "TLS_AES_128_GCM_SHA256",
        .curves = "X25519",
        .tickets = true,
    };
}

static struct config_certificate pair(const char *cert, const char *key)
{
    char c[64], k[64];
    snprintf(c, sizeof(c), "%s.pem", cert);
    snprintf(k, sizeof(k), "%s.key", key);
    return (struct config_certificate){.cert = pki_path(&pki, c), .key = pki_path(&pki, k)};
}

static void expect_fault(const struct config_tls *cfg, const char *key, size_t certificate,
                         const char *text)
{
    struct config_tls_fault f;
    assert_false(tls_context_check(cfg, false, NOW, &f));
    assert_string_equal(f.key, key);
    assert_int_equal(f.certificate, certificate);
    if (!strstr(f.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, f.text);
}

static void append(const char *to, const char *from)
{
    char cmd[512];
    snprintf(cmd, sizeof(cmd), "cat %s >> %s", pki_path(&pki, from), pki_path(&pki, to));
    assert_int_equal(system(cmd), 0);
}

static void what_is_wrong_with_files_is_told(void **state)
{
    struct {
        const char *cert, *key, *of, *text;
    } cases[] = {
        {"good", "good", NULL, NULL},
        {"good", "other", "key", "the key doesn't belong to the certificate in"},
        {"absent", "good", "cert", "absent.pem can't be read: No such file or directory"},
        {"good", "absent", "key", "absent.key can't be read"},
        {"expired", "expired", "cert", "the certificate expired on 2020-09-13 12:26:40 UTC"},
        {"early", "early", "cert", "the certificate isn't valid before 2033-05-18"},
        {"junk", "good", "cert", "there is no certificate in it"},
        {"good", "junk", "key", "there is no private key in it"},
        {"good", "locked", "key", "the key has a passphrase"},
        {"chain", "chain", NULL, NULL},
        {"disorder", "chain", "cert", "certificate 2 in it didn't issue the one before"},
        {"old_chain", "old_chain", "cert", "an issuer's certificate in it expired on 2020"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct config_certificate c = pair(cases[i].cert, cases[i].key);
        struct config_tls cfg = config_of(&c);
        struct config_tls_fault f = {.text = ""};
        if (cases[i].of)
            expect_fault(&cfg, cases[i].of, 0, cases[i].text);
        else if (!tls_context_check(&cfg, false, NOW, &f))
            fail_msg("%s: %s", cases[i].cert, f.text);
    }
    /* At a start, time is no reason. */
    struct config_certificate c = pair("expired", "expired");
    struct config_tls cfg = config_of(&c);
    struct config_tls_fault f;
    assert_true(tls_context_check(&cfg, true, NOW, &f));
}

static void what_openssl_does_not_know_is_told(void **state)
{
    struct config_certificate c = pair("good", "good");
    struct config_tls cfg = config_of(&c);
    cfg.ciphers = "NOT-A-CIPHER";
    expect_fault(&cfg, "ciphers", SIZE_MAX, "OpenSSL knows none");
    cfg = config_of(&c);
    cfg.ciphersuites = "TLS_NONE";
    expect_fault(&cfg, "ciphersuites", SIZE_MAX, "OpenSSL knows none");
    cfg = config_of(&c);
    cfg.curves = "P-1";
    expect_fault(&cfg, "curves", SIZE_MAX, "OpenSSL knows none");
    cfg = config_of(&c);
    cfg.client_auth = CONFIG_AUTH_REQUIRED;
    cfg.client_ca = pki_path(&pki, "junk.pem");
    expect_fault(&cfg, "client_auth.ca", SIZE_MAX, "there is no certificate in it");
    cfg.client_ca = pki_path(&pki, "good.pem");
    cfg.client_crl = pki_path(&pki, "junk.pem");
    expect_fault(&cfg, "client_auth.crl", SIZE_MAX, "there is no revocation list in it");
    cfg = config_of(&c);
    cfg.ticket_keys = pki_path(&pki, "junk.pem");
    expect_fault(&cfg, "tickets.keys", SIZE_MAX, "expected 1 to 4 lines, each 80 bytes in base64");
}

static struct tls_context *prepared(struct tls_registry *r, struct config_tls *cfg,
                                    uint64_t version)
{
    struct config_http http = {0};
    struct config_listener l = {.name = "web", .http = &http, .tls = cfg};
    struct snapshot s = {.version = version, .listeners = &l, .nlisteners = 1};
    struct config_tls_fault f;
    const char *listener;
    return tls_registry_prepare(r, &s, &f, &listener) == 0 ? cfg->context : NULL;
}

/* The same contents are the same context, whatever the version; others aren't; what is wrong leaves
 * what was there before. */
static void contexts_live_through_reloads(void **state)
{
    struct tls_registry *r = tls_registry_new(2);
    struct config_certificate c = pair("moving", "moving");
    struct config_tls cfg = config_of(&c);
    struct pki_cert made = {.file = "moving", .cn = "moving"};
    pki_make(&pki, &made);
    struct tls_context *first = prepared(r, &cfg, 1);
    assert_non_null(first);
    assert_ptr_equal(prepared(r, &cfg, 2), first);
    cfg.curves = "P-256";
    struct tls_context *other = prepared(r, &cfg, 3);
    assert_ptr_not_equal(other, first);
    cfg.curves = "X25519";
    assert_ptr_equal(prepared(r, &cfg, 4), first);
    pki_write(&pki, "moving.key", "torn", 4);
    assert_ptr_equal(prepared(r, &cfg, 5), first);
    pki_make(&pki, &made);
    struct tls_context *second = prepared(r, &cfg, 6);
    assert_ptr_not_equal(second, first);
    tls_registry_tidy(r, 6); /* lets go of the first two; a leak or a use of them would show */
    assert_ptr_equal(prepared(r, &cfg, 7), second);
    pki_remove(&pki, "moving.pem");
    assert_ptr_equal(prepared(r, &cfg, 8), second);
    cfg.curves = "P-384"; /* never seen before, so there is nothing to stay with */
    assert_null(prepared(r, &cfg, 9));
    tls_registry_free(r);
}

static void keys_of_a_file_are_read_line_by_line(void **state)
{
    struct tls_ticket_key keys[TLS_TICKET_KEYS];
    char line[110], text[700] = "";
    memset(line, 'A', 107);
    memcpy(line + 107, "=\n", 3);
    assert_int_equal(tls_tickets_parse(line, 108, keys), 1); /* without a newline */
    for (int n = 1; n <= TLS_TICKET_KEYS; n++) {
        strcat(text, line);
        assert_int_equal(tls_tickets_parse(text, strlen(text), keys), n);
    }
    strcat(text, line);
    assert_int_equal(tls_tickets_parse(text, strlen(text), keys), -EINVAL);
    assert_int_equal(tls_tickets_parse("", 0, keys), -EINVAL);
    assert_int_equal(tls_tickets_parse("\n\n", 2, keys), -EINVAL);
    assert_int_equal(tls_tickets_parse(line, 104, keys), -EINVAL);
    line[50] = '*';
    assert_int_equal(tls_tickets_parse(line, 109, keys), -EINVAL);
}

static int make_certs(void **state)
{
    pki_init(&pki);
    pki_make(&pki, &(struct pki_cert){.file = "good"});
    pki_make(&pki, &(struct pki_cert){.file = "other"});
    pki_make(&pki, &(struct pki_cert){.file = "expired", .to = 1600000000});
    pki_make(&pki, &(struct pki_cert){.file = "early", .from = 2000000000});
    pki_write(&pki, "junk.pem", "nonsense\n", 9);
    pki_write(&pki, "junk.key", "nonsense\n", 9);
    static const char locked[] = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n"
                                 "-----END ENCRYPTED PRIVATE KEY-----\n";
    pki_write(&pki, "locked.key", locked, sizeof(locked) - 1);
    pki_make(&pki, &(struct pki_cert){.file = "ca", .is_ca = true});
    pki_make(&pki, &(struct pki_cert){.file = "old_ca", .is_ca = true, .to = 1600000000});
    pki_make(&pki, &(struct pki_cert){.file = "chain", .issuer = "ca"});
    pki_make(&pki, &(struct pki_cert){.file = "old_chain", .issuer = "old_ca"});
    pki_write(&pki, "disorder.pem", "", 0);
    append("disorder.pem", "chain.pem");
    append("disorder.pem", "good.pem");
    append("chain.pem", "ca.pem");
    append("old_chain.pem", "old_ca.pem");
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
        cmocka_unit_test(what_is_wrong_with_files_is_told),
        cmocka_unit_test(what_openssl_does_not_know_is_told),
        cmocka_unit_test(contexts_live_through_reloads),
        cmocka_unit_test(keys_of_a_file_are_read_line_by_line),
    };
    return cmocka_run_group_tests_name("tls_context", tests, make_certs, remove_certs);
}
