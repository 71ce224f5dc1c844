/* What the edge does itself, before and around an exchange: who may come in, how often, what is
 * answered at once and what is changed on the way. A part of the snapshot (snapshot.h), with its
 * rules of ownership and units.
 */
#ifndef MILLRACE_CONFIG_DUTIES_H
#define MILLRACE_CONFIG_DUTIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_addr;

/* Addresses in host order, both ends included. */
struct config_range {
    uint32_t lo, hi;
};

enum config_refuse { CONFIG_REFUSE_RESET, CONFIG_REFUSE_SILENT };

/* Who may come in: whom `allow` names (absent: everybody) and `deny` doesn't. */
struct config_access {
    struct config_addr *allow, *deny;
    size_t nallow, ndeny;
    enum config_refuse refuse;   /* a listener's */
    struct config_range *inside; /* what that comes to: sorted, none touches the next */
    size_t ninside;
};

enum config_others { CONFIG_OTHERS_PASS, CONFIG_OTHERS_REFUSE };

/* PROXY headers at a listener: of whom they are believed. */
struct config_proxy_protocol {
    struct config_addr *from;
    size_t nfrom;
    struct config_range *inside; /* the same as ranges */
    size_t ninside;
    bool required; /* those who are believed must send one */
    enum config_others others;
    uint64_t timeout; /* for the whole of it */
};

/* `count` in `seconds`; count 0: no limit. */
struct config_rate {
    uint32_t count;
    uint32_t seconds; /* 1, 60 or 3600 */
};

/* A limit of a client's, as GCRA has it: one every `interval`, and up to `slack` ahead of that. */
struct config_limit {
    struct config_rate rate;
    uint32_t burst;    /* at once, after a pause; 0: what one second brings */
    uint32_t id;       /* its own in the snapshot, 31 bits; as a rule the same in the next one */
    uint64_t interval; /* ns, rounded up; 0: no limit */
    uint64_t slack;    /* ns */
};

/* Of each client's address at a listener. */
struct config_per_client {
    struct config_limit rate; /* of new connections */
    uint32_t connections;     /* at once; 0: no limit */
};

enum config_variable {
    CONFIG_VAR_none,
#define VARIABLE(name, where, doc) CONFIG_VAR_##name,
#include "config/variable.def"
#undef VARIABLE
    CONFIG_VARIABLES
};

/* Literal text, then a variable's. */
struct config_part {
    const char *text;
    uint32_t len;
    uint8_t variable; /* enum config_variable */
};

struct config_template {
    const char *text; /* as the file has it */
    struct config_part *parts;
    uint32_t nparts;
    uint32_t variables; /* a bit for each that occurs */
};

struct config_header {
    const char *name; /* a token */
    struct config_template value;
};

/* In this order: removed, set (replaces what was there), added. */
struct config_header_edit {
    const char **remove;
    size_t nremove;
    struct config_header *set, *add;
    size_t nset, nadd;
};

struct config_headers {
    struct config_header_edit request, response;
};

struct config_redirect {
    struct config_template location;
    uint16_t status;
};

struct config_rewrite {
    const char *prefix; /* takes the place of the route's; NULL: the path stays */
    const char *host;   /* takes the place of Host; NULL: that stays */
};

struct config_maintenance {
    const char *body;     /* NULL: the status in words */
    uint64_t retry_after; /* ns; 0: none is named */
    uint16_t status;
    bool enabled;
};

struct config_request_id {
    const char *header;
    struct config_addr *trust; /* clients whose own ids are kept */
    size_t ntrust;
    struct config_range *inside; /* the same as ranges */
    size_t ninside;
};

/* traceparent (W3C Trace Context): what a trace that begins here says of sampling. */
enum config_trace { CONFIG_TRACE_OFF, CONFIG_TRACE_UNSAMPLED, CONFIG_TRACE_SAMPLED };

#endif
