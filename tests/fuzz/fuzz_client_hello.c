/* A ClientHello from any bytes; the first one seeds the cuts. What has to hold:
 *   - no bytes crash or are read behind their end;
 *   - how they are cut, and how often somebody looks meanwhile, changes nothing;
 *   - what was found once, bytes behind it don't change;
 *   - a name is lower case and no longer than it may be; all of ALPN lies in the message. */
#include <errno.h>
#include <stdio.h>

#include "dataplane/stream/client_hello.h"
#include "runtime/rng.h"
#include "tests/kit/cut_rope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX 4096

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct outcome {
    int end, parsed;
    struct client_hello hello;
    bool offers_h2;
};

static void look(const struct hello_reader *r, const struct rope *in, struct outcome *o)
{
    uint8_t scratch[MAX];
    const uint8_t *m = hello_reader_message(r, in, scratch);
    CHECK(r->message <= MAX);
    o->parsed = client_hello_parse(m, r->message, &o->hello);
    if (o->parsed != 0)
        return;
    CHECK(strlen(o->hello.name) == o->hello.name_len && o->hello.name_len < CLIENT_HELLO_NAME);
    for (const char *p = o->hello.name; *p; p++)
        CHECK(*p > ' ' && *p < 127 && !(*p >= 'A' && *p <= 'Z'));
    CHECK(!o->hello.alpn ||
          (o->hello.alpn > m && o->hello.alpn + o->hello.alpn_len <= m + r->message));
    o->offers_h2 = client_hello_offers(&o->hello, "h2");
}

/* `seed` 0: all at once. */
static struct outcome run(const uint8_t *data, size_t size, uint64_t seed)
{
    struct rng g = {seed};
    struct rope in = {0};
    struct hello_reader r = {0};
    struct outcome o = {0};
    for (size_t at = 0, n; at < size && o.end == 0; at += n) {
        n = seed ? 1 + rng_below(&g, 40) : size;
        n = n < size - at ? n : size - at;
        cut_rope_add(&in, data + at, n);
        if (!seed || at + n == size || rng_below(&g, 3) == 0)
            o.end = hello_reader_scan(&r, &in, MAX);
        CHECK(o.end <= (int)in.len && (o.end != 0 || in.len < MAX + 40 || seed));
    }
    if (o.end > 0)
        look(&r, &in, &o);
    cut_rope_free(&in);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct outcome whole = run(data + 1, size - 1, 0);
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct outcome cut = run(data + 1, size - 1, data[0] * 4u + seed);
        CHECK(cut.end == whole.end && cut.parsed == whole.parsed);
        CHECK(whole.end <= 0 || whole.parsed ||
              (strcmp(cut.hello.name, whole.hello.name) == 0 && cut.offers_h2 == whole.offers_h2));
    }
    if (whole.end > 0) {
        struct outcome again = run(data + 1, (size_t)whole.end, 0);
        CHECK(again.end == whole.end && again.parsed == whole.parsed);
    }
    return 0;
}
