#include "tests/kit/eal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#if defined(__SANITIZE_ADDRESS__)
#define KIT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KIT_ASAN 1
#endif
#endif
#ifdef KIT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

#define POISON_BYTE 0xdb

void kit_eal_init(void)
{
    static bool done; /* one EAL a process is DPDK's own rule */
    if (done)
        return;
    char *argv[] = {(char *)"test",     (char *)"--no-huge",      (char *)"--no-shconf",
                    (char *)"--no-pci", (char *)"--no-telemetry", (char *)"-m",
                    (char *)"512",      (char *)"--log-level=3",  NULL};
    if (rte_eal_init(8, argv) < 0) {
        fprintf(stderr, "rte_eal_init: %s\n", rte_strerror(rte_errno));
        exit(1);
    }
    done = true;
}

/* A last-in first-out stack of objects; the buffer behind a free mbuf is poisoned. */
struct poison_pool {
    unsigned size, len;
    void *objs[];
};

static int poison_alloc(struct rte_mempool *mp)
{
    struct poison_pool *p = calloc(1, sizeof(*p) + (size_t)mp->size * sizeof(void *));
    if (!p)
        return -ENOMEM;
    p->size = mp->size;
    mp->pool_data = p;
#ifdef KIT_ASAN
    /* Held by DPDK's own mapping only, where leaks are not looked for. */
    __lsan_ignore_object(p);
#endif
    return 0;
}

static void poison_free(struct rte_mempool *mp)
{
    free(mp->pool_data);
}

static void poison_object(struct rte_mempool *mp, void *obj)
{
    struct rte_mbuf *m = obj;
    /* While the pool is being populated the mbuf isn't initialised yet. */
    if (!m->buf_addr)
        return;
    if (m->refcnt != 1 || m->next || m->nb_segs != 1) {
        fprintf(stderr, "mbuf %p put back with refcnt %u, next %p, %u segments\n", obj, m->refcnt,
                (void *)m->next, m->nb_segs);
        abort();
    }
#ifdef KIT_ASAN
    ASAN_POISON_MEMORY_REGION(m->buf_addr, m->buf_len);
#else
    memset(m->buf_addr, POISON_BYTE, m->buf_len);
#endif
}

static int poison_enqueue(struct rte_mempool *mp, void *const *objs, unsigned n)
{
    struct poison_pool *p = mp->pool_data;
    if (p->len + n > p->size)
        abort(); /* more puts than gets: a double free */
    for (unsigned i = 0; i < n; i++) {
        poison_object(mp, objs[i]);
        p->objs[p->len++] = objs[i];
    }
    return 0;
}

static int poison_dequeue(struct rte_mempool *mp, void **objs, unsigned n)
{
    struct poison_pool *p = mp->pool_data;
    if (p->len < n)
        return -ENOBUFS;
    for (unsigned i = 0; i < n; i++) {
        objs[i] = p->objs[--p->len];
#ifdef KIT_ASAN
        struct rte_mbuf *m = objs[i];
        if (m->buf_addr)
            ASAN_UNPOISON_MEMORY_REGION(m->buf_addr, m->buf_len);
#endif
    }
    return 0;
}

static unsigned poison_count(const struct rte_mempool *mp)
{
    return ((const struct poison_pool *)mp->pool_data)->len;
}

static const struct rte_mempool_ops poison_ops = {
    .name = "kit_poison",
    .alloc = poison_alloc,
    .free = poison_free,
    .enqueue = poison_enqueue,
    .dequeue = poison_dequeue,
    .get_count = poison_count,
};

struct rte_mempool *kit_pool_new_plain(unsigned n)
{
    static unsigned serial;
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof(name), "plain%u", serial++);
    struct rte_mempool *mp =
        rte_pktmbuf_pool_create(name, n, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (!mp) {
        fprintf(stderr, "mbuf pool of %u: %s\n", n, rte_strerror(rte_errno));
        exit(1);
    }
    return mp;
}

struct rte_mempool *kit_pool_new(unsigned n)
{
    static bool registered;
    static unsigned serial;
    if (!registered) {
        rte_mempool_register_ops(&poison_ops);
        registered = true;
    }
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof(name), "kit%u", serial++);
    struct rte_mempool *mp = rte_pktmbuf_pool_create_by_ops(
        name, n, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY, poison_ops.name);
    if (!mp) {
        fprintf(stderr, "mbuf pool of %u: %s\n", n, rte_strerror(rte_errno));
        exit(1);
    }
#ifdef KIT_ASAN
    struct poison_pool *p = mp->pool_data;
    for (unsigned i = 0; i < p->len; i++) {
        struct rte_mbuf *m = p->objs[i];
        ASAN_POISON_MEMORY_REGION(m->buf_addr, m->buf_len);
    }
#endif
    return mp;
}

unsigned kit_pool_used(struct rte_mempool *mp)
{
    return rte_mempool_in_use_count(mp);
}

void kit_pool_free(struct rte_mempool *mp)
{
    unsigned used = kit_pool_used(mp);
    if (used) {
        fprintf(stderr, "%u mbufs leaked from %s\n", used, mp->name);
        abort();
    }
#ifdef KIT_ASAN
    struct poison_pool *p = mp->pool_data;
    for (unsigned i = 0; i < p->len; i++) {
        struct rte_mbuf *m = p->objs[i];
        ASAN_UNPOISON_MEMORY_REGION(m->buf_addr, m->buf_len);
    }
#endif
    rte_mempool_free(mp);
}
