/* ClientHellos, built field by field. */
#ifndef MILLRACE_TESTS_KIT_HELLO_BYTES_H
#define MILLRACE_TESTS_KIT_HELLO_BYTES_H

#include <stdint.h>
#include <string.h>

struct hello_bytes {
    size_t len;
    uint8_t bytes[80000];
};

static inline void hello_put(struct hello_bytes *h, const void *bytes, size_t len)
{
    memcpy(h->bytes + h->len, bytes, len);
    h->len += len;
}

static inline void hello_number(struct hello_bytes *h, unsigned width, size_t v)
{
    while (width--)
        h->bytes[h->len++] = (uint8_t)(v >> (8 * width));
}

/* An extension of `type` whose body is `len` bytes. */
static inline void hello_extension(struct hello_bytes *h, unsigned type, const void *body,
                                   size_t len)
{
    hello_number(h, 2, type);
    hello_number(h, 2, len);
    hello_put(h, body, len);
}

static inline void hello_server_name(struct hello_bytes *h, const char *name)
{
    size_t n = strlen(name);
    hello_number(h, 2, 0);
    hello_number(h, 2, n + 5);
    hello_number(h, 2, n + 3);
    hello_number(h, 1, 0);
    hello_number(h, 2, n);
    hello_put(h, name, n);
}

/* `list`: in the form of the wire, "\2h2\10http/1.1". */
static inline void hello_alpn(struct hello_bytes *h, const char *list)
{
    size_t n = strlen(list);
    hello_number(h, 2, 16);
    hello_number(h, 2, n + 2);
    hello_number(h, 2, n);
    hello_put(h, list, n);
}

/* The message around the extensions. NULL: without any. */
static inline void hello_message(struct hello_bytes *to, const struct hello_bytes *extensions)
{
    static const uint8_t random[32], session[32];
    size_t rest = extensions ? 2 + extensions->len : 0;
    hello_number(to, 1, 1);
    hello_number(to, 3, 2 + 32 + 33 + 2 + 4 + 2 + rest);
    hello_number(to, 2, 0x0303);
    hello_put(to, random, sizeof(random));
    hello_number(to, 1, sizeof(session));
    hello_put(to, session, sizeof(session));
    hello_number(to, 2, 4);
    hello_put(to, "\x0a\x0a\x13\x01", 4); /* GREASE, then AES-128-GCM */
    hello_put(to, "\1\0", 2);
    if (!extensions)
        return;
    hello_number(to, 2, extensions->len);
    hello_put(to, extensions->bytes, extensions->len);
}

/* In records of `size` bytes at the most. */
static inline void hello_records(struct hello_bytes *to, const struct hello_bytes *message,
                                 size_t size)
{
    for (size_t at = 0, n; at < message->len; at += n) {
        n = message->len - at < size ? message->len - at : size;
        hello_number(to, 1, 22);
        hello_number(to, 2, 0x0301);
        hello_number(to, 2, n);
        hello_put(to, message->bytes + at, n);
    }
}

/* What a browser would send: GREASE, a name, protocols, an outer ECH, a large key share. */
static inline void hello_browser(struct hello_bytes *to, const char *name, const char *alpn,
                                 size_t record)
{
    static struct hello_bytes extensions, message;
    static const uint8_t share[1200];
    extensions.len = message.len = 0;
    hello_extension(&extensions, 0x0a0a, "", 0);
    if (name)
        hello_server_name(&extensions, name);
    hello_extension(&extensions, 0xfe0d, share, 200);
    if (alpn)
        hello_alpn(&extensions, alpn);
    hello_extension(&extensions, 51, share, sizeof(share));
    hello_extension(&extensions, 0x1a1a, "\0", 1);
    hello_message(&message, &extensions);
    hello_records(to, &message, record);
}

#endif
