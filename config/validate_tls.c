/* TLS of listeners: what belongs together, and what the files hold. */
#include <string.h>
#include "config/validate.h"

static const struct {
    const char *key;
    const char *name; /* in its mapping */
    size_t offset;
} places[] = {
    {"ciphers", "ciphers", offsetof(struct config_tls, ciphers)},
    {"ciphersuites", "ciphersuites", offsetof(struct config_tls, ciphersuites)},
    {"curves", "curves", offsetof(struct config_tls, curves)},
    {"tickets.keys", "keys", offsetof(struct config_tls, ticket_keys)},
    {"client_auth.ca", "ca", offsetof(struct config_tls, client_ca)},
    {"client_auth.crl", "crl", offsetof(struct config_tls, client_crl)},
};

static const struct yaml_node *certificate_node(const struct bind *b,
                                                const struct config_certificate *c, const char *key)
{
    if (!strcmp(key, "key"))
        return bind_where(b, &c->key, "key");
    return !strcmp(key, "ocsp") ? bind_where(b, &c->ocsp, "ocsp") : bind_where(b, &c->cert, "cert");
}

static const struct yaml_node *fault_node(const struct bind *b, const struct config_tls *tls,
                                          const struct config_tls_fault *f)
{
    const struct yaml_node *n = NULL;

    if (f->certificate < tls->ncertificates)
        return certificate_node(b, &tls->certificates[f->certificate], f->key);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (!strcmp(places[i].key, f->key))
            n = bind_where(b, (const char *)tls + places[i].offset, places[i].name);
    return n ? n : bind_where(b, tls, "tls");
}

/* Everything by itself is right: only then it is worth reading files. */
static bool is_whole(const struct bind *b, const struct config_tls *tls)
{
    if (!tls->ncertificates || !bind_where(b, tls, "tls"))
        return false;
    for (size_t i = 0; i < tls->ncertificates; i++)
        if (!tls->certificates[i].cert || !tls->certificates[i].key)
            return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (bind_where(b, (const char *)tls + places[i].offset, BIND_FAULTY))
            return false;
    return tls->ciphers && tls->ciphersuites && tls->curves;
}

static void check_auth(struct validate *v, const struct config_tls *tls)
{
    const struct yaml_node *mode = bind_where(v->b, &tls->client_auth, "mode"),
                           *ca = bind_where(v->b, &tls->client_ca, "ca");

    if (mode && tls->client_auth != CONFIG_AUTH_NONE && !tls->client_ca &&
        !bind_where(v->b, &tls->client_ca, BIND_FAULTY))
        bind_fault(v->b, mode, "needs client_auth.ca, which is not given");
    if (ca && tls->client_auth == CONFIG_AUTH_NONE &&
        !bind_where(v->b, &tls->client_auth, BIND_FAULTY))
        bind_fault(v->b, ca, "is of no use with mode none");
}

static void check_alpn(struct validate *v, const struct config_listener *l)
{
    const struct yaml_node *n =
        l->http && l->tls->nalpn ? bind_where(v->b, &l->tls->alpn[0], "[]") : NULL;

    if (n)
        bind_fault(v->b, n, "an HTTP listener offers http/1.1 and nothing else");
}

/* What comes out of the handshake has no ClientHello any more. */
static void check_sni(struct validate *v, const struct config_listener *l)
{
    const struct yaml_node *n =
        l->tunnel && l->tunnel->nsni ? bind_where(v->b, l->tls, "tls") : NULL;

    if (n)
        bind_fault(v->b, n, "TLS either ends here or is passed on by tunnel.sni, not both");
}

static void check_files(struct validate *v, const struct config_tls_checker *c,
                        const struct config_tls *tls)
{
    struct config_tls_fault f;

    if (is_whole(v->b, tls) && !c->check(c->ctx, tls, &f))
        bind_fault(v->b, fault_node(v->b, tls, &f), "%s", f.text);
}

void validate_tls(struct validate *v, const struct config_host *host)
{
    for (size_t i = 0; i < v->s->nlisteners; i++) {
        const struct config_listener *l = &v->s->listeners[i];

        if (!l->tls)
            continue;
        check_auth(v, l->tls);
        check_alpn(v, l);
        check_sni(v, l);
        if (host && host->tls && !config_errors_full(v->b->errs))
            check_files(v, host->tls, l->tls);
    }
}
