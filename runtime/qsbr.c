#include "runtime/qsbr.h"

#include <assert.h>
#include <stdlib.h>

struct rte_rcu_qsbr *qsbr_new(unsigned readers)
{
    assert(readers > 0);
    size_t size = rte_rcu_qsbr_get_memsize(readers);
    struct rte_rcu_qsbr *v = aligned_alloc(RTE_CACHE_LINE_SIZE, size);

    if (!v)
        return NULL;
    rte_rcu_qsbr_init(v, readers);
    for (unsigned i = 0; i < readers; i++)
        rte_rcu_qsbr_thread_register(v, i);
    return v;
}

void qsbr_free(struct rte_rcu_qsbr *v)
{
    if (!v)
        return;
    for (unsigned i = 0; i < v->max_threads; i++)
        assert(v->qsbr_cnt[i].cnt == __RTE_QSBR_CNT_THR_OFFLINE);
    free(v);
}
