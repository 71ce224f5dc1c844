/* A snapshot as a file that reads back as the same. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "config/place.h"
#include "config/reference.h"

#define INDENT 2

static const char *const yaml_words[] = {"null", "true", "false", "yes", "no",
                                         "on",   "off",  "y",     "n",   NULL};

/* Text that YAML takes for itself without quotes, in a flow list too. */
static bool is_plain(const char *text)
{
    if (!isalnum((unsigned char)text[0]) && text[0] != '/')
        return false;
    for (const char *const *w = yaml_words; *w; w++)
        if (!strcasecmp(text, *w))
            return false;
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-/:%", *p))
            return false;
    return text[strlen(text) - 1] != ':';
}

static void put_text(const struct config_key *k, const char *text, FILE *f)
{
    if (k->type->plain || is_plain(text)) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fputc('\\', f);
        if (*p < ' ')
            fprintf(f, "\\x%02x", *p);
        else
            fputc(*p, f);
    }
    fputc('"', f);
}

static int put_scalar(const struct config_key *k, const void *field, FILE *f, bool *ret_any)
{
    char *text = NULL;
    size_t len;
    FILE *m = open_memstream(&text, &len);

    if (!m)
        return -ENOMEM;
    k->type->format(k, field, m);
    if (fclose(m))
        return -ENOMEM;
    *ret_any = len > 0;
    if (len && f)
        put_text(k, text, f);
    free(text);
    return 0;
}

struct layout {
    FILE *f;
    unsigned depth;
    bool dash; /* the next line begins a member of a list */
};

static void begin_line(struct layout *l, const char *name)
{
    unsigned depth = l->depth;

    if (l->dash) {
        fprintf(l->f, "%*s- ", (int)(INDENT * (depth - 1)), "");
        l->dash = false;
    } else {
        fprintf(l->f, "%*s", (int)(INDENT * depth), "");
    }
    fprintf(l->f, "%s:", name);
}

static int put_group(struct layout *l, const struct config_group *g, const void *base);

static int put_value(struct layout *l, const struct config_key *k, const void *base)
{
    bool any;
    int rc;

    if (!k->width && k->type == &config_integer) { /* a constant: the language's version */
        begin_line(l, k->name);
        fprintf(l->f, " %ju\n", (uintmax_t)k->min);
        return 0;
    }
    rc = put_scalar(k, config_field(k, base), NULL, &any);
    if (rc || !any)
        return rc;
    begin_line(l, k->name);
    fputc(' ', l->f);
    rc = put_scalar(k, config_field(k, base), l->f, &any);
    fputc('\n', l->f);
    return rc;
}

static int put_values(struct layout *l, const struct config_key *k, const void *base)
{
    size_t n = config_list_count(k, base);
    bool any;
    int rc = 0;

    if (!n && !k->required)
        return 0;
    begin_line(l, k->name);
    fputs(" [", l->f);
    for (size_t i = 0; i < n && !rc; i++) {
        fputs(i ? ", " : "", l->f);
        rc = put_scalar(k, config_list_at(k, base, i), l->f, &any);
    }
    fputs("]\n", l->f);
    return rc;
}

static int put_list(struct layout *l, const struct config_key *k, const void *base)
{
    int rc = 0;

    if (!config_list_count(k, base))
        return 0;
    begin_line(l, k->name);
    fputc('\n', l->f);
    l->depth += 2;
    for (size_t i = 0; i < config_list_count(k, base) && !rc; i++) {
        l->dash = true;
        rc = put_group(l, k->group, config_list_at(k, base, i));
    }
    l->depth -= 2;
    return rc;
}

static void end_mapping(struct layout *l, const struct config_key *k, const char *text, size_t len)
{
    if (!len && k->kind == CONFIG_GROUP)
        return;
    begin_line(l, k->name);
    fputs(len ? "\n" : " {}\n", l->f);
    fwrite(text, 1, len, l->f);
}

/* Its keys come first: without any, the mapping is written otherwise, or not at all. */
static int put_mapping(struct layout *l, const struct config_key *k, const void *base)
{
    const void *child = config_child(k, base);
    struct layout inner = {.depth = l->depth + 1};
    char *text = NULL;
    size_t len;
    int rc;

    if (!child)
        return 0;
    inner.f = open_memstream(&text, &len);
    if (!inner.f)
        return -ENOMEM;
    rc = put_group(&inner, k->group, child);
    if (fclose(inner.f) && !rc)
        rc = -ENOMEM;
    if (!rc)
        end_mapping(l, k, text, len);
    free(text);
    return rc;
}

static int put_group(struct layout *l, const struct config_group *g, const void *base)
{
    int rc = 0;

    for (const struct config_key *k = g->keys; k->name && !rc; k++) {
        switch (k->kind) {
        case CONFIG_VALUE:
            rc = put_value(l, k, base);
            break;
        case CONFIG_VALUES:
            rc = put_values(l, k, base);
            break;
        case CONFIG_GROUP:
        case CONFIG_OPTIONAL:
            rc = put_mapping(l, k, base);
            break;
        case CONFIG_LIST:
            rc = put_list(l, k, base);
            break;
        }
    }
    return rc;
}

int config_write_yaml(const struct snapshot *s, FILE *f)
{
    struct layout l = {.f = f};
    int rc = put_group(&l, &config_root, s);

    return rc ? rc : fflush(f) ? -errno : 0;
}
