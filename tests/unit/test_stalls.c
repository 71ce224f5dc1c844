/* From a core's stall ring to names that people can read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/modules.h"
#include "control/stalls.h"
#include "control/symbols.h"

static struct stall_ring rings[2];

static const struct stall_ring *on_stalls(void *ctx, unsigned core)
{
    (void)ctx;
    return &rings[core];
}

static const struct cores_ops ops = {.stalls = on_stalls};

__attribute__((noinline)) static int a_static_function(int x)
{
    return x + 1;
}

static void a_static_function_has_a_name(void **state)
{
    struct module m;
    struct symbols *s;
    uint64_t offset, into;
    (void)state;
    assert_int_equal(a_static_function(1), 2);
    assert_true(module_of_address((uintptr_t)a_static_function + 1, &m, &offset));
    assert_non_null(strstr(m.path, "/unit_stalls"));
    assert_true(strlen(m.build_id) >= 32);
    assert_int_equal(symbols_open(m.path, m.build_id, &s), 0);
    assert_string_equal(symbols_find(s, offset, &into), "a_static_function");
    assert_int_equal(into, 1);
    assert_null(symbols_find(s, 1, &into));
    assert_true(module_of_address((uintptr_t)rings, &m, &offset)); /* data, behind all functions */
    assert_null(symbols_find(s, offset, &into));
    symbols_close(s);
}

static void a_library_tells_at_least_what_it_exports(void **state)
{
    struct module m;
    struct symbols *s;
    uint64_t offset, into;
    (void)state;
    assert_true(module_of_address((uintptr_t)json_object_get, &m, &offset));
    assert_non_null(strstr(m.path, "libjansson"));
    assert_int_equal(symbols_open(m.path, m.build_id, &s), 0);
    assert_string_equal(symbols_find(s, offset, &into), "json_object_get");
    symbols_close(s);
}

static void another_build_of_the_file_gives_no_names(void **state)
{
    struct symbols *s;
    struct module m;
    uint64_t offset;
    (void)state;
    assert_true(module_of_address((uintptr_t)a_static_function, &m, &offset));
    assert_int_equal(symbols_open(m.path, "00112233445566778899aabbccddeeff00112233", &s), -ESTALE);
    assert_int_equal(symbols_open("/nowhere/at/all", "", &s), -ENOENT);
    assert_int_equal(symbols_open("/etc/passwd", "", &s), -ENOEXEC);
    assert_false(module_of_address(16, &m, &offset));
}

static json_t *stall_of(json_t *all, unsigned core, unsigned i)
{
    json_t *c = json_array_get(json_object_get(all, "cores"), core);
    return json_array_get(json_object_get(c, "stalls"), i);
}

static void stalls_are_told_newest_first_with_where_they_were(void **state)
{
    struct cores cores = {&ops, NULL, 2};
    uintptr_t frames[] = {(uintptr_t)a_static_function, (uintptr_t)json_object_get, 16,
                          (uintptr_t)a_static_function + 1};
    struct stall_record r;
    const char *kind, *label;
    json_int_t ago, took, began;
    char line[256];
    int running;
    (void)state;
    stall_push(&rings[1], &(struct stall_event){.at = 1000, .ns = 7, .kind = "tunnel"});
    stall_push(&rings[1], &(struct stall_event){.at = 5000,
                                                .ns = 100,
                                                .running = true,
                                                .kind = "client",
                                                .label = "web",
                                                .frames = frames,
                                                .nframes = 4});
    json_t *all = stalls_to_json(&cores, 9000, 1000000);
    assert_non_null(all);
    assert_null(stall_of(all, 0, 0));
    assert_int_equal(json_unpack(stall_of(all, 1, 0), "{s:I, s:I, s:I, s:b, s:s, s:s}", "unix_ns",
                                 &began, "ago_ns", &ago, "took_ns", &took, "running", &running,
                                 "kind", &kind, "label", &label),
                     0);
    assert_int_equal(began, 1005000);
    assert_int_equal(ago, 4000);
    assert_int_equal(took, 4000); /* so far */
    assert_true(running);
    assert_string_equal(kind, "client");
    assert_string_equal(label, "web");
    json_t *f = json_object_get(stall_of(all, 1, 0), "frames");
    assert_int_equal(json_array_size(f), 4);
    assert_int_equal(json_array_size(json_object_get(all, "modules")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(f, 3), "module")), 0);
    assert_true(json_is_null(json_object_get(json_array_get(f, 2), "module")));

    assert_int_equal(json_integer_value(json_object_get(stall_of(all, 1, 1), "took_ns")), 7);
    assert_true(json_is_null(json_object_get(stall_of(all, 1, 1), "label")));
    json_decref(all);

    assert_int_equal(stall_read(&rings[1], &r, 1), 1);
    stalls_frames_line(&r, line, sizeof(line));
    assert_int_equal(strncmp(line, "unit_stalls+0x", 14), 0);
    assert_non_null(strstr(line, " ?+0x10 unit_stalls+0x"));
    stalls_frames_line(&r, line, 20); /* cut, not overrun */
    assert_int_equal(strlen(line), 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_static_function_has_a_name),
        cmocka_unit_test(a_library_tells_at_least_what_it_exports),
        cmocka_unit_test(another_build_of_the_file_gives_no_names),
        cmocka_unit_test(stalls_are_told_newest_first_with_where_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
