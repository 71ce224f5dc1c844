/* Configurations from any bytes: up to two, parted by a NUL. What has to hold:
 *   - no bytes crash, leak or take long;
 *   - a refused file has an error to show, each of one line;
 *   - a file that loads doesn't differ from itself, nor from its merge with itself;
 *   - after a merge with another, what still differs from that is frozen, or an upstream that a
 *     frozen listener needs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/diff.h"
#include "config/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct snapshot *load(const char *text, size_t len)
{
    struct config_errors errs;
    struct snapshot *s = NULL;
    char *exact = malloc(len ? len : 1); /* so that ASan sees reads behind the text */
    int rc;

    if (len)
        memcpy(exact, text, len);
    config_errors_init(&errs);
    rc = config_load_text("fuzz.yaml", exact, len, &(struct config_host){.cpus = 4}, &s, &errs);
    CHECK(rc ? config_errors_any(&errs) && !s : !config_errors_any(&errs) && s);
    for (unsigned i = 0; i < errs.count; i++) {
        CHECK(!strchr(errs.list[i].text, '\n'));
        CHECK(!i || errs.list[i - 1].line <= errs.list[i].line);
    }
    config_errors_fini(&errs);
    free(exact);
    return s;
}

static void check_same(const struct snapshot *a, const struct snapshot *b)
{
    struct config_diff d;

    CHECK(!config_diff(a, b, &d));
    CHECK(!d.nchanges && !d.nfrozen);
    config_diff_fini(&d);
}

static void check_merge(const struct snapshot *before, const struct snapshot *after)
{
    struct snapshot *merged;
    struct config_diff d;

    CHECK(!config_merge_live(before, after, &merged));
    CHECK(!config_diff(merged, after, &d));
    for (size_t i = 0; i < d.nchanges; i++) {
        const struct config_change *c = &d.changes[i];

        CHECK(!c->live || (!strncmp(c->key, "upstreams[", 10) && !strcmp(c->to, "(none)")));
    }
    config_diff_fini(&d);
    snapshot_free(merged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t len = size ? strnlen(text, size) : 0;
    struct snapshot *a = load(text, len);
    struct snapshot *b = len < size ? load(text + len + 1, size - len - 1) : NULL;

    if (a) {
        struct snapshot *merged;

        check_same(a, a);
        CHECK(!config_merge_live(a, a, &merged));
        check_same(a, merged);
        snapshot_free(merged);
    }
    if (a && b) {
        check_merge(a, b);
        check_merge(b, a);
    }
    snapshot_free(a);
    snapshot_free(b);
    return 0;
}
