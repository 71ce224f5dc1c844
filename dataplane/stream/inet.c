#include "dataplane/stream/inet.h"

#include <arpa/inet.h>
#include <string.h>

#include "runtime/hash.h"

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* RFC 4291 §2.5.5.2 */

static void format_ip4(char *to, const uint8_t b[4])
{
    for (unsigned i = 0; i < 4; i++) {
        unsigned v = b[i];
        if (v >= 100)
            *to++ = (char)('0' + v / 100);
        if (v >= 10)
            *to++ = (char)('0' + v / 10 % 10);
        *to++ = (char)('0' + v % 10);
        *to++ = i < 3 ? '.' : 0;
    }
}

void inet_format(char to[INET_TEXT], const struct inet_end *e)
{
    if (e->is_ip6)
        inet_ntop(AF_INET6, e->ip6, to, INET_TEXT);
    else
        format_ip4(to, (const uint8_t *)&e->addr);
}

struct inet_end inet_from_ip6(const uint8_t bytes[16], uint16_t port)
{
    struct inet_end e = {.port = port};
    if (memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        memcpy(&e.addr, bytes + sizeof(mapped), sizeof(e.addr));
        return e;
    }
    e.is_ip6 = true;
    memcpy(e.ip6, bytes, sizeof(e.ip6));
    return e;
}

bool inet_is_nobody(const struct inet_end *e)
{
    static const uint8_t none[16];
    return e->is_ip6 ? memcmp(e->ip6, none, sizeof(none)) == 0 : e->addr == 0;
}

uint64_t inet_hash(const struct inet_end *e)
{
    return e->is_ip6 ? hash_bytes(e->ip6, sizeof(e->ip6), 0)
                     : hash_bytes(&e->addr, sizeof(e->addr), 0);
}
