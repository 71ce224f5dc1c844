#include "dataplane/stream/client_hello.h"

#include <errno.h>
#include <string.h>

#define RECORD_HEADER    5
#define RECORD_MAX       16384
#define RECORD_HANDSHAKE 22
#define MESSAGE_HEADER   4
#define MESSAGE_HELLO    1
#define RANDOM           32
#define SESSION_ID_MAX   32

#define EXTENSION_SERVER_NAME 0
#define EXTENSION_ALPN        16
#define NAME_HOST             0
#define LABEL_MAX             63

/* --- records ---------------------------------------------------------------------------------
 */

/* What the first bytes must be, as soon as one of them is here. */
static bool may_be_tls(const struct rope *in)
{
    uint8_t h[2];
    size_t n = in->len < sizeof(h) ? in->len : sizeof(h);
    rope_copy_out(in, 0, h, n);
    return (n < 1 || h[0] == RECORD_HANDSHAKE) && (n < 2 || h[1] == 3);
}

/* The header of the next record is here. */
static int begin_record(struct hello_reader *r, const struct rope *in)
{
    uint8_t h[RECORD_HEADER];
    rope_copy_out(in, r->record_, h, sizeof(h));
    uint32_t len = (uint32_t)h[3] << 8 | h[4];
    if (h[0] != RECORD_HANDSHAKE || h[1] != 3 || len == 0 || len > RECORD_MAX)
        return -EBADMSG;
    r->records_++;
    r->record_ += RECORD_HEADER + len;
    r->have_ += len;
    return 0;
}

/* Bytes of the message that are here. */
static uint32_t arrived(const struct hello_reader *r, const struct rope *in)
{
    uint64_t missing = in->len < r->record_ ? r->record_ - in->len : 0;
    return missing < r->have_ ? r->have_ - (uint32_t)missing : 0;
}

/* Its header is here, perhaps cut by records. */
static int begin_message(struct hello_reader *r, const struct rope *in)
{
    struct hello_reader header = {.message = MESSAGE_HEADER};
    uint8_t bytes[MESSAGE_HEADER];
    const uint8_t *h = hello_reader_message(&header, in, bytes);
    if (h[0] != MESSAGE_HELLO)
        return -EBADMSG;
    r->message = MESSAGE_HEADER + ((uint32_t)h[1] << 16 | (uint32_t)h[2] << 8 | h[3]);
    return 0;
}

/* 0: wait for more. 1: a record more, or the message's length, is known. */
static int advance(struct hello_reader *r, const struct rope *in, uint32_t max)
{
    int err;
    if (!r->message && r->have_ >= MESSAGE_HEADER) {
        if (arrived(r, in) < MESSAGE_HEADER)
            return 0;
        err = begin_message(r, in);
    } else {
        if (r->record_ + RECORD_HEADER > max)
            return -EMSGSIZE;
        if (in->len < (uint64_t)r->record_ + RECORD_HEADER)
            return 0;
        err = begin_record(r, in);
    }
    if (err)
        return err;
    return r->record_ > max || r->message > max ? -EMSGSIZE : 1;
}

int hello_reader_scan(struct hello_reader *r, const struct rope *in, uint32_t max)
{
    if (!r->records_ && !may_be_tls(in))
        return -ENOMSG;
    while (!r->message || r->have_ < r->message) {
        int n = advance(r, in, max);
        if (n <= 0)
            return n;
    }
    if (r->have_ > r->message) /* nothing may follow it in its record */
        return -EBADMSG;
    return in->len >= r->record_ ? (int)r->record_ : 0;
}

/* The node in which the whole message lies. */
static const uint8_t *in_one_piece(const struct hello_reader *r, const struct rope *in)
{
    uint64_t off = RECORD_HEADER;
    for (const struct rope_node *n = in->head; r->records_ == 1 && n; n = n->next) {
        if (off >= n->len) {
            off -= n->len;
            continue;
        }
        return off + r->message <= n->len ? (const uint8_t *)rope_node_data(n) + off : NULL;
    }
    return NULL;
}

const uint8_t *hello_reader_message(const struct hello_reader *r, const struct rope *in,
                                    uint8_t *scratch)
{
    const uint8_t *whole = in_one_piece(r, in);
    uint32_t got = 0, record = 0;
    if (whole)
        return whole;
    while (got < r->message) {
        uint8_t h[RECORD_HEADER];
        rope_copy_out(in, record, h, sizeof(h));
        uint32_t len = (uint32_t)h[3] << 8 | h[4], left = r->message - got;
        uint32_t n = len < left ? len : left;
        rope_copy_out(in, record + RECORD_HEADER, scratch + got, n);
        got += n;
        record += RECORD_HEADER + len;
    }
    return scratch;
}

/* --- the message -------------------------------------------------------------------------------
 */

struct cursor {
    const uint8_t *at;
    size_t left;
};

static bool skip(struct cursor *c, size_t n)
{
    if (n > c->left)
        return false;
    c->at += n;
    c->left -= n;
    return true;
}

/* A number of 1 or 2 bytes. */
static bool number(struct cursor *c, unsigned bytes, uint32_t *ret)
{
    const uint8_t *p = c->at;
    if (!skip(c, bytes))
        return false;
    *ret = bytes == 1 ? p[0] : (uint32_t)p[0] << 8 | p[1];
    return true;
}

/* What a length of 1 or 2 bytes stands in front of. */
static bool vector(struct cursor *c, unsigned bytes, struct cursor *ret)
{
    uint32_t n;
    if (!number(c, bytes, &n))
        return false;
    *ret = (struct cursor){c->at, n};
    return skip(c, n);
}

static int lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool is_name_char(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

static bool take_name(const struct cursor *name, struct client_hello *h)
{
    size_t label = 0;
    if (name->left == 0 || name->left >= CLIENT_HELLO_NAME)
        return false;
    for (size_t i = 0; i < name->left; i++) {
        int c = lower(name->at[i]);
        label = c == '.' ? 0 : label + 1;
        if (!is_name_char(c) || label > LABEL_MAX ||
            (c == '.' && (i == 0 || h->name[i - 1] == '.')))
            return false;
        h->name[i] = (char)c;
    }
    if (label == 0) /* it is said without its last dot */
        return false;
    h->name_len = (uint32_t)name->left;
    h->name[h->name_len] = 0;
    return true;
}

static bool on_server_name(struct cursor body, struct client_hello *h)
{
    struct cursor list, name;
    uint32_t type;
    return h->name_len == 0 && vector(&body, 2, &list) && body.left == 0 &&
           number(&list, 1, &type) && type == NAME_HOST && vector(&list, 2, &name) &&
           list.left == 0 && take_name(&name, h);
}

static bool on_alpn(struct cursor body, struct client_hello *h)
{
    struct cursor list, name;
    if (h->alpn || !vector(&body, 2, &list) || body.left || !list.left)
        return false;
    h->alpn = list.at;
    h->alpn_len = (uint32_t)list.left;
    while (list.left)
        if (!vector(&list, 1, &name) || name.left == 0)
            return false;
    return true;
}

static bool on_extensions(struct cursor list, struct client_hello *h)
{
    while (list.left) {
        struct cursor body;
        uint32_t type;
        if (!number(&list, 2, &type) || !vector(&list, 2, &body))
            return false;
        if (type == EXTENSION_SERVER_NAME && !on_server_name(body, h))
            return false;
        if (type == EXTENSION_ALPN && !on_alpn(body, h))
            return false;
    }
    return true;
}

/* RFC 5246 §7.4.1.2, RFC 8446 §4.1.2. */
static bool parse(struct cursor c, struct client_hello *h)
{
    struct cursor session, suites, compressions, extensions;
    uint32_t version;
    if (!number(&c, 2, &version) || version >> 8 != 3 || !skip(&c, RANDOM))
        return false;
    if (!vector(&c, 1, &session) || session.left > SESSION_ID_MAX)
        return false;
    if (!vector(&c, 2, &suites) || suites.left < 2 || suites.left % 2)
        return false;
    if (!vector(&c, 1, &compressions) || !compressions.left ||
        !memchr(compressions.at, 0, compressions.left))
        return false;
    if (c.left == 0) /* TLS 1.2 may do without */
        return true;
    return vector(&c, 2, &extensions) && c.left == 0 && on_extensions(extensions, h);
}

int client_hello_parse(const uint8_t *message, size_t len, struct client_hello *ret_hello)
{
    struct client_hello h = {.name_len = 0};
    struct cursor c = {message, len};
    uint32_t type, high, low;
    if (!number(&c, 1, &type) || type != MESSAGE_HELLO || !number(&c, 1, &high) ||
        !number(&c, 2, &low) || (high << 16 | low) != c.left || !parse(c, &h))
        return -EBADMSG;
    *ret_hello = h;
    return 0;
}

bool client_hello_offers(const struct client_hello *h, const char *protocol)
{
    size_t len = strlen(protocol);
    for (const uint8_t *p = h->alpn, *end = p + h->alpn_len; p < end; p += 1 + *p)
        if (*p == len && memcmp(p + 1, protocol, len) == 0)
            return true;
    return false;
}
