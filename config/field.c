/* Reaching into structs by the schema's offsets, and words for messages. */
#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include "config/schema.h"

void config_store(void *field, size_t width, uint64_t value)
{
    uint32_t u32 = value;
    uint16_t u16 = value;
    uint8_t u8 = value;

    switch (width) {
    case 8:
        memcpy(field, &value, 8);
        break;
    case 4:
        memcpy(field, &u32, 4);
        break;
    case 2:
        memcpy(field, &u16, 2);
        break;
    case 1:
        memcpy(field, &u8, 1);
        break;
    default: /* a key without a field */
        assert(!width);
    }
}

uint64_t config_fetch(const void *field, size_t width)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;

    switch (width) {
    case 8:
        memcpy(&u64, field, 8);
        return u64;
    case 4:
        memcpy(&u32, field, 4);
        return u32;
    case 2:
        memcpy(&u16, field, 2);
        return u16;
    case 1:
        return *(const uint8_t *)field;
    default:
        assert(!width);
        return 0;
    }
}

void *config_field(const struct config_key *k, const void *base)
{
    return (char *)base + k->offset;
}

void *config_child(const struct config_key *k, const void *base)
{
    void *field = config_field(k, base);

    if (k->kind == CONFIG_GROUP)
        return field;
    assert(k->kind == CONFIG_OPTIONAL);
    return *(void **)field;
}

size_t config_list_count(const struct config_key *k, const void *base)
{
    return config_fetch((const char *)base + k->count_offset, k->count_width);
}

void *config_list_at(const struct config_key *k, const void *base, size_t i)
{
    char *first = config_field(k, base);

    if (!k->in_place)
        first = *(char **)first;
    return first + i * k->width;
}

bool config_list_make(const struct config_key *k, void *base, size_t n, struct arena *a)
{
    if (k->in_place) {
        assert(n <= k->max);
        memset(config_field(k, base), 0, k->max * k->width);
    } else {
        void *array = arena_array(a, n, k->width);

        if (!array)
            return false;
        memcpy(config_field(k, base), &array, sizeof(array));
    }
    config_store((char *)base + k->count_offset, k->count_width, n);
    return true;
}

const char *config_say(struct arena *a, const char *format, ...)
{
    va_list args, again;
    char *text;
    int len;

    va_start(args, format);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, format, args);
    text = len < 0 ? NULL : arena_alloc(a, len + 1);
    if (text)
        vsnprintf(text, len + 1, format, again);
    va_end(again);
    va_end(args);
    return text ? text : "";
}
