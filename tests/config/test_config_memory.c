/* Memory may run out at any allocation: a load, a diff, a merge and a build then fail as their
 * contracts say, and leave nothing behind (the sanitizer checks that). */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "config/build.h"
#include "config/diff.h"
#include "config/load.h"

static unsigned allocations, failing; /* the failing-th fails; 0: none */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return ++allocations == failing ? NULL : __real_calloc(n, size);
}

static char *text;
static size_t text_len;

static int load(struct snapshot **ret)
{
    struct config_errors errs;
    int rc;

    config_errors_init(&errs);
    rc = config_load_text("x.yaml", text, text_len, NULL, ret, &errs);
    assert_true(rc ? config_errors_any(&errs) : !config_errors_any(&errs));
    config_errors_fini(&errs);
    return rc;
}

static int read_example(void **state)
{
    FILE *f = fopen(getenv("EXAMPLE"), "r");

    text = malloc(CONFIG_FILE_MAX);
    text_len = f ? fread(text, 1, CONFIG_FILE_MAX, f) : 0;
    if (f)
        fclose(f);
    return !text_len;
}

static int free_example(void **state)
{
    free(text);
    return 0;
}

static void load_fails_whole(void **state)
{
    struct snapshot *s = NULL;
    unsigned n;

    for (n = 1;; n++) {
        allocations = 0;
        failing = n;
        int rc = load(&s);
        failing = 0;
        if (!rc)
            break;
        assert_int_equal(rc, -ENOMEM);
        assert_null(s);
    }
    assert_true(n > 3);
    snapshot_free(s);
}

static void diff_and_merge_fail_whole(void **state)
{
    struct snapshot *a = NULL, *b = NULL, *merged = NULL;
    int diff_rc = -ENOMEM, merge_rc = -ENOMEM;

    assert_int_equal(load(&a), 0);
    assert_int_equal(load(&b), 0);
    a->upstreams[0].pool.idle++;
    for (unsigned n = 1; diff_rc || merge_rc; n++) {
        struct config_diff d;

        allocations = 0;
        failing = n;
        diff_rc = config_diff(a, b, &d);
        failing = 0;
        if (!diff_rc)
            config_diff_fini(&d);
        allocations = 0;
        failing = n;
        merge_rc = config_merge_live(a, b, &merged);
        failing = 0;
        assert_true(merge_rc ? !merged : merged != NULL);
        if (!merge_rc)
            snapshot_free(merged);
        merged = NULL;
        assert_true(diff_rc == 0 || diff_rc == -ENOMEM);
        assert_true(merge_rc == 0 || merge_rc == -ENOMEM);
    }
    snapshot_free(a);
    snapshot_free(b);
}

/* With a listener that drains and an upstream that only it needs. */
static void build_fails_whole(void **state)
{
    struct snapshot *running = NULL, *base = NULL, *s = NULL;
    char err[256];
    int rc = -ENOMEM;

    assert_int_equal(load(&running), 0);
    assert_int_equal(load(&base), 0);
    base->nlisteners--;
    struct config_build b = {.base = base, .running = running};
    for (unsigned n = 1; rc; n++) {
        allocations = 0;
        failing = n;
        rc = config_build(&b, &s, NULL, err, sizeof(err));
        failing = 0;
        assert_true(rc == 0 || (rc == -ENOMEM && !s));
    }
    assert_int_equal(s->ndraining, 1);
    snapshot_free(s);
    snapshot_free(base);
    snapshot_free(running);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_fails_whole),
        cmocka_unit_test(diff_and_merge_fail_whole),
        cmocka_unit_test(build_fails_whole),
    };

    return cmocka_run_group_tests(tests, read_example, free_example);
}
