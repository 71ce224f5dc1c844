#include "dataplane/route/sni.h"

#include <string.h>

static bool has_name(const struct config_sni *s, const struct client_hello *h)
{
    switch (s->host_kind) {
    case CONFIG_HOST_ANY:
        return true;
    case CONFIG_HOST_EXACT:
        return h->name_len == s->host_len && memcmp(h->name, s->host, s->host_len) == 0;
    case CONFIG_HOST_SUFFIX: /* ".example.com": at least one label in front of it */
        return h->name_len > s->host_len &&
               memcmp(h->name + h->name_len - s->host_len, s->host, s->host_len) == 0;
    }
    return false;
}

static bool has_protocol(const struct config_sni *s, const struct client_hello *h)
{
    for (size_t i = 0; i < s->nalpn; i++)
        if (client_hello_offers(h, s->alpn[i]))
            return true;
    return s->nalpn == 0;
}

const struct config_upstream *sni_match(const struct config_tunnel *t, const struct client_hello *h)
{
    for (size_t i = 0; i < t->nsni; i++)
        if (has_name(&t->sni[i], h) && has_protocol(&t->sni[i], h))
            return t->sni[i].upstream;
    return t->upstream;
}
