#include "dataplane/proxy/hello.h"

#include <errno.h>
#include <string.h>

#include "dataplane/route/sni.h"

static enum turned_away reason_of(int err)
{
    switch (err) {
    case -ENOMSG:
        return TURNED_AWAY_hello_not_tls;
    case -EMSGSIZE:
        return TURNED_AWAY_hello_too_large;
    default:
        return TURNED_AWAY_hello_malformed;
    }
}

static const struct config_upstream *choose(struct tunnel_hello *h, struct proxy *p,
                                            const struct config_tunnel *t, const struct rope *in,
                                            enum turned_away *ret_why)
{
    struct client_hello hello;
    const uint8_t *message = hello_reader_message(&h->reader, in, p->hello);
    if (client_hello_parse(message, h->reader.message, &hello) != 0) {
        *ret_why = TURNED_AWAY_hello_malformed;
        return NULL;
    }
    memcpy(h->name, hello.name, hello.name_len + 1);
    *ret_why = TURNED_AWAY_hello_unmatched;
    return sni_match(t, &hello);
}

bool hello_route(struct tunnel_hello *h, struct listener *l, const struct rope *in,
                 const struct config_upstream **ret_upstream, enum turned_away *ret_why)
{
    const struct config_tunnel *t = l->cfg->tunnel;
    int n = hello_reader_scan(&h->reader, in, t->hello_size);
    if (n == 0)
        return false;
    if (n == -ENOMSG && t->not_tls == CONFIG_NOT_TLS_PASS) {
        *ret_upstream = t->upstream;
    } else if (n < 0) {
        *ret_why = reason_of(n);
        *ret_upstream = NULL;
    } else {
        *ret_upstream = choose(h, l->proxy, t, in, ret_why);
    }
    return true;
}
