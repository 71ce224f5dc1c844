#include "config/schema_tunnel.h"

#include "config/schema_terms.h"
#include "config/snapshot.h"

static const char *const not_tls_choices[] = {"refuse", "pass", NULL};

static void sni_identity(const void *base, FILE *f)
{
    const struct config_sni *s = base;

    config_server_name.format(NULL, s, f);
    for (size_t i = 0; i < s->nalpn; i++)
        fprintf(f, " %s", s->alpn[i] ? s->alpn[i] : "");
}

static const struct config_key sni_keys[] = {
    {"match", CONFIG_VALUE, &config_server_name, .required = true, .example = "\"*.example.com\"",
     .doc =
         "The name that the client asks for: `www.example.com`: that one; `*.example.com`: every "
         "name below it; `*`: any, or none."},
    {"alpn", CONFIG_VALUES, &config_text, ELEMENTS(config_sni, alpn, nalpn), RANGE(1, 16),
     .example = "[h2, http/1.1]",
     .doc = "Protocols of which the client must offer one. Absent: whatever it offers."},
    {"upstream", CONFIG_VALUE, &config_reference, FIELD(config_sni, upstream), .required = true,
     .example = "app", .doc = "Where it goes."},
    END,
};
static const struct config_group sni_group = {
    "sni",
    "Where a TLS connection goes that isn't terminated here, by its ClientHello. The most specific "
    "name first; of one name, an entry with `alpn` before one without, then the order here. With "
    "Encrypted Client Hello it is the outer name that counts.",
    sizeof(struct config_sni),
    sni_keys,
    NULL,
    sni_identity};

static const struct config_key hello_keys[] = {
    {"timeout", CONFIG_VALUE, &config_duration, FIELD(config_tunnel, hello_timeout),
     .initial = "5s", RANGE(1 * MS, 5 * MIN),
     .doc = "From the connection's start to the end of the ClientHello; then it is reset."},
    {"size", CONFIG_VALUE, &config_size, FIELD(config_tunnel, hello_size), .initial = "16KiB",
     RANGE(512, 64 * KIB), .doc = "Of the ClientHello on the wire; what is larger is reset."},
    {"not_tls", CONFIG_VALUE, &config_choice, FIELD(config_tunnel, not_tls), .initial = "refuse",
     .choices = not_tls_choices,
     .doc = "What begins like no TLS is reset (`refuse`), or goes to the tunnel's `upstream` "
            "(`pass`)."},
    END,
};
static const struct config_group hello_group = {
    "hello", "The ClientHello that `sni` goes by.", sizeof(struct config_tunnel), hello_keys, NULL,
    NULL};

static const struct config_key timeout_keys[] = {
    {"idle", CONFIG_VALUE, &config_duration, FIELD(config_tunnel, idle_timeout), .initial = "5m",
     RANGE(1 * MS, 24 * HR),
     .doc = "Without a byte in either direction; then both ends are closed."},
    END,
};
static const struct config_group timeouts = {
    "timeouts", "Times of a tunnel.", sizeof(struct config_tunnel), timeout_keys, NULL, NULL};

static const struct config_key tunnel_keys[] = {
    {"upstream", CONFIG_VALUE, &config_reference, FIELD(config_tunnel, upstream), .example = "app",
     .doc = "Name of the upstream at the other end; with `sni`, for what no entry matches: absent "
            "then, that is reset."},
    {"sni", CONFIG_LIST, .group = &sni_group, ELEMENTS(config_tunnel, sni, nsni), RANGE(1, 1024),
     .doc = "Goes by the name in the TLS ClientHello, which is passed on untouched."},
    {"hello", CONFIG_GROUP, .group = &hello_group, .doc = "The ClientHello that `sni` goes by."},
    {"timeouts", CONFIG_GROUP, .group = &timeouts, .doc = "Times of a tunnel."},
    {"access_log", CONFIG_VALUE, &config_boolean, FIELD(config_tunnel, access_log),
     .initial = "true", .doc = "Whether tunnels are written to `log.access`, each when it ends."},
    END,
};
const struct config_group config_tunnel_group = {"tunnel",
                                                 "A TCP tunnel: bytes both ways, as they are.",
                                                 sizeof(struct config_tunnel),
                                                 tunnel_keys,
                                                 NULL,
                                                 NULL};
