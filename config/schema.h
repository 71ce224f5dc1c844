/* The one table of configuration keys. Reading, checking, defaults, the JSON Schema,
 * docs/config.md, "did you mean", diffs and copies all walk it.
 *
 * A group describes a mapping and the struct that it fills; a key, one of its entries. Values are
 * read, written and compared through their type.
 */
#ifndef MILLRACE_CONFIG_SCHEMA_H
#define MILLRACE_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "config/arena.h"
#include "config/yaml.h"

#define CONFIG_KEYS_MAX 32 /* of a group */

enum config_kind {
    CONFIG_VALUE,    /* a scalar */
    CONFIG_VALUES,   /* a list of scalars */
    CONFIG_GROUP,    /* a mapping whose struct is embedded; absent: its defaults */
    CONFIG_OPTIONAL, /* a mapping whose struct hangs off a pointer; absent: NULL */
    CONFIG_LIST,     /* a list of mappings */
};

struct config_key;

/* What a scalar means. `field` is the place in the struct. */
struct config_type {
    const char *name;     /* in docs */
    const char *plural;   /* in docs; NULL: never in a list */
    const char *expected; /* "a duration such as 200ms, 5s, 2m or 1h" */
    const char *pattern;  /* for the JSON Schema; NULL: any text */
    bool plain;           /* written without quotes: a number or a boolean */
    /* NULL: stored. Else what is wrong, for a message; in `a` or static. */
    const char *(*parse)(const struct config_key *k, const struct yaml_node *n, struct arena *a,
                         void *field);
    /* As the file would have it; nothing if there is no value. */
    void (*format)(const struct config_key *k, const void *field, FILE *f);
    /* Replaces pointers in a field that was copied byte by byte. NULL: it has none. False: out of
     * memory. */
    bool (*copy)(void *field, struct arena *a);
};

struct config_key {
    const char *name;
    enum config_kind kind;
    const struct config_type *type;   /* of scalars */
    const struct config_group *group; /* of mappings */
    size_t offset;                    /* of the field; of a list: the pointer or the array */
    size_t width;                     /* of a scalar, or of a list's element */
    size_t count_offset, count_width; /* of a list's length */
    bool in_place;                    /* the list is an array in the struct with max elements */
    bool required;
    bool frozen;   /* values: can't change live. Lists and optional groups: nothing comes or goes */
    bool may_wait; /* frozen for the listeners that must wait for a restart: held.h */
    const char *initial; /* as the file would have it; NULL: none */
    uint64_t min, max;   /* of numbers, in their unit; of a list's length */
    const char *word;    /* stands for `word_value`; for text, for "none" */
    uint64_t word_value;
    const char *const *choices; /* of enums, in order; of paths, words that are kept as they are */
    const char *doc, *example;
};

struct config_group {
    const char *name; /* in docs */
    const char *doc;
    size_t size;                    /* of the struct */
    const struct config_key *keys;  /* up to a NULL name */
    const char *const *exactly_one; /* of these keys; NULL: no such rule */
    /* What tells members of a list apart; NULL: not in a list. */
    void (*identity)(const void *base, FILE *f);
    const char *shorthand; /* a scalar instead of the mapping is this key's value; NULL: never */
};

extern const struct config_group config_root, config_listener_group;
extern const struct config_group config_upstream_group; /* schema_upstream.c */

const struct config_key *config_key_find(const struct config_group *g, const char *name,
                                         size_t len);

/* Lists, with either way of storing them. */
size_t config_list_count(const struct config_key *k, const void *base);
void *config_list_at(const struct config_key *k, const void *base, size_t i);
/* Room for n zeroed elements. False: out of memory. */
bool config_list_make(const struct config_key *k, void *base, size_t n, struct arena *a);

/* A key's field in its group's struct. */
void *config_field(const struct config_key *k, const void *base);
/* The struct of a GROUP or OPTIONAL below `base`; NULL: an optional one that is absent. */
void *config_child(const struct config_key *k, const void *base);

/* printf into the arena, for messages; "" when memory runs out. */
const char *config_say(struct arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What keeps a path that starts with "/" from being in its normal form (dataplane/http/
 * normalize.h); NULL: it is in it. */
const char *config_path_fault(const char *p, size_t len);

/* Numbers of any width. */
void config_store(void *field, size_t width, uint64_t value);
uint64_t config_fetch(const void *field, size_t width);

/* Numbers, types_number.c. */
extern const struct config_type config_integer, config_duration, config_size, config_cpu,
    config_boolean, config_choice, config_percent, config_status_range;
/* Text and addresses, types_text.c and types_address.c. */
extern const struct config_type config_name, config_text, config_phrase, config_token,
    config_field_name, config_device, config_path, config_probe_path, config_socket,
    config_reference, config_host_pattern, config_server_name, config_path_prefix, config_ip,
    config_cidr, config_endpoint, config_listen;
/* What the edge's own duties need, types_duties.c. */
extern const struct config_type config_network, config_rate, config_request_header,
    config_response_header, config_id_header, config_request_value, config_response_value,
    config_location, config_redirect_status, config_new_prefix, config_authority, config_body;

#endif
