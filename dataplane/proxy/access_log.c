#include "dataplane/proxy/access_log.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/http/message.h"

#define CELL      64u
#define MAX_CELLS 8u
#define FIXED     offsetof(struct access_record, method)

#define TARGET_LEAST 80u

/* A packed record: its length, the fixed part, the ids that there are, then each text; a text is a
 * length byte and its bytes; of the target, what there is room for. */
#define TEXTS(X)       X(method) X(listener) X(upstream) X(host)
#define TEXT_MAX(name) +sizeof(((struct access_record *)0)->name)
static_assert(sizeof(uint16_t) + FIXED + ACCESS_TRACE_ID + 16 + sizeof(struct access_tls) +
                      ACCESS_REQUEST_ID + (0 TEXTS(TEXT_MAX)) + TARGET_LEAST <=
                  MAX_CELLS * CELL,
              "a record fits");
static_assert(sizeof(((struct access_record *)0)->target) <= 256, "its length is a byte");

/* Single producer, single consumer; positions count cells and wrap. `tail_` is written by the core
 * with release and read by the log thread with acquire: it publishes the cells. `head_` is written
 * by the log thread with release and read by the core with acquire: it gives them back. */
struct access_ring {
    uint32_t mask;       /* of cells */
    uint32_t head_seen_; /* producer's last look at head_ */
    _Alignas(CELL) _Atomic uint32_t head_;
    _Alignas(CELL) _Atomic uint32_t tail_;
    _Atomic uint64_t dropped_;
    _Alignas(CELL) unsigned char cells[];
};

static const char *const reason_names[] = {
#define REASON(name, text) #name,
#include "dataplane/proxy/reason.def"
#undef REASON
};

const char *access_reason_name(enum access_reason r)
{
    return (unsigned)r < ACCESS_REASON_COUNT ? reason_names[r] : "?";
}

const char *access_http_error_name(uint8_t error)
{
    return http_error_name((enum http_error)error);
}

struct access_ring *access_ring_new(uint32_t size)
{
    uint32_t cells = 16 * MAX_CELLS;
    while (cells < (uint64_t)size * MAX_CELLS && cells < 1u << 27)
        cells <<= 1;
    struct access_ring *r = aligned_alloc(CELL, sizeof(*r) + (size_t)cells * CELL);
    if (!r)
        return NULL;
    r->mask = cells - 1;
    r->head_seen_ = 0;
    atomic_init(&r->head_, 0);
    atomic_init(&r->tail_, 0);
    atomic_init(&r->dropped_, 0);
    return r;
}

void access_ring_free(struct access_ring *r)
{
    free(r);
}

static unsigned char *pack_text(unsigned char *to, const char *text)
{
    size_t n = strlen(text);
    *to = (unsigned char)n;
    memcpy(to + 1, text, n + 1); /* the next text's length takes the place of the NUL */
    return to + 1 + n;
}

static unsigned char *pack_some(unsigned char *to, const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    *to = (unsigned char)n;
    memcpy(to + 1, text, n);
    return to + 1 + n;
}

static uint32_t pack(unsigned char *to, const struct access_record *record)
{
    unsigned char *p = to + sizeof(uint16_t);
    memcpy(p, record, FIXED);
    p += FIXED;
    if (record->has_id)
        p = pack_text(p, record->request_id);
    if (record->has_trace) {
        memcpy(p, record->trace_id, ACCESS_TRACE_ID);
        p += ACCESS_TRACE_ID;
    }
    if (record->has_ip6) {
        memcpy(p, record->client_ip6, sizeof(record->client_ip6));
        p += sizeof(record->client_ip6);
    }
    if (record->has_tls) {
        memcpy(p, &record->tls, sizeof(record->tls));
        p += sizeof(record->tls);
    }
#define PACK(name) p = pack_text(p, record->name);
    TEXTS(PACK)
#undef PACK
    p = pack_some(p, record->target, (size_t)(to + MAX_CELLS * CELL - p) - 2);
    uint16_t len = (uint16_t)(p - to);
    memcpy(to, &len, sizeof(len));
    return len;
}

static const unsigned char *unpack_text(const unsigned char *from, char *to)
{
    memcpy(to, from + 1, *from);
    to[*from] = 0;
    return from + 1 + *from;
}

static uint32_t cells_of(uint32_t bytes)
{
    return (bytes + CELL - 1) / CELL;
}

/* How many of `len` bytes from cell `at` on stand before the end; the rest goes on at the front. */
static size_t before_end(const struct access_ring *r, uint32_t at, size_t len)
{
    size_t left = ((size_t)r->mask + 1 - (at & r->mask)) * CELL;
    return len < left ? len : left;
}

static void copy_in(struct access_ring *r, uint32_t at, const unsigned char *bytes, uint32_t len)
{
    size_t first = before_end(r, at, len);
    memcpy(r->cells + (size_t)(at & r->mask) * CELL, bytes, first);
    memcpy(r->cells, bytes + first, len - first);
}

static void copy_out(const struct access_ring *r, uint32_t at, unsigned char *bytes, uint32_t len)
{
    size_t first = before_end(r, at, len);
    memcpy(bytes, r->cells + (size_t)(at & r->mask) * CELL, first);
    memcpy(bytes + first, r->cells, len - first);
}

bool access_ring_put(struct access_ring *r, const struct access_record *record)
{
    unsigned char bytes[MAX_CELLS * CELL];
    uint32_t len = pack(bytes, record), need = cells_of(len);
    uint32_t tail = atomic_load_explicit(&r->tail_, memory_order_relaxed);
    if (tail - r->head_seen_ + need > r->mask + 1)
        r->head_seen_ = atomic_load_explicit(&r->head_, memory_order_acquire);
    if (tail - r->head_seen_ + need > r->mask + 1) {
        atomic_fetch_add_explicit(&r->dropped_, 1, memory_order_relaxed);
        return false;
    }
    copy_in(r, tail, bytes, len);
    atomic_store_explicit(&r->tail_, tail + need, memory_order_release);
    return true;
}

bool access_ring_take(struct access_ring *r, struct access_record *ret_record)
{
    unsigned char bytes[MAX_CELLS * CELL];
    uint32_t head = atomic_load_explicit(&r->head_, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&r->tail_, memory_order_acquire);
    uint16_t len;
    if (head == tail)
        return false;
    copy_out(r, head, (unsigned char *)&len, sizeof(len));
    copy_out(r, head, bytes, len);
    memcpy(ret_record, bytes + sizeof(len), FIXED);
    const unsigned char *p = bytes + sizeof(len) + FIXED;
    if (ret_record->has_id)
        p = unpack_text(p, ret_record->request_id);
    if (ret_record->has_trace) {
        memcpy(ret_record->trace_id, p, ACCESS_TRACE_ID);
        p += ACCESS_TRACE_ID;
    }
    if (ret_record->has_ip6) {
        memcpy(ret_record->client_ip6, p, sizeof(ret_record->client_ip6));
        p += sizeof(ret_record->client_ip6);
    }
    if (ret_record->has_tls) {
        memcpy(&ret_record->tls, p, sizeof(ret_record->tls));
        p += sizeof(ret_record->tls);
    }
#define UNPACK(name) p = unpack_text(p, ret_record->name);
    TEXTS(UNPACK)
    UNPACK(target)
#undef UNPACK
    assert(p == bytes + len);
    atomic_store_explicit(&r->head_, head + cells_of(len), memory_order_release);
    return true;
}

uint64_t access_ring_dropped(const struct access_ring *r)
{
    return atomic_load_explicit(&r->dropped_, memory_order_relaxed);
}
