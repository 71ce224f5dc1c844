#include "dataplane/proxy/head_reader.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4096u

static bool reserve(struct head_reader *h, uint64_t want)
{
    if (want <= h->cap)
        return true;
    uint64_t cap = h->cap ? h->cap : FIRST_CAPACITY;
    while (cap < want)
        cap *= 2;
    char *buf = realloc(h->buf, cap);
    if (!buf)
        return false;
    h->buf = buf;
    h->cap = (uint32_t)cap;
    return true;
}

/* Only as much as can still belong to a head within the limit. */
static bool gather(struct head_reader *h, const struct rope *in, const struct h1_limits *limits)
{
    uint64_t most = (uint64_t)limits->head_size + H1_MAX_LEADING * 2 + 1;
    uint64_t want = in->len < most ? in->len : most;
    if (!reserve(h, want))
        return false;
    if (want > h->len) {
        rope_copy_out(in, h->len, h->buf + h->len, want - h->len);
        h->len = (uint32_t)want;
    }
    return true;
}

int head_reader_scan(struct head_reader *h, const struct rope *in, const struct h1_limits *limits,
                     const char **ret_base)
{
    if (in->len == 0)
        return 0;
    if (!h->buf) {
        const char *base = rope_node_data(in->head);
        int end = h1_scan_head(&h->scan, base, in->head->len, limits);
        if (end != 0 || in->nodes == 1) {
            *ret_base = base;
            return end;
        }
    }
    if (!gather(h, in, limits))
        return -500;
    *ret_base = h->buf;
    return h1_scan_head(&h->scan, h->buf, h->len, limits);
}

void head_reader_reset(struct head_reader *h)
{
    free(h->buf);
    *h = (struct head_reader){0};
}

void head_reader_reset_response(struct head_reader *h)
{
    head_reader_reset(h);
    h1_scan_init_response(&h->scan);
}

char *head_reader_steal(struct head_reader *h)
{
    char *buf = h->buf;
    *h = (struct head_reader){0};
    return buf;
}
