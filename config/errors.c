#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "config/errors.h"

void config_errors_init(struct config_errors *e)
{
    memset(e, 0, sizeof(*e));
}

void config_errors_fini(struct config_errors *e)
{
    for (unsigned i = 0; i < e->count; i++)
        free(e->list[i].text);
    config_errors_init(e);
}

bool config_errors_any(const struct config_errors *e)
{
    return e->count || e->more;
}

bool config_errors_full(const struct config_errors *e)
{
    return e->count == CONFIG_ERRORS_MAX;
}

void config_errors_add(struct config_errors *e, const char *file, unsigned line, unsigned col,
                       const char *key, const char *format, ...)
{
    struct config_error *x = &e->list[e->count];
    char *text = NULL;
    size_t size;
    va_list args;

    if (config_errors_full(e)) {
        e->more++;
        return;
    }
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        e->more++;
        return;
    }
    fprintf(f, "%s:", file);
    if (line)
        fprintf(f, "%u:%u:", line, col);
    if (key && *key)
        fprintf(f, " %s:", key);
    fputc(' ', f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    if (fclose(f)) {
        free(text);
        e->more++;
        return;
    }
    *x = (struct config_error){line, col, e->count, text};
    e->count++;
}

static int by_position(const void *a, const void *b)
{
    const struct config_error *x = a, *y = b;

    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    if (x->col != y->col)
        return x->col < y->col ? -1 : 1;
    return (x->order_ > y->order_) - (x->order_ < y->order_);
}

void config_errors_sort(struct config_errors *e)
{
    qsort(e->list, e->count, sizeof(e->list[0]), by_position);
}

void config_check_report(FILE *f, const struct config_errors *e)
{
    for (unsigned i = 0; i < e->count; i++)
        fprintf(f, "%s\n", e->list[i].text);
    if (e->more)
        fprintf(f, "… and %zu more\n", e->more);
}
