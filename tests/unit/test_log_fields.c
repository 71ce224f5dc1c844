/* control/log_fields.def, of which the documentation is made, against what log_format.c writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "control/log_format.h"

static const struct field {
    const char *name;
    bool always;
    const char *text;
} fields[] = {
#define ALWAYS                                      true
#define SOMETIMES                                   false
#define LOG_FIELD(name, type, presence, text, help) {#name, presence, text},
#include "control/log_fields.def"
#undef LOG_FIELD
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* Every member has a value, or none has. */
static const char *line(bool full, enum config_log_format format)
{
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};
    struct access_record r;

    memset(&r, full ? 1 : 0, sizeof(r));
    r.tls.version = r.tls.cipher = "name"; /* literals, not bytes */
    log_format_access(buf, &r, format, &clock);
    return buf;
}

static void json_has_the_fields_in_their_order(void **state)
{
    for (int full = 0; full < 2; full++) {
        json_t *o = json_loads(line(full, CONFIG_LOG_JSON), 0, NULL);
        const char *key;
        json_t *v;
        size_t i = 0;

        assert_non_null(o);
        json_object_foreach(o, key, v)
        {
            while (!full && i < FIELDS && !fields[i].always)
                i++;
            if (i == FIELDS)
                fail_msg("\"%s\" is not in log_fields.def", key);
            assert_string_equal(key, fields[i++].name);
        }
        while (!full && i < FIELDS && !fields[i].always)
            i++;
        assert_int_equal(i, FIELDS);
        json_decref(o);
    }
}

static bool has_word(const char *text, const char *name)
{
    char word[64];

    snprintf(word, sizeof(word), " %s=", name);
    return strstr(text, word) != NULL;
}

static void text_has_them_as_words(void **state)
{
    const char *text = line(true, CONFIG_LOG_TEXT);

    for (size_t i = 0; i < FIELDS; i++)
        if (has_word(text, fields[i].name) != (fields[i].text[0] == '\0'))
            fail_msg("%s: log_fields.def and \"%s\" differ", fields[i].name, text);
    assert_true(has_word(text, "client_port"));
    for (const char *p = text; (p = strchr(p, '=')); p++) {
        char name[64];
        size_t n = 0, i;
        while (p - n > text && p[-(ptrdiff_t)n - 1] != ' ')
            n++;
        snprintf(name, sizeof(name), "%.*s", (int)n, p - n);
        for (i = 0; i < FIELDS && strcmp(name, fields[i].name) != 0; i++)
            ;
        if (i == FIELDS && strcmp(name, "client_port") != 0)
            fail_msg("%s= is not in log_fields.def", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_the_fields_in_their_order),
        cmocka_unit_test(text_has_them_as_words),
    };
    return cmocka_run_group_tests_name("log_fields", tests, NULL, NULL);
}
