#include "dataplane/tls/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "dataplane/tls/pem.h"
#include "dataplane/tls/tickets.h"
#include "runtime/list.h"

struct entry {
    struct list_node node;
    uint8_t words[TLS_ID], id[TLS_ID];
    struct tls_context *context;
    uint64_t version; /* the newest snapshot that names it */
};

/* Keys of a file are one object as long as its path is in use, so that a change of the file changes
 * nothing else. */
struct shared_keys {
    struct list_node node;
    char *path;
    struct tls_tickets *tickets;
    uint64_t version;
};

struct tls_registry {
    unsigned ncores;
    struct list_node entries; /* struct entry */
    struct list_node keys;    /* struct shared_keys */
    struct tls_tickets *own;
};

struct tls_registry *tls_registry_new(unsigned ncores)
{
    struct tls_registry *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->ncores = ncores;
    list_init(&r->entries);
    list_init(&r->keys);
    r->own = tls_library_init() == 0 ? tls_tickets_new() : NULL;
    if (r->own)
        return r;
    free(r);
    return NULL;
}

static void entry_free(struct entry *e)
{
    list_remove(&e->node);
    tls_context_put(e->context);
    free(e);
}

static void keys_free(struct shared_keys *k)
{
    list_remove(&k->node);
    tls_tickets_put(k->tickets);
    free(k->path);
    free(k);
}

void tls_registry_tidy(struct tls_registry *r, uint64_t acked)
{
    list_for_each_safe(n, tmp, &r->entries)
    {
        struct entry *e = container_of(n, struct entry, node);
        if (e->version < acked)
            entry_free(e);
    }
    list_for_each_safe(n, tmp, &r->keys)
    {
        struct shared_keys *k = container_of(n, struct shared_keys, node);
        if (k->version < acked)
            keys_free(k);
    }
}

void tls_registry_free(struct tls_registry *r)
{
    if (!r)
        return;
    tls_registry_tidy(r, UINT64_MAX);
    tls_tickets_put(r->own);
    free(r);
}

int tls_registry_rotate(struct tls_registry *r)
{
    return tls_tickets_rotate(r->own);
}

/* --- ticket keys ---------------------------------------------------------------------------------
 */

static int read_keys(const char *path, struct tls_ticket_key keys[TLS_TICKET_KEYS], int *ret_n,
                     struct config_tls_fault *fault)
{
    struct blob b = {0};
    fault->key = "tickets.keys";
    if (blob_read(path, &b, fault) < 0)
        return -EINVAL;
    *ret_n = tls_tickets_parse(b.bytes, b.len, keys);
    blob_free(&b);
    if (*ret_n > 0)
        return 0;
    fault_say(fault, "expected 1 to %d lines, each %d bytes in base64", TLS_TICKET_KEYS,
              TLS_TICKET_KEY);
    return -EINVAL;
}

static struct shared_keys *keys_find(struct tls_registry *r, const char *path)
{
    list_for_each(n, &r->keys)
    {
        struct shared_keys *k = container_of(n, struct shared_keys, node);
        if (strcmp(k->path, path) == 0)
            return k;
    }
    return NULL;
}

static struct shared_keys *keys_new(struct tls_registry *r, const char *path)
{
    struct shared_keys *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    k->path = strdup(path);
    k->tickets = tls_tickets_new();
    list_push_tail(&r->keys, &k->node);
    if (k->path && k->tickets)
        return k;
    keys_free(k);
    return NULL;
}

static int keys_of_file(struct tls_registry *r, const char *path, uint64_t version,
                        struct tls_tickets **ret, struct config_tls_fault *fault)
{
    struct tls_ticket_key keys[TLS_TICKET_KEYS];
    int n = 0;
    int err = read_keys(path, keys, &n, fault);
    struct shared_keys *k = err ? NULL : keys_find(r, path);
    if (!err && !k)
        k = keys_new(r, path);
    if (!err)
        err = k ? tls_tickets_replace(k->tickets, keys, (size_t)n) : -ENOMEM;
    OPENSSL_cleanse(keys, sizeof(keys));
    if (err)
        return err;
    k->version = version;
    *ret = k->tickets;
    return 0;
}

/* --- contexts ------------------------------------------------------------------------------------
 */

static struct entry *find(struct tls_registry *r, const uint8_t id[TLS_ID])
{
    list_for_each(n, &r->entries)
    {
        struct entry *e = container_of(n, struct entry, node);
        if (memcmp(e->id, id, TLS_ID) == 0)
            return e;
    }
    return NULL;
}

/* What the same configuration had before. */
static struct entry *find_before(struct tls_registry *r, const uint8_t words[TLS_ID])
{
    struct entry *newest = NULL;
    list_for_each(n, &r->entries)
    {
        struct entry *e = container_of(n, struct entry, node);
        if (memcmp(e->words, words, TLS_ID) == 0 && (!newest || e->version > newest->version))
            newest = e;
    }
    return newest;
}

struct ids {
    uint8_t words[TLS_ID], id[TLS_ID];
};

static int make(struct tls_registry *r, const struct tls_build *b, const struct ids *ids,
                struct entry **ret, struct config_tls_fault *fault)
{
    struct entry *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    int err = tls_context_new(b, &e->context, fault);
    if (err) {
        free(e);
        return err;
    }
    memcpy(e->words, ids->words, TLS_ID);
    memcpy(e->id, ids->id, TLS_ID);
    list_push_tail(&r->entries, &e->node);
    *ret = e;
    return 0;
}

static int choose_tickets(struct tls_registry *r, const struct config_tls *cfg, uint64_t version,
                          struct tls_tickets **ret, struct config_tls_fault *fault)
{
    *ret = cfg->tickets ? r->own : NULL;
    if (!cfg->tickets || !cfg->ticket_keys)
        return 0;
    int err = keys_of_file(r, cfg->ticket_keys, version, ret, fault);
    struct shared_keys *k = err == -EINVAL ? keys_find(r, cfg->ticket_keys) : NULL;
    if (k) /* those that it had */
        k->version = version;
    return err;
}

static int prepare(struct tls_registry *r, struct config_listener *l, struct tls_build *b,
                   uint64_t version, struct config_tls_fault *fault)
{
    struct ids ids;
    struct entry *e = NULL;
    b->cfg = l->tls;
    b->http = l->http != NULL;
    int err = tls_context_identify(l->tls, b->http, ids.words, ids.id, fault);
    int err_keys = choose_tickets(r, l->tls, version, &b->tickets, fault);
    if (!err)
        e = find(r, ids.id);
    if (!err && !e)
        err = err_keys ? err_keys : make(r, b, &ids, &e, fault);
    if (err == -EINVAL)
        e = find_before(r, ids.words);
    if (!e)
        return err;
    e->version = version;
    l->tls->context = e->context;
    return 0;
}

int tls_registry_prepare(struct tls_registry *r, struct snapshot *s,
                         struct config_tls_fault *ret_fault, const char **ret_listener)
{
    struct tls_build b = {.ncores = r->ncores, .any_time = true};
    int err = 0;
    for (size_t i = 0; i < s->nlisteners && !err; i++) {
        struct config_listener *l = &s->listeners[i];
        *ret_listener = l->name;
        if (l->tls)
            err = prepare(r, l, &b, s->version, ret_fault);
    }
    return err;
}

bool tls_context_check(const struct config_tls *cfg, bool any_time, int64_t wall_s,
                       struct config_tls_fault *ret_fault)
{
    struct tls_build b = {.cfg = cfg, .ncores = 1, .wall_s = wall_s, .any_time = any_time};
    struct tls_ticket_key keys[TLS_TICKET_KEYS];
    struct tls_context *c;
    int n;
    if (tls_library_init() != 0)
        return true;
    if (cfg->tickets && cfg->ticket_keys) {
        *ret_fault = (struct config_tls_fault){.certificate = SIZE_MAX};
        if (read_keys(cfg->ticket_keys, keys, &n, ret_fault) < 0)
            return false;
        OPENSSL_cleanse(keys, sizeof(keys));
    }
    int err = tls_context_new(&b, &c, ret_fault);
    if (!err)
        tls_context_put(c);
    return err != -EINVAL;
}
