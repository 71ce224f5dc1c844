/* Configurations from any bytes: up to two, parted by a NUL. What has to hold:
 *   - no bytes crash, leak or take long;
 *   - a refused file has an error to show, each of one line;
 *   - a file that loads doesn't differ from itself, from its merge with itself, nor from what it
 *     reads back as when it is written out;
 *   - after a merge with another, what still differs from that is frozen;
 *   - built over another that runs, what drains is that one's and isn't among what is open. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"
#include "config/diff.h"
#include "config/load.h"
#include "config/reference.h"

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

        CHECK(!c->live);
    }
    config_diff_fini(&d);
    snapshot_free(merged);
}

static void check_written(const struct snapshot *s)
{
    struct snapshot *again;
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    CHECK(f && !config_write_yaml(s, f));
    fclose(f);
    if (len <= CONFIG_FILE_MAX) { /* every key with its value may be more than a file may have */
        again = load(text, len);
        CHECK(again);
        check_same(s, again);
        snapshot_free(again);
    }
    free(text);
}

static void check_built(const struct snapshot *base, const struct snapshot *running)
{
    struct config_build b = {.base = base, .running = running};
    struct snapshot *s;
    char err[256];

    CHECK(!config_build(&b, &s, NULL, err, sizeof(err)));
    for (size_t i = 0; i < s->ndraining; i++) {
        const struct config_listener *l = &s->draining[i], *open = snapshot_listener(s, l->name);

        CHECK(config_listener_is_same(l, snapshot_listener(running, l->name)));
        CHECK(!open || !config_listener_is_same(l, open));
        const struct config_upstream *to = l->tunnel ? l->tunnel->upstream : NULL;
        CHECK(!to || snapshot_upstream(s, to->name) == to);
        CHECK(l->http || to || l->tunnel->nsni);
        for (size_t k = 0; l->tunnel && k < l->tunnel->nsni; k++) {
            to = l->tunnel->sni[k].upstream;
            CHECK(snapshot_upstream(s, to->name) == to);
        }
    }
    snapshot_free(s);
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
        check_written(a);
    }
    if (a && b) {
        check_merge(a, b);
        check_merge(b, a);
        check_built(a, b);
        check_built(b, a);
    }
    snapshot_free(a);
    snapshot_free(b);
    return 0;
}
