#include "dataplane/route/forwarded.h"

#include <arpa/inet.h>
#include <string.h>

#include "dataplane/route/access.h"

/* Elements of all fields of the name as one list (RFC 9110 §5.3), from its end on. */
struct walk {
    const struct http_head *head;
    unsigned fields; /* in front of the one that is being read */
    const char *text;
    size_t len; /* of it, not read yet */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool enter_field(struct walk *w)
{
    while (w->fields > 0) {
        const struct http_header *f = &w->head->headers[--w->fields];
        if (f->id != HTTP_H_X_FORWARDED_FOR || !f->value_len)
            continue;
        w->text = w->head->base + f->value_off;
        w->len = f->value_len;
        return true;
    }
    return false;
}

/* Without blanks around it. Empty ones are none. */
static bool previous(struct walk *w, const char **ret_text, size_t *ret_len)
{
    while (w->len || enter_field(w)) {
        const char *comma = memrchr(w->text, ',', w->len);
        const char *from = comma ? comma + 1 : w->text, *to = w->text + w->len;
        w->len = comma ? (size_t)(comma - w->text) : 0;
        while (from < to && is_blank(*from))
            from++;
        while (from < to && is_blank(to[-1]))
            to--;
        if (from == to)
            continue;
        *ret_text = from;
        *ret_len = (size_t)(to - from);
        return true;
    }
    return false;
}

/* An IPv4 address, perhaps with a port, as some write it. */
static bool parse(const char *text, size_t len, uint32_t *ret_addr)
{
    const char *colon = memchr(text, ':', len);
    size_t n = colon ? (size_t)(colon - text) : len;
    char copy[INET_ADDRSTRLEN];
    if (n >= sizeof(copy))
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    return inet_pton(AF_INET, copy, ret_addr) == 1 && *ret_addr != 0;
}

uint32_t forwarded_client(const struct config_range *proxies, size_t n, uint32_t peer,
                          const struct http_head *head)
{
    struct walk w = {.head = head, .fields = head->nheaders};
    const char *text;
    size_t len;
    uint32_t addr = peer, next;
    while (access_has(proxies, n, addr) && previous(&w, &text, &len) && parse(text, len, &next))
        addr = next;
    return addr;
}
