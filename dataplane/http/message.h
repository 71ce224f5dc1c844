/* The head of an HTTP/1 message, as the parser leaves it: spans over bytes that stay where they
 * are.
 *
 * http/ may use runtime, config/snapshot.h, stream/rope.h and rte_mbuf; upstream and proxy use it.
 * Nothing here knows connections or tasks, and nothing yields.
 *
 * Ownership: the caller owns the bytes and the array of header entries; a head is valid as long as
 * both are. Spans are offsets from `base`, so a caller who moves the bytes only sets `base` anew.
 *
 * Errors in this folder: 0 or a positive count is success; the parsers and normalize return
 * -(HTTP status) and say why in an enum http_error; the rest returns -errno.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_MESSAGE_H
#define MILLRACE_DATAPLANE_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_method {
    HTTP_METHOD_OTHER, /* an extension: see the `method_text` span */
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_DELETE,
    HTTP_CONNECT,
    HTTP_OPTIONS,
    HTTP_TRACE,
    HTTP_PATCH,
};

/* RFC 9110 §9.2.2; an extension method never is. */
bool http_method_is_idempotent(enum http_method m);
/* "other" for an extension. */
const char *http_method_name(enum http_method m);

enum http_error {
#define ERROR(name, status, text) HTTP_ERR_##name,
#include "dataplane/http/error.def"
#undef ERROR
    HTTP_ERR_COUNT
};

const char *http_error_name(enum http_error e); /* as in error.def */
const char *http_error_text(enum http_error e);
int http_error_status(enum http_error e); /* 0 for HTTP_ERR_NONE */

enum http_header_id {
    HTTP_H_OTHER,
#define HEADER(id, text, len, first, last, flags) HTTP_H_##id,
#include "dataplane/http/header.def"
#undef HEADER
    HTTP_H_COUNT
};
_Static_assert(HTTP_H_COUNT <= 64, "a head keeps a bit for each known field");

/* Lower-case text; NULL for HTTP_H_OTHER. */
const char *http_header_text(enum http_header_id id);
/* `name` has token characters only, any case. */
enum http_header_id http_header_find_id(const char *name, size_t len);

enum http_header_flags {
    HTTP_HF_HOP = 1,       /* belongs to one connection */
    HTTP_HF_KEEP = 2,      /* Connection can't nominate it */
    HTTP_HF_NOTRAILER = 4, /* not allowed in trailers */
    HTTP_HF_NOMINATED = 8, /* named by this message's Connection */
    HTTP_HF_LOOSE = 16,    /* written with a space before the colon (responses only): the line can't
                              be copied as it is */
};

/* What header.def says about a field: HTTP_HF_HOP, _KEEP, _NOTRAILER. */
extern const uint8_t http_header_rules[HTTP_H_COUNT];

struct http_span {
    uint32_t off, len;
};

struct http_header {
    uint32_t name_off;  /* the line's first byte */
    uint32_t value_off; /* without the white space around it */
    uint32_t value_len;
    uint16_t name_len;
    uint8_t id;    /* enum http_header_id */
    uint8_t flags; /* enum http_header_flags */
};
_Static_assert(sizeof(struct http_header) == 16, "four to a cache line");

/* How the end of a body is known (RFC 9112 §6.3). */
enum http_framing { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_UNTIL_CLOSE };

enum http_target_form { HTTP_TARGET_ORIGIN, HTTP_TARGET_ABSOLUTE, HTTP_TARGET_ASTERISK };

struct http_head {
    const char *base;
    uint32_t head_len;     /* from base through the empty line */
    uint32_t fields_off;   /* first header line */
    uint32_t fields_end;   /* the empty line's CR */
    uint8_t version_minor; /* HTTP/1.0 or 1.1; a response's higher minor is read as 1 */
    bool is_request;

    /* requests */
    uint8_t method; /* enum http_method */
    uint8_t target_form;
    bool is_https; /* the scheme of an absolute target */
    struct http_span method_text;
    struct http_span target;    /* as received */
    struct http_span authority; /* of an absolute target, else Host's value; len 0: none (1.0) */
    struct http_span path;      /* as received; len 0: "*", or an absolute target without one */
    struct http_span query;     /* without "?"; has_query says whether there was one */
    bool has_query;

    /* responses */
    uint16_t status;
    struct http_span reason;

    /* framing and connection */
    uint8_t framing; /* enum http_framing */
    bool has_length; /* there was a (valid) Content-Length; HEAD and 304 have one and no body */
    uint64_t content_length; /* when has_length */
    bool keep_alive; /* what version, Connection and (responses) framing say about the connection */
    bool upgrade;    /* Connection: upgrade and an Upgrade field */
    bool expect_continue;
    bool te_trailers; /* TE: trailers, properly nominated */

    uint64_t present; /* bit per known id */
    struct http_header *headers;
    uint16_t nheaders;
    uint16_t cap; /* entries in `headers`, set by the caller: the limit on fields */

    uint8_t error; /* enum http_error, after a failure */
};

static inline const char *http_head_at(const struct http_head *h, struct http_span s)
{
    return h->base + s.off;
}

static inline bool http_head_has(const struct http_head *h, enum http_header_id id)
{
    return h->present >> id & 1;
}

static inline struct http_span http_header_value(const struct http_header *f)
{
    return (struct http_span){f->value_off, f->value_len};
}

/* The first field of a known name, or NULL. */
const struct http_header *http_head_find(const struct http_head *h, enum http_header_id id);

/* The first field of a name in lower case, from `from` on (NULL: the first of all), or NULL. */
struct http_header *http_head_find_name(const struct http_head *h, struct http_header *from,
                                        const char *lower, size_t len);

/* Sets what the parsers need: everything else is theirs. */
static inline void http_head_init(struct http_head *h, struct http_header *headers, uint16_t cap)
{
    h->headers = headers;
    h->cap = cap;
    h->nheaders = 0;
    h->error = HTTP_ERR_NONE;
}

#endif
