/* Every client connection of a core by a number that stays its own while it lives: what a walk in
 * pieces goes by. Private to proxy/. */
#ifndef MILLRACE_DATAPLANE_PROXY_CONN_TABLE_H
#define MILLRACE_DATAPLANE_PROXY_CONN_TABLE_H

#include <stdint.h>

#define CONN_CHUNK  1024u
#define CONN_CHUNKS 4096u

struct conn;

struct conn_slot {
    struct conn *conn; /* NULL: free */
    uint32_t next;     /* free slot after a free one; 0: none */
};

/* Zeroed memory is an empty table. */
struct conn_table {
    struct conn_slot *chunks_[CONN_CHUNKS];
    uint32_t made_; /* slots in the chunks */
    uint32_t free_; /* number of a free slot, which links to the next; 0: none */
};

/* Numbers from 1. 0: no memory, the connection can't be listed. */
uint32_t conn_table_put(struct conn_table *t, struct conn *c);
/* Of 0: nothing. */
void conn_table_take(struct conn_table *t, uint32_t number);
void conn_table_fini(struct conn_table *t);

/* NULL: nobody has it now. */
struct conn *conn_table_at(const struct conn_table *t, uint32_t number);

/* No connection has a greater number. */
static inline uint32_t conn_table_last(const struct conn_table *t)
{
    return t->made_;
}

#endif
