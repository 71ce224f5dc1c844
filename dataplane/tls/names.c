#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/x509v3.h>

#include "dataplane/tls/context_priv.h"

/* False: it is none that a client could ask for. */
static bool lower(const char *from, size_t len, char to[TLS_NAME_MAX + 1])
{
    if (len > 0 && from[len - 1] == '.')
        len--;
    if (len == 0 || len > TLS_NAME_MAX || memchr(from, 0, len))
        return false;
    for (size_t i = 0; i < len; i++)
        to[i] = (char)tolower((unsigned char)from[i]);
    to[len] = 0;
    return true;
}

static int add(struct tls_context *c, unsigned cert, const char *text, size_t len)
{
    char name[TLS_NAME_MAX + 1];
    if (!lower(text, len, name))
        return 0;
    struct tls_name *more = realloc(c->names, (c->nnames + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    c->names = more;
    more[c->nnames] = (struct tls_name){.text = strdup(name), .cert = cert};
    if (!more[c->nnames].text)
        return -ENOMEM;
    c->nnames++;
    if (c->certs[cert].name)
        return 0;
    c->certs[cert].name = strdup(name);
    return c->certs[cert].name ? 0 : -ENOMEM;
}

static int add_string(struct tls_context *c, unsigned cert, const ASN1_STRING *s)
{
    return add(c, cert, (const char *)ASN1_STRING_get0_data(s), (size_t)ASN1_STRING_length(s));
}

/* RFC 6125 §6.4.4: the common name counts only where there is no subjectAltName of DNS. */
static int add_common_name(struct tls_context *c, unsigned cert, X509 *leaf)
{
    const X509_NAME *subject = X509_get_subject_name(leaf);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0)
        return 0;
    return add_string(c, cert, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

int names_add(struct tls_context *c, unsigned cert, X509 *leaf)
{
    GENERAL_NAMES *alt = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    size_t before = c->nnames;
    int err = 0;
    for (int i = 0; alt && i < sk_GENERAL_NAME_num(alt) && !err; i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(alt, i);
        if (n->type == GEN_DNS)
            err = add_string(c, cert, n->d.dNSName);
    }
    GENERAL_NAMES_free(alt);
    return err || c->nnames > before ? err : add_common_name(c, cert, leaf);
}

static int by_name(const void *a, const void *b)
{
    const struct tls_name *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->cert > y->cert) - (x->cert < y->cert);
}

static bool has_type(const struct tls_context *c, const struct tls_group *g, unsigned cert)
{
    for (unsigned i = 0; i < g->n; i++)
        if (strcmp(c->certs[g->certs[i]].type, c->certs[cert].type) == 0)
            return true;
    return false;
}

/* Of two with the same kind of key the one that stands first in the file serves the name. */
static void take(const struct tls_context *c, struct tls_group *g, unsigned cert)
{
    if (g->n < sizeof(g->certs) / sizeof(g->certs[0]) && !has_type(c, g, cert))
        g->certs[g->n++] = cert;
}

static unsigned intern(struct tls_context *c, const struct tls_group *g)
{
    for (unsigned i = 0; i < c->ngroups; i++)
        if (c->groups[i].n == g->n &&
            memcmp(c->groups[i].certs, g->certs, g->n * sizeof(g->certs[0])) == 0)
            return i;
    c->groups[c->ngroups] = *g;
    return (unsigned)c->ngroups++;
}

/* All with the name at `first`; returns where the next name begins. */
static size_t group_name(struct tls_context *c, size_t first, struct tls_group *ret)
{
    size_t i = first;
    *ret = (struct tls_group){.n = 0};
    for (; i < c->nnames && strcmp(c->names[i].text, c->names[first].text) == 0; i++)
        take(c, ret, c->names[i].cert);
    return i;
}

/* The default serves what nobody asks for by name: the first certificate, and those that share its
 * first name. */
static void group_default(struct tls_context *c)
{
    struct tls_group g = {.certs = {0}, .n = 1};
    for (size_t i = 0; i < c->nnames; i++)
        if (c->certs[0].name && strcmp(c->names[i].text, c->certs[0].name) == 0)
            take(c, &g, c->names[i].cert);
    intern(c, &g);
}

int names_group(struct tls_context *c)
{
    struct tls_group g;
    size_t kept = 0;
    if (c->nnames)
        qsort(c->names, c->nnames, sizeof(c->names[0]), by_name);
    c->groups = calloc(c->nnames + 1, sizeof(c->groups[0]));
    if (!c->groups)
        return -ENOMEM;
    group_default(c);
    for (size_t i = 0; i < c->nnames;) {
        size_t next = group_name(c, i, &g);
        for (size_t j = i + 1; j < next; j++)
            free(c->names[j].text);
        c->names[i].group = intern(c, &g);
        c->names[kept++] = c->names[i];
        i = next;
    }
    c->nnames = kept;
    return 0;
}

void names_free(struct tls_context *c)
{
    for (size_t i = 0; i < c->nnames; i++)
        free(c->names[i].text);
    free(c->names);
    free(c->groups);
}

static const struct tls_name *look_up(const struct tls_context *c, const char *text)
{
    size_t lo = 0, hi = c->nnames;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(c->names[mid].text, text);
        if (order == 0)
            return &c->names[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* RFC 6125 §6.4.3: "*" stands for one label, the first. */
unsigned names_find(const struct tls_context *c, const char *name)
{
    char wanted[TLS_NAME_MAX + 1], wild[TLS_NAME_MAX + 2];
    if (!lower(name, strlen(name), wanted))
        return 0;
    const struct tls_name *n = look_up(c, wanted);
    const char *dot = strchr(wanted, '.');
    if (!n && dot) {
        snprintf(wild, sizeof(wild), "*%s", dot);
        n = look_up(c, wild);
    }
    return n ? n->group : 0;
}
