#include "dataplane/http/message.h"

#include <string.h>

#include "dataplane/http/chars.h"

bool http_method_is_idempotent(enum http_method m)
{
    switch (m) {
    case HTTP_GET:
    case HTTP_HEAD:
    case HTTP_PUT:
    case HTTP_DELETE:
    case HTTP_OPTIONS:
    case HTTP_TRACE:
        return true;
    case HTTP_METHOD_OTHER:
    case HTTP_POST:
    case HTTP_CONNECT:
    case HTTP_PATCH:
        return false;
    }
    return false;
}

const char *http_method_name(enum http_method m)
{
    static const char *const names[] = {
        [HTTP_METHOD_OTHER] = "other", [HTTP_GET] = "GET",         [HTTP_HEAD] = "HEAD",
        [HTTP_POST] = "POST",          [HTTP_PUT] = "PUT",         [HTTP_DELETE] = "DELETE",
        [HTTP_CONNECT] = "CONNECT",    [HTTP_OPTIONS] = "OPTIONS", [HTTP_TRACE] = "TRACE",
        [HTTP_PATCH] = "PATCH",
    };
    return m < sizeof(names) / sizeof(names[0]) ? names[m] : names[HTTP_METHOD_OTHER];
}

static const struct {
    const char *name;
    int status;
    const char *text;
} errors[HTTP_ERR_COUNT] = {
#define ERROR(name, status_, text_) [HTTP_ERR_##name] = {#name, status_, text_},
#include "dataplane/http/error.def"
#undef ERROR
};

const char *http_error_name(enum http_error e)
{
    return e < HTTP_ERR_COUNT ? errors[e].name : "?";
}

const char *http_error_text(enum http_error e)
{
    return e < HTTP_ERR_COUNT ? errors[e].text : "unknown error";
}

int http_error_status(enum http_error e)
{
    return e < HTTP_ERR_COUNT ? errors[e].status : 0;
}

#define TEXT_MAX 24

struct known_header {
    uint8_t len;
    char text[TEXT_MAX];
};

static const struct known_header known[HTTP_H_COUNT] = {
#define HEADER(id, text_, len_, first, last, flags) [HTTP_H_##id] = {len_, text_},
#include "dataplane/http/header.def"
#undef HEADER
};

const uint8_t http_header_rules[HTTP_H_COUNT] = {
#define HOP                                       HTTP_HF_HOP
#define KEEP                                      HTTP_HF_KEEP
#define NOTRAILER                                 HTTP_HF_NOTRAILER
#define HEADER(id, text, len, first, last, flags) [HTTP_H_##id] = flags,
#include "dataplane/http/header.def"
#undef HEADER
#undef HOP
#undef KEEP
#undef NOTRAILER
};

/* The factor was found by trying; a collision is an initializer written twice, which does not
 * compile (-Woverride-init). */
#define SLOTS                  128u
#define SLOT(len, first, last) ((unsigned)((len) + (first) + (last)*21) % SLOTS)

static const uint8_t slots[SLOTS] = {
#define HEADER(id, text, len, first, last, flags) [SLOT(len, first, last)] = HTTP_H_##id,
#include "dataplane/http/header.def"
#undef HEADER
};

const char *http_header_text(enum http_header_id id)
{
    return id != HTTP_H_OTHER && id < HTTP_H_COUNT ? known[id].text : NULL;
}

/* Setting bit 5 lower-cases letters and leaves "-" and digits; what else becomes one of these is no
 * token character. */
static bool same_eight(const char *name, const char *lower)
{
    uint64_t a, b;
    memcpy(&a, name, 8);
    memcpy(&b, lower, 8);
    return (a | UINT64_C(0x2020202020202020)) == b;
}

static bool same_name(const char *name, const char *lower, size_t len)
{
    if (len >= 8) {
        for (size_t i = 0; i + 8 < len; i += 8)
            if (!same_eight(name + i, lower + i))
                return false;
        return same_eight(name + len - 8, lower + len - 8);
    }
    for (size_t i = 0; i < len; i++)
        if ((name[i] | 0x20) != lower[i])
            return false;
    return true;
}

enum http_header_id http_header_find_id(const char *name, size_t len)
{
    if (len < 2 || len >= TEXT_MAX)
        return HTTP_H_OTHER;
    unsigned first = (unsigned char)name[0] | 0x20, last = (unsigned char)name[len - 1] | 0x20;
    unsigned id = slots[SLOT(len, first, last)];
    if (known[id].len != len || !same_name(name, known[id].text, len))
        return HTTP_H_OTHER;
    return id;
}

struct http_header *http_head_find_name(const struct http_head *h, struct http_header *from,
                                        const char *lower, size_t len)
{
    for (struct http_header *f = from ? from : h->headers; f < h->headers + h->nheaders; f++)
        if (f->name_len == len && same_name(h->base + f->name_off, lower, len))
            return f;
    return NULL;
}

const struct http_header *http_head_find(const struct http_head *h, enum http_header_id id)
{
    if (!http_head_has(h, id))
        return NULL;
    for (unsigned i = 0; i < h->nheaders; i++)
        if (h->headers[i].id == id)
            return &h->headers[i];
    return NULL;
}
