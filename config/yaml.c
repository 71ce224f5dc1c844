#include <assert.h>
#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config/utf8.h"
#include "config/yaml.h"

#define QUOTE_MAX 48 /* bytes of somebody's text that a message repeats */

/* libfyaml takes quadratic time over the blank lines within a scalar: a megabyte of them, minutes.
 */
#define BLANK_LINES_MAX 100

struct reader {
    struct arena *arena;
    const char *file, *input;
    struct config_errors *errs;
    struct yaml_node *root, *top; /* top: the container that is being filled */
    struct yaml_node *key;        /* the key that waits for its value */
    unsigned depth, documents;
    unsigned line, col; /* of the last event that had a position */
    bool out_of_memory;
};

bool yaml_is_null(const struct yaml_node *n)
{
    return n->kind == YAML_SCALAR && n->plain &&
           (!n->len || !strcmp(n->text, "~") || !strcmp(n->text, "null"));
}

static void write_escaped(FILE *f, const char *text, size_t len, size_t max)
{
    for (size_t i = 0; i < len;) {
        unsigned n = utf8_length(text + i, len - i);

        if (i >= max) {
            fputs("…", f);
            return;
        }
        if (!n || (n == 1 && (text[i] < 0x20 || text[i] == 0x7f)) ||
            (n == 2 && text[i] == '\xc2' && (unsigned char)text[i + 1] < 0xa0)) {
            fprintf(f, "\\x%02x", (unsigned char)text[i]);
            i++;
            continue;
        }
        fwrite(text + i, 1, n, f);
        i += n;
    }
}

static const char *take(struct arena *a, FILE *f, char **text, size_t *size)
{
    const char *copy = NULL;

    if (!fclose(f))
        copy = arena_strndup(a, *text, *size);
    free(*text);
    return copy ? copy : "";
}

const char *yaml_quote(struct arena *a, const char *text, size_t len)
{
    char *buf = NULL;
    size_t size;
    FILE *f = open_memstream(&buf, &size);

    if (!f)
        return "";
    fputc('"', f);
    write_escaped(f, text, len, QUOTE_MAX);
    fputc('"', f);
    return take(a, f, &buf, &size);
}

static void write_path(FILE *f, const struct yaml_node *n)
{
    if (!n->parent)
        return;
    write_path(f, n->parent);
    if (n->parent->kind == YAML_LIST) {
        fprintf(f, "[%u]", n->index);
        return;
    }
    if (n->parent->parent)
        fputc('.', f);
    if (n->key)
        write_escaped(f, n->key->text, n->key->len, QUOTE_MAX);
}

const char *yaml_path(struct arena *a, const struct yaml_node *n, const char *child)
{
    char *buf = NULL;
    size_t size;
    FILE *f = open_memstream(&buf, &size);

    if (!f)
        return "";
    write_path(f, n);
    if (child)
        fprintf(f, "%s%s", n->parent ? "." : "", child);
    return take(a, f, &buf, &size);
}

struct scan {
    unsigned line, col, blank_lines;
    bool indent, blank; /* in front of the line's first character; nothing on it yet */
};

static const char *check_character(const struct scan *s, unsigned bytes, unsigned char c)
{
    if (!bytes)
        return "expected UTF-8, found an invalid byte";
    if (!c)
        return "expected text, found a NUL byte";
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
        return "expected text, found a control character";
    if (c == '\t' && s->indent)
        return "a line must be indented with spaces, not with tabs";
    if (c == '%' && s->col == 1)
        return "YAML directives are not supported";
    if (s->blank_lines > BLANK_LINES_MAX)
        return "too many blank lines in a row";
    return NULL;
}

static void scan_advance(struct scan *s, unsigned char c, bool ends_line)
{
    s->indent = s->indent && c == ' ';
    s->blank = s->blank && (c == ' ' || c == '\t' || c == '\r' || c == '\n');
    s->col++;
    if (!ends_line)
        return;
    s->blank_lines = s->blank ? s->blank_lines + 1 : 0;
    s->line++;
    s->col = 1;
    s->indent = s->blank = true;
}

/* What libfyaml would take, take wrongly or report unclearly. True: the text may be parsed. */
static bool characters_are_good(const char *file, const char *text, size_t len,
                                struct config_errors *errs)
{
    struct scan s = {.line = 1, .col = 1, .indent = true, .blank = true};
    unsigned n;

    for (size_t i = 0; i < len; i += n) {
        n = utf8_length(text + i, len - i);
        const char *wrong = check_character(&s, n, text[i]);

        if (wrong) {
            config_errors_add(errs, file, s.line, s.col, NULL, "%s", wrong);
            return false;
        }
        scan_advance(&s, text[i],
                     text[i] == '\n' || (text[i] == '\r' && (i + 1 == len || text[i + 1] != '\n')));
    }
    return true;
}

static void refuse(struct reader *r, const struct yaml_node *at, const char *what)
{
    config_errors_add(r->errs, r->file, at->line, at->col, yaml_path(r->arena, at, NULL), "%s",
                      what);
}

static void check_extras(struct reader *r, const struct yaml_node *n, struct fy_event *e)
{
    if (fy_event_get_anchor_token(e))
        refuse(r, n, "YAML anchors are not supported: write the value out");
    if (fy_event_get_tag_token(e))
        refuse(r, n, "YAML tags are not supported: leave the tag out");
}

/* What stands nowhere (an absent value) is reported where the text had got to. */
static void set_position(struct reader *r, struct yaml_node *n, struct fy_event *e)
{
    const struct fy_mark *m = fy_event_start_mark(e);

    if (m) {
        r->line = m->line + 1;
        r->col = m->column + 1;
    }
    n->line = r->line;
    n->col = r->col;
}

/* A mapping's first node of a pair is its key, kept aside until the value comes. */
static void node_place(struct reader *r, struct yaml_node *n)
{
    struct yaml_node *top = r->top;

    if (!top) {
        r->root = n;
        return;
    }
    n->parent = top;
    n->index = top->count++;
    if (top->kind == YAML_MAP) {
        n->key = r->key;
        r->key = NULL;
        if (n->key && (n->kind == YAML_MAP || n->kind == YAML_LIST || yaml_is_null(n))) {
            n->line = n->key->line;
            n->col = n->key->col;
        }
    }
    if (top->last)
        top->last->next = n;
    else
        top->first = n;
    top->last = n;
}

static struct yaml_node *node_new(struct reader *r, enum yaml_kind kind, struct fy_event *e)
{
    struct yaml_node *n = arena_alloc(r->arena, sizeof(*n));

    if (!n) {
        r->out_of_memory = true;
        return NULL;
    }
    n->kind = kind;
    set_position(r, n, e);
    return n;
}

static bool is_key(const struct reader *r)
{
    return r->top && r->top->kind == YAML_MAP && !r->key;
}

static int on_key(struct reader *r, struct yaml_node *n, struct fy_event *e)
{
    n->parent = r->top;
    n->key = n;
    if (n->kind != YAML_SCALAR) {
        config_errors_add(r->errs, r->file, n->line, n->col, yaml_path(r->arena, r->top, NULL),
                          "a key must be plain text");
        return -EINVAL;
    }
    check_extras(r, n, e);
    if (n->plain && !strcmp(n->text, "<<")) {
        refuse(r, n, "YAML merge keys are not supported: write the keys out");
        n->kind = YAML_REFUSED;
    }
    r->key = n;
    return 0;
}

static bool is_quoted(struct fy_token *token)
{
    enum fy_scalar_style style = token ? fy_scalar_token_get_style(token) : FYSS_PLAIN;

    return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
}

/* libfyaml 0.7.12 leaks memory when it turns eight or more '' into apostrophes, and nothing in a
 * configuration needs one. */
static bool has_doubled_quote(const struct reader *r, struct fy_token *token)
{
    const struct fy_mark *start = fy_token_start_mark(token), *end = fy_token_end_mark(token);

    return fy_scalar_token_get_style(token) == FYSS_SINGLE_QUOTED && start && end &&
           end->input_pos > start->input_pos &&
           memmem(r->input + start->input_pos, end->input_pos - start->input_pos, "''", 2);
}

static int read_scalar(struct reader *r, struct yaml_node *n, struct fy_token *token)
{
    const char *text = NULL;

    n->col -= is_quoted(token) && n->col > 1; /* the mark is behind the quote */
    n->plain = !token || fy_scalar_token_get_style(token) == FYSS_PLAIN;
    if (token && has_doubled_quote(r, token)) {
        config_errors_add(r->errs, r->file, n->line, n->col, NULL,
                          "write apostrophes in double quotes");
        return -EINVAL;
    }
    text = token ? fy_token_get_text(token, &n->len) : NULL;
    if (!text)
        n->len = 0;
    n->text = arena_strndup(r->arena, text ? text : "", n->len);
    return n->text ? 0 : -ENOMEM;
}

static int on_scalar(struct reader *r, struct fy_event *e)
{
    struct yaml_node *n = node_new(r, YAML_SCALAR, e);
    int rc = n ? read_scalar(r, n, fy_event_get_token(e)) : -ENOMEM;

    if (rc)
        return rc;
    if (is_key(r))
        return on_key(r, n, e);
    node_place(r, n);
    check_extras(r, n, e);
    return 0;
}

static int on_start(struct reader *r, enum yaml_kind kind, struct fy_event *e)
{
    struct yaml_node *n = node_new(r, kind, e);

    if (!n)
        return -ENOMEM;
    if (is_key(r))
        return on_key(r, n, e);
    node_place(r, n);
    check_extras(r, n, e);
    if (++r->depth > YAML_DEPTH_MAX) {
        config_errors_add(r->errs, r->file, n->line, n->col, NULL, "nested deeper than %d levels",
                          YAML_DEPTH_MAX);
        return -EINVAL;
    }
    r->top = n;
    return 0;
}

static int on_end(struct reader *r)
{
    assert(r->top); /* libfyaml's events are balanced */
    r->top = r->top->parent;
    r->depth--;
    return 0;
}

static int on_alias(struct reader *r, struct fy_event *e)
{
    struct yaml_node *n = node_new(r, YAML_REFUSED, e);

    if (!n)
        return -ENOMEM;
    if (is_key(r))
        return on_key(r, n, e);
    n->col -= n->col > 1; /* the mark is behind the star */
    node_place(r, n);
    if (!n->key || n->key->kind != YAML_REFUSED)
        refuse(r, n, "YAML aliases are not supported: write the value out");
    return 0;
}

static int on_second_document(struct reader *r, struct fy_event *e)
{
    struct yaml_node at = {0};

    set_position(r, &at, e);
    config_errors_add(r->errs, r->file, at.line, at.col, NULL,
                      "expected one YAML document, a second one starts here");
    return -EINVAL;
}

static int on_event(struct reader *r, struct fy_event *e)
{
    if (e->type == FYET_DOCUMENT_START) {
        r->documents++;
        return 0;
    }
    if (r->documents > 1)
        return on_second_document(r, e);
    switch (e->type) {
    case FYET_SCALAR:
        return on_scalar(r, e);
    case FYET_MAPPING_START:
        return on_start(r, YAML_MAP, e);
    case FYET_SEQUENCE_START:
        return on_start(r, YAML_LIST, e);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        return on_end(r);
    case FYET_ALIAS:
        return on_alias(r, e);
    default:
        return 0;
    }
}

static void report_syntax(struct reader *r, struct fy_diag *diag)
{
    void *it = NULL;
    struct fy_diag_error *e = fy_diag_errors_iterate(diag, &it);

    if (!e) {
        config_errors_add(r->errs, r->file, 0, 0, NULL, "not valid YAML");
        return;
    }
    config_errors_add(r->errs, r->file, e->line > 0 ? e->line : 1, e->column > 0 ? e->column : 1,
                      NULL, "YAML syntax: %s", e->msg);
}

static int read_events(struct reader *r, struct fy_parser *parser, struct fy_diag *diag)
{
    struct fy_event *e;
    int rc = 0;
    bool ended = false;

    while (!rc && !ended && (e = fy_parser_parse(parser))) {
        ended = e->type == FYET_STREAM_END;
        rc = on_event(r, e);
        fy_parser_event_free(parser, e);
    }
    if (rc || ended)
        return rc;
    report_syntax(r, diag);
    return -EINVAL;
}

static int parse(struct reader *r, const char *text, size_t len)
{
    struct fy_diag_cfg diag_cfg;
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG |
                                        FYPCF_ALLOW_DUPLICATE_KEYS | FYPCF_JSON_NONE};
    struct fy_parser *parser = NULL;
    int rc = -ENOMEM;

    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    cfg.diag = fy_diag_create(&diag_cfg);
    if (!cfg.diag)
        return -ENOMEM;
    fy_diag_set_collect_errors(cfg.diag, true);
    parser = fy_parser_create(&cfg);
    if (parser && !fy_parser_set_string(parser, text, len))
        rc = read_events(r, parser, cfg.diag);
    if (parser)
        fy_parser_destroy(parser);
    fy_diag_destroy(cfg.diag);
    return rc;
}

int yaml_read(struct arena *a, const char *file, const char *text, size_t len,
              struct yaml_node **ret, struct config_errors *errs)
{
    struct reader r = {.arena = a, .file = file, .errs = errs, .line = 1, .col = 1};
    int rc;

    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark is no content */
        text += 3;
        len -= 3;
    }
    if (!characters_are_good(file, text, len, errs))
        return -EINVAL;
    r.input = text;
    rc = parse(&r, text, len);
    if (rc)
        return rc;
    if (!r.root || yaml_is_null(r.root)) {
        config_errors_add(errs, file, 1, 1, NULL,
                          "the file is empty: a configuration starts with \"version: 1\"");
        return -EINVAL;
    }
    *ret = r.root;
    return 0;
}
