/* The rules that look at several values at once: what a key's type can't say. */
#ifndef MILLRACE_CONFIG_VALIDATE_H
#define MILLRACE_CONFIG_VALIDATE_H

#include "config/bind.h"
#include "config/load.h"

/* Reports what is wrong through `b`, whose marks are those of `s`; sets the references to
 * upstreams. Values that bind_snapshot() has reported are left out, so that nothing is said twice.
 * `host` may be NULL. */
void config_validate(struct bind *b, struct snapshot *s, const struct config_host *host);

/* The parts of it. */
struct validate {
    struct bind *b;
    struct snapshot *s;
    /* All of them are known, so what isn't among them is wrong. */
    bool know_addresses, know_gateways, know_upstreams;
};

struct validate_item {
    const char *text;
    const struct yaml_node *node;
};

/* Reports all but the first of equal texts as `what` given twice. Reorders. */
void validate_distinct(struct validate *v, struct validate_item *items, size_t n, const char *what);
/* An item list of at most n; NULL: out of memory, noted. */
struct validate_item *validate_items(struct validate *v, size_t n);

void validate_ports(struct validate *v);                               /* validate_ports.c */
void validate_listeners(struct validate *v);                           /* validate_listeners.c */
void validate_duties(struct validate *v);                              /* validate_duties.c */
void validate_upstreams(struct validate *v);                           /* validate_upstreams.c */
void validate_tls(struct validate *v, const struct config_host *host); /* validate_tls.c */

/* Is it an address of a port? */
bool validate_is_ours(const struct snapshot *s, uint32_t addr);
/* In the subnet of `a`? */
bool validate_is_on(const struct config_addr *a, uint32_t addr);

#endif
