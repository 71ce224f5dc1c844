#include "dataplane/http/h1/serialize.h"

#include <strings.h>

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/writer.h"

#define BIT(id) (UINT64_C(1) << HTTP_H_##id)

/* Copies the head's bytes in runs, as long as nothing between has to go. */
struct copier {
    struct h1_writer w;
    const struct http_head *head;
    const struct h1_changes *changes;
    uint64_t drop; /* fields that go, bit per id; HTTP_H_OTHER's: those that `changes` names */
    uint32_t run;  /* first byte not copied yet */
};

static void copy_up_to(struct copier *c, uint32_t off)
{
    h1_put(&c->w, c->head->base + c->run, off - c->run);
}

static __attribute__((noinline)) bool is_named(const struct copier *c, const struct http_header *f)
{
    const struct h1_changes *changes = c->changes;
    for (uint32_t i = 0; i < changes->nnames; i++)
        if (http_text_is(c->head->base + f->name_off, f->name_len, changes->names[i].text,
                         changes->names[i].len))
            return true;
    return false;
}

static bool is_dropped(const struct copier *c, const struct http_header *f)
{
    if (f->flags & HTTP_HF_NOMINATED)
        return true;
    return (c->drop >> f->id & 1) && (f->id != HTTP_H_OTHER || is_named(c, f));
}

static struct copier copier(const struct http_head *head, uint64_t drop,
                            const struct h1_changes *changes)
{
    return (struct copier){
        .head = head, .changes = changes, .drop = drop | (changes ? changes->drop : 0)};
}

static void put_changes(struct copier *c)
{
    if (c->changes && c->changes->put)
        c->changes->put(&c->w, c->changes->ctx);
}

static void put_field(struct copier *c, const struct http_header *f)
{
    h1_put(&c->w, c->head->base + f->name_off, f->name_len);
    H1_PUT(&c->w, ": ");
    h1_put(&c->w, c->head->base + f->value_off, f->value_len);
    H1_PUT(&c->w, "\r\n");
}

static void copy_fields(struct copier *c)
{
    const struct http_head *head = c->head;
    for (unsigned i = 0; i < head->nheaders; i++) {
        const struct http_header *f = &head->headers[i];
        bool dropped = is_dropped(c, f);
        if (!dropped && !(f->flags & HTTP_HF_LOOSE))
            continue;
        copy_up_to(c, f->name_off);
        if (!dropped)
            put_field(c, f);
        c->run = i + 1 < head->nheaders ? f[1].name_off : head->fields_end;
    }
    copy_up_to(c, head->fields_end);
}

/* Fields that end at this hop (RFC 9110 §7.6.1), whatever Connection says. */
static const uint64_t hop_fields = 0
#define HOP                                       1
#define KEEP                                      0
#define NOTRAILER                                 0
#define HEADER(id, text, len, first, last, flags) | (uint64_t)(flags) << HTTP_H_##id
#include "dataplane/http/header.def"
#undef HEADER
#undef HOP
#undef KEEP
#undef NOTRAILER
    ;

/* "Name: old, old, " of every field of that name. */
static void put_list_so_far(struct copier *c, const char *name, enum http_header_id id)
{
    const struct http_head *head = c->head;
    h1_put_text(&c->w, name);
    if (!http_head_has(head, id))
        return;
    for (unsigned i = 0; i < head->nheaders; i++) {
        const struct http_header *f = &head->headers[i];
        if (f->id != id || f->value_len == 0)
            continue;
        h1_put(&c->w, head->base + f->value_off, f->value_len);
        H1_PUT(&c->w, ", ");
    }
}

static inline void put_via(struct copier *c, const char *pseudonym)
{
    put_list_so_far(c, "Via: ", HTTP_H_VIA);
    if (c->head->version_minor == 0)
        H1_PUT(&c->w, "1.0 ");
    else
        H1_PUT(&c->w, "1.1 ");
    h1_put_text(&c->w, pseudonym);
    H1_PUT(&c->w, "\r\n");
}

static void put_span(struct copier *c, struct http_span s)
{
    h1_put(&c->w, http_head_at(c->head, s), s.len);
}

static void put_framing(struct copier *c, enum http_framing framing, uint64_t length)
{
    if (framing == HTTP_BODY_CHUNKED) {
        H1_PUT(&c->w, "Transfer-Encoding: chunked\r\n");
    } else if (framing == HTTP_BODY_LENGTH) {
        H1_PUT(&c->w, "Content-Length: ");
        h1_put_number(&c->w, length);
        H1_PUT(&c->w, "\r\n");
    }
}

/* True when the Content-Length that came says what has to be said. */
static bool is_length_kept(const struct http_head *head, enum http_framing framing, uint64_t length)
{
    if (!head->has_length)
        return false;
    if (framing == HTTP_BODY_LENGTH)
        return head->content_length == length;
    /* The length of a body that isn't sent: of an answer to HEAD, or 304. */
    return framing == HTTP_BODY_NONE &&
           (head->is_request ? head->content_length == 0
                             : head->status >= 200 && head->status != 204);
}

static bool has_x(enum config_forwarded f)
{
    return f == CONFIG_FORWARDED_X || f == CONFIG_FORWARDED_BOTH;
}

static bool has_rfc7239(enum config_forwarded f)
{
    return f == CONFIG_FORWARDED_RFC7239 || f == CONFIG_FORWARDED_BOTH;
}

static uint64_t request_drops(const struct http_head *head, const struct h1_request_edit *edit)
{
    uint64_t drop = hop_fields;
    if (!is_length_kept(head, edit->framing, edit->content_length))
        drop |= BIT(CONTENT_LENGTH);
    if (head->target_form == HTTP_TARGET_ABSOLUTE || (edit->changes && edit->changes->host))
        drop |= BIT(HOST);
    if (!head->expect_continue)
        drop |= BIT(EXPECT); /* from HTTP/1.0, where it means nothing (RFC 9110 §10.1.1) */
    if (edit->via)
        drop |= BIT(VIA);
    if (has_x(edit->forwarded))
        drop |= BIT(X_FORWARDED_FOR) | BIT(X_FORWARDED_PROTO) | BIT(X_FORWARDED_HOST);
    if (has_rfc7239(edit->forwarded))
        drop |= BIT(FORWARDED);
    return drop;
}

static void put_query(struct copier *c)
{
    if (!c->head->has_query)
        return;
    H1_PUT(&c->w, "?");
    put_span(c, c->head->query);
}

static void put_new_path(struct copier *c, const struct h1_path *path)
{
    h1_put(&c->w, path->piece[0], path->len[0]);
    h1_put(&c->w, path->piece[1], path->len[1]);
    put_query(c);
}

static const struct h1_path *new_path(const struct copier *c)
{
    return c->changes ? c->changes->path : NULL;
}

static void put_target(struct copier *c)
{
    const struct http_head *head = c->head;
    if (new_path(c)) {
        put_new_path(c, new_path(c));
        return;
    }
    if (head->target_form != HTTP_TARGET_ABSOLUTE) {
        put_span(c, head->target);
        return;
    }
    /* An absolute target without a path is "*" for OPTIONS, else "/" (RFC 9112 §3.2). */
    if (head->path.len)
        put_span(c, head->path);
    else if (head->method == HTTP_OPTIONS && !head->has_query)
        H1_PUT(&c->w, "*");
    else
        H1_PUT(&c->w, "/");
    put_query(c);
}

static void put_request_line(struct copier *c)
{
    const struct http_head *head = c->head;
    /* As it came, and then it is a part of the first run. */
    if (head->version_minor == 1 && head->target_form != HTTP_TARGET_ABSOLUTE && !new_path(c))
        return;
    put_span(c, head->method_text);
    H1_PUT(&c->w, " ");
    put_target(c);
    H1_PUT(&c->w, " HTTP/1.1\r\n");
    c->run = head->fields_off;
}

static void put_host(struct copier *c, const struct h1_request_edit *edit)
{
    const struct http_head *head = c->head;
    if (!(c->drop & BIT(HOST)) && http_head_has(head, HTTP_H_HOST))
        return;
    H1_PUT(&c->w, "Host: ");
    if (c->changes && c->changes->host)
        h1_put_text(&c->w, c->changes->host);
    else if (head->target_form == HTTP_TARGET_ABSOLUTE)
        put_span(c, head->authority);
    else if (edit->default_host)
        h1_put_text(&c->w, edit->default_host);
    H1_PUT(&c->w, "\r\n");
}

static void put_x_forwarded(struct copier *c, const struct h1_request_edit *edit)
{
    put_list_so_far(c, "X-Forwarded-For: ", HTTP_H_X_FORWARDED_FOR);
    h1_put_text(&c->w, edit->client_addr);
    if (edit->https)
        H1_PUT(&c->w, "\r\nX-Forwarded-Proto: https\r\n");
    else
        H1_PUT(&c->w, "\r\nX-Forwarded-Proto: http\r\n");
    if (c->head->authority.len == 0)
        return;
    H1_PUT(&c->w, "X-Forwarded-Host: ");
    put_span(c, c->head->authority);
    H1_PUT(&c->w, "\r\n");
}

/* RFC 7239 §4: IPv6 addresses and what has a colon are quoted. */
static void put_forwarded(struct copier *c, const struct h1_request_edit *edit)
{
    put_list_so_far(c, "Forwarded: ", HTTP_H_FORWARDED);
    bool is_ip6 = strchr(edit->client_addr, ':') != NULL;
    h1_put_text(&c->w, is_ip6 ? "for=\"[" : "for=");
    h1_put_text(&c->w, edit->client_addr);
    if (is_ip6)
        H1_PUT(&c->w, "]\"");
    if (c->head->authority.len) {
        H1_PUT(&c->w, ";host=\"");
        put_span(c, c->head->authority);
        H1_PUT(&c->w, "\"");
    }
    h1_put_text(&c->w, edit->https ? ";proto=https\r\n" : ";proto=http\r\n");
}

static void put_request_connection(struct copier *c, const struct h1_request_edit *edit)
{
    if (c->head->te_trailers) {
        h1_put_text(&c->w, edit->close ? "TE: trailers\r\nConnection: close, TE\r\n"
                                       : "TE: trailers\r\nConnection: TE\r\n");
    } else if (edit->close) {
        H1_PUT(&c->w, "Connection: close\r\n");
    }
}

/* What this hop writes anew doesn't go on as it came. */
static void drop_named(const struct http_head *head, const char *name)
{
    size_t len = strlen(name);
    struct http_header *f = NULL;
    while ((f = http_head_find_name(head, f, name, len)))
        (f++)->flags |= HTTP_HF_NOMINATED;
}

/* Nobody but us says who the client is. */
static void drop_subject(const struct http_head *head, const char *name)
{
    size_t len = strlen(name);
    for (unsigned i = 0; i < head->nheaders; i++) {
        struct http_header *f = &head->headers[i];
        if (f->name_len == len && strncasecmp(head->base + f->name_off, name, len) == 0)
            f->flags |= HTTP_HF_NOMINATED;
    }
}

int h1_write_request(struct rope_pool *pool, struct rope *out, const struct http_head *head,
                     const struct h1_request_edit *edit)
{
    if (edit->deadline_name)
        drop_named(head, edit->deadline_name);
    if (edit->subject_name)
        drop_subject(head, edit->subject_name);
    struct copier c = copier(head, request_drops(head, edit), edit->changes);
    h1_writer_begin(&c.w, pool);
    put_request_line(&c);
    copy_fields(&c);
    put_host(&c, edit);
    if (c.drop & BIT(CONTENT_LENGTH))
        put_framing(&c, edit->framing, edit->content_length);
    if (has_x(edit->forwarded))
        put_x_forwarded(&c, edit);
    if (has_rfc7239(edit->forwarded))
        put_forwarded(&c, edit);
    if (edit->via)
        put_via(&c, edit->via);
    if (edit->deadline_name) {
        h1_put_text(&c.w, edit->deadline_name);
        H1_PUT(&c.w, ": ");
        h1_put_text(&c.w, edit->deadline);
        H1_PUT(&c.w, "\r\n");
    }
    if (edit->subject_name && edit->subject) {
        h1_put_text(&c.w, edit->subject_name);
        H1_PUT(&c.w, ": ");
        h1_put_text(&c.w, edit->subject);
        H1_PUT(&c.w, "\r\n");
    }
    put_changes(&c);
    put_request_connection(&c, edit);
    H1_PUT(&c.w, "\r\n");
    return h1_writer_commit(&c.w, out);
}

void h1_request_framing(const struct http_head *head, struct h1_request_edit *edit)
{
    edit->framing = head->framing;
    edit->content_length = head->content_length;
    /* RFC 9110 §8.6: a method that expects content says that there is none. */
    bool expects = head->method == HTTP_POST || head->method == HTTP_PUT ||
                   head->method == HTTP_PATCH || head->has_length;
    if (head->framing == HTTP_BODY_NONE && expects)
        edit->framing = HTTP_BODY_LENGTH;
}

static void put_status_line(struct copier *c)
{
    const struct http_head *head = c->head;
    if (head->base[7] == '1')
        return;
    H1_PUT(&c->w, "HTTP/1.1 ");
    h1_put_number(&c->w, head->status);
    H1_PUT(&c->w, " ");
    put_span(c, head->reason);
    H1_PUT(&c->w, "\r\n");
    c->run = head->fields_off;
}

static void put_response_connection(struct copier *c, const struct h1_response_edit *edit)
{
    if (!edit->keep_alive)
        H1_PUT(&c->w, "Connection: close\r\n");
    else if (edit->client_minor == 0)
        H1_PUT(&c->w, "Connection: keep-alive\r\n");
}

static uint64_t response_drops(const struct http_head *head, const struct h1_response_edit *edit)
{
    uint64_t drop = hop_fields;
    if (!is_length_kept(head, edit->framing, edit->content_length))
        drop |= BIT(CONTENT_LENGTH);
    if (edit->via)
        drop |= BIT(VIA);
    return drop;
}

int h1_write_response(struct rope_pool *pool, struct rope *out, const struct http_head *head,
                      const struct h1_response_edit *edit)
{
    struct copier c = copier(head, response_drops(head, edit), edit->changes);
    bool is_final = head->status >= 200;
    h1_writer_begin(&c.w, pool);
    put_status_line(&c);
    copy_fields(&c);
    if (is_final && c.drop & BIT(CONTENT_LENGTH))
        put_framing(&c, edit->framing, edit->content_length);
    if (is_final && edit->date && !http_head_has(head, HTTP_H_DATE)) {
        H1_PUT(&c.w, "Date: ");
        h1_put_text(&c.w, edit->date);
        H1_PUT(&c.w, "\r\n");
    }
    if (edit->via)
        put_via(&c, edit->via);
    put_changes(&c);
    if (is_final)
        put_response_connection(&c, edit);
    H1_PUT(&c.w, "\r\n");
    return h1_writer_commit(&c.w, out);
}

void h1_response_framing(const struct http_head *head, struct h1_response_edit *edit)
{
    edit->framing = head->framing;
    edit->content_length = head->content_length;
    if (head->framing != HTTP_BODY_CHUNKED && head->framing != HTTP_BODY_UNTIL_CLOSE)
        return;
    edit->framing = edit->client_minor ? HTTP_BODY_CHUNKED : HTTP_BODY_UNTIL_CLOSE;
    if (edit->framing == HTTP_BODY_UNTIL_CLOSE)
        edit->keep_alive = false;
}
