#include "tests/kit/script_segment.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/csum.h"

static const char flag_letters[] = "FSRP.UEW"; /* bit 0 up */

/* --- parsing --- */

struct cursor {
    const char *p;
    const char *error;
};

static void skip_space(struct cursor *c)
{
    while (*c->p == ' ' || *c->p == '\t')
        c->p++;
}

static bool eat(struct cursor *c, const char *word)
{
    skip_space(c);
    size_t n = strlen(word);
    if (strncmp(c->p, word, n) != 0 || (isalnum((unsigned char)word[n - 1]) &&
                                        (isalnum((unsigned char)c->p[n]) || c->p[n] == '_')))
        return false;
    c->p += n;
    return true;
}

static uint32_t number(struct cursor *c)
{
    skip_space(c);
    char *end;
    long long v = strtoll(c->p, &end, 0);
    if (end == c->p)
        c->error = "a number was expected";
    c->p = end;
    return (uint32_t)v;
}

static void expect(struct cursor *c, const char *word)
{
    if (!eat(c, word) && !c->error)
        c->error = "a bracket, colon or comma is missing";
}

/* N, N..M, or * (not compared). */
static struct script_range range(struct cursor *c)
{
    struct script_range r = {.set = true};
    if (eat(c, "*"))
        return (struct script_range){0};
    r.lo = r.hi = number(c);
    if (eat(c, ".."))
        r.hi = number(c);
    return r;
}

static void put(struct cursor *c, struct script_segment *s, const void *bytes, unsigned n)
{
    if (s->raw_len + n > SEG_OPTIONS_MAX) {
        c->error = "more than 40 bytes of options";
        return;
    }
    memcpy(s->raw + s->raw_len, bytes, n);
    s->raw_len += n;
}

static void put_u32(uint8_t *at, uint32_t v)
{
    v = htonl(v);
    memcpy(at, &v, 4);
}

static void option_timestamp(struct cursor *c, struct script_segment *s)
{
    uint8_t b[10] = {8, 10};
    s->has_ts = true;
    expect(c, "val");
    s->ts_val = range(c);
    expect(c, "ecr");
    if (eat(c, "last"))
        s->ecr_last = true;
    else
        s->ts_ecr = range(c);
    s->ts_at = s->raw_len + 2;
    put(c, s, b, 10);
}

static void option_sack(struct cursor *c, struct script_segment *s)
{
    uint8_t b[34] = {5, 2};
    do {
        if (s->nsacks == 4) {
            c->error = "more than four SACK blocks";
            return;
        }
        s->sacks[s->nsacks].start = number(c);
        expect(c, ":");
        s->sacks[s->nsacks++].end = number(c);
        skip_space(c);
    } while (isdigit((unsigned char)*c->p) || *c->p == '-');
    b[1] = (uint8_t)(2 + 8 * s->nsacks);
    s->sack_at = s->raw_len + 2;
    put(c, s, b, b[1]);
}

static void option_hex(struct cursor *c, struct script_segment *s)
{
    skip_space(c);
    while (isxdigit((unsigned char)c->p[0]) && isxdigit((unsigned char)c->p[1])) {
        unsigned v;
        sscanf(c->p, "%2x", &v);
        put(c, s, &(uint8_t){(uint8_t)v}, 1);
        c->p += 2;
        skip_space(c);
    }
}

static void option(struct cursor *c, struct script_segment *s)
{
    if (eat(c, "...")) {
        s->options_open = true;
    } else if (eat(c, "nop")) {
        put(c, s, (uint8_t[]){1}, 1);
    } else if (eat(c, "eol")) {
        put(c, s, (uint8_t[]){0}, 1);
    } else if (eat(c, "mss")) {
        s->has_mss = true;
        s->mss = range(c);
        put(c, s, (uint8_t[]){2, 4, (uint8_t)(s->mss.lo >> 8), (uint8_t)s->mss.lo}, 4);
    } else if (eat(c, "wscale")) {
        s->has_wscale = true;
        s->wscale = range(c);
        put(c, s, (uint8_t[]){3, 3, (uint8_t)s->wscale.lo}, 3);
    } else if (eat(c, "sackOK")) {
        s->has_sack_ok = true;
        put(c, s, (uint8_t[]){4, 2}, 2);
    } else if (eat(c, "TS")) {
        option_timestamp(c, s);
    } else if (eat(c, "sack")) {
        option_sack(c, s);
    } else if (eat(c, "hex")) {
        option_hex(c, s);
    } else {
        c->error = "unknown option";
    }
}

static void options(struct cursor *c, struct script_segment *s)
{
    s->options_set = true;
    if (eat(c, ">"))
        return;
    do
        option(c, s);
    while (!c->error && eat(c, ","));
    expect(c, ">");
}

static void flags(struct cursor *c, struct script_segment *s)
{
    skip_space(c);
    if (eat(c, "-"))
        return;
    const char *start = c->p;
    for (; *c->p && *c->p != ' '; c->p++) {
        const char *at = strchr(flag_letters, *c->p == 'A' ? '.' : *c->p);
        if (!at) {
            c->error = "unknown flag";
            return;
        }
        s->flags |= (uint8_t)(1 << (at - flag_letters));
    }
    if (c->p == start)
        c->error = "flags were expected";
}

static uint32_t address(struct cursor *c)
{
    char text[32];
    struct in_addr a;
    skip_space(c);
    size_t n = strspn(c->p, "0123456789.");
    snprintf(text, sizeof text, "%.*s", (int)(n < 31 ? n : 31), c->p);
    if (inet_pton(AF_INET, text, &a) != 1)
        c->error = "an address was expected";
    c->p += n;
    return a.s_addr;
}

static void attribute(struct cursor *c, struct script_segment *s)
{
    if (eat(c, "ack"))
        s->ack = range(c);
    else if (eat(c, "win"))
        s->win = range(c);
    else if (eat(c, "urg"))
        s->urg = range(c);
    else if (eat(c, "tos"))
        s->tos = range(c);
    else if (eat(c, "<"))
        options(c, s);
    else if (eat(c, "doff"))
        s->doff = range(c);
    else if (eat(c, "cut"))
        s->cut = range(c);
    else if (eat(c, "badsum"))
        s->bad_checksum = true;
    else if (eat(c, "other"))
        s->other_bytes = true;
    else if (eat(c, "linkbroadcast"))
        s->link_broadcast = true;
    else if (eat(c, "sport"))
        s->peer_port = range(c);
    else if (eat(c, "dport"))
        s->us_port = range(c);
    else if (eat(c, "src"))
        s->src = address(c);
    else if (eat(c, "dst"))
        s->dst = address(c);
    else
        c->error = "unknown word";
}

const char *script_segment_parse(const char *text, bool injected, struct script_segment *ret_seg)
{
    struct cursor c = {.p = text};
    struct script_segment s = {0};
    flags(&c, &s);
    if (!c.error && eat(&c, "*")) {
        s.seq_any = true;
        if (eat(&c, "(")) {
            s.len = number(&c);
            expect(&c, ")");
        }
    } else if (!c.error) {
        s.seq = number(&c);
        expect(&c, ":");
        uint32_t end = number(&c);
        expect(&c, "(");
        s.len = number(&c);
        expect(&c, ")");
        if (!c.error && end - s.seq != s.len)
            c.error = "start, end and length of the segment don't agree";
    }
    for (skip_space(&c); !c.error && *c.p; skip_space(&c))
        attribute(&c, &s);
    *ret_seg = s;
    return c.error;
}

/* --- building --- */

static void fill_options(const struct script_segment *s, const struct script_flow *f, uint8_t *opt)
{
    memcpy(opt, s->raw, s->raw_len);
    if (s->has_ts) {
        put_u32(opt + s->ts_at, s->ts_val.lo);
        put_u32(opt + s->ts_at + 4, s->ecr_last ? f->ts_last : s->ts_ecr.lo + f->ts_base);
    }
    for (unsigned i = 0; i < s->nsacks; i++) {
        put_u32(opt + s->sack_at + 8 * i, s->sacks[i].start + f->us_isn);
        put_u32(opt + s->sack_at + 8 * i + 4, s->sacks[i].end + f->us_isn);
    }
}

size_t script_segment_build(const struct script_segment *s, const struct script_flow *f,
                            uint32_t src, uint32_t dst, uint8_t *out)
{
    struct rte_tcp_hdr *th = (struct rte_tcp_hdr *)out;
    unsigned opt_len = (s->raw_len + 3) & ~3u;
    size_t hdr_len = sizeof *th + opt_len, len = hdr_len + s->len;
    memset(out, 0, hdr_len);
    th->src_port = htons((uint16_t)(s->peer_port.set ? s->peer_port.lo : f->peer_port));
    th->dst_port = htons((uint16_t)(s->us_port.set ? s->us_port.lo : f->us_port));
    th->sent_seq = htonl(s->seq + f->peer_isn);
    th->recv_ack = s->ack.set ? htonl(s->ack.lo + f->us_isn) : 0;
    th->data_off = (uint8_t)((s->doff.set ? s->doff.lo : hdr_len / 4) << 4);
    th->tcp_flags = s->flags;
    th->rx_win = htons((uint16_t)(s->win.set ? s->win.lo : 65535));
    th->tcp_urp = htons((uint16_t)s->urg.lo);
    fill_options(s, f, out + sizeof *th);
    for (uint32_t i = 0; i < s->len; i++)
        out[hdr_len + i] =
            script_byte(false, s->seq + i + !!(s->flags & 2)) ^ (s->other_bytes ? 0x55 : 0);
    if (s->cut.set && s->cut.lo < len)
        len = s->cut.lo;
    if (len < 18) /* no room for a checksum */
        return len;
    uint64_t sum = csum_partial(out, len, csum_pseudo4(src, dst, IPPROTO_TCP, (uint16_t)len));
    th->cksum = csum_finish(sum) ^ (s->bad_checksum ? 0x0101 : 0);
    return len;
}

/* --- reading what the stack sent --- */

struct seen {
    const struct rte_tcp_hdr *th;
    uint32_t seq, ack, len;
    const uint8_t *opt, *payload;
    unsigned opt_len;
    bool has_mss, has_wscale, has_sack_ok, has_ts, malformed;
    uint32_t mss, wscale, ts_val, ts_ecr;
    unsigned nsacks;
    uint32_t sacks[4][2];
};

static uint32_t get_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return ntohl(v);
}

static void see_option(struct seen *s, const uint8_t *o)
{
    if (o[0] == 2 && o[1] == 4) {
        s->has_mss = true;
        s->mss = (uint32_t)o[2] << 8 | o[3];
    } else if (o[0] == 3 && o[1] == 3) {
        s->has_wscale = true;
        s->wscale = o[2];
    } else if (o[0] == 4 && o[1] == 2) {
        s->has_sack_ok = true;
    } else if (o[0] == 8 && o[1] == 10) {
        s->has_ts = true;
        s->ts_val = get_u32(o + 2);
        s->ts_ecr = get_u32(o + 6);
    } else if (o[0] == 5 && o[1] <= 34 && o[1] % 8 == 2) {
        s->nsacks = o[1] / 8;
        for (unsigned i = 0; i < s->nsacks; i++) {
            s->sacks[i][0] = get_u32(o + 2 + 8 * i);
            s->sacks[i][1] = get_u32(o + 6 + 8 * i);
        }
    } else {
        s->malformed = true;
    }
}

static struct seen see(const struct rte_ipv4_hdr *ip)
{
    struct seen s = {.th = (const struct rte_tcp_hdr *)(ip + 1)};
    uint32_t tcp_len = ntohs(ip->total_length) - 20u, doff = (s.th->data_off >> 4) * 4u;
    if (doff < 20 || doff > tcp_len) {
        s.malformed = true;
        return s;
    }
    s.seq = ntohl(s.th->sent_seq);
    s.ack = ntohl(s.th->recv_ack);
    s.opt = (const uint8_t *)(s.th + 1);
    s.opt_len = doff - 20;
    s.payload = s.opt + s.opt_len;
    s.len = tcp_len - doff;
    for (unsigned i = 0; i < s.opt_len && s.opt[i] != 0;) {
        if (s.opt[i] == 1) {
            i++;
            continue;
        }
        if (i + 1 >= s.opt_len || s.opt[i + 1] < 2 || i + s.opt[i + 1] > s.opt_len) {
            s.malformed = true;
            return s;
        }
        see_option(&s, s.opt + i);
        i += s.opt[i + 1];
    }
    return s;
}

static const char *say(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return buf;
}

const char *script_segment_verify(const struct script_flow *f, const struct rte_ipv4_hdr *ip,
                                  char *buf, size_t size)
{
    uint16_t tcp_len = (uint16_t)(ntohs(ip->total_length) - 20);
    if (ip->version_ihl != 0x45 || tcp_len < 20)
        return say(buf, size, "bad IPv4 header");
    if (csum_finish(csum_partial(ip, 20, 0)) != 0)
        return say(buf, size, "wrong IPv4 checksum");
    uint64_t sum = csum_pseudo4(ip->src_addr, ip->dst_addr, IPPROTO_TCP, tcp_len);
    if (csum_finish(csum_partial(ip + 1, tcp_len, sum)) != 0)
        return say(buf, size, "wrong TCP checksum");
    struct seen s = see(ip);
    if (s.malformed)
        return say(buf, size, "malformed header or options");
    if (s.len && s.th->tcp_flags & 4)
        return say(buf, size, "RST with data");
    for (uint32_t i = 0; i < s.len; i++)
        if (s.payload[i] != script_byte(true, s.seq - f->us_isn + i))
            return say(buf, size, "wrong byte at sequence number %u", s.seq - f->us_isn + i);
    return NULL;
}

static const char *outside(const struct script_range *r, uint32_t v, const char *what, char *buf,
                           size_t size)
{
    if (!r->set || (v >= r->lo && v <= r->hi))
        return NULL;
    if (r->lo == r->hi)
        return say(buf, size, "%s is %u, expected %u", what, v, r->lo);
    return say(buf, size, "%s is %u, expected %u..%u", what, v, r->lo, r->hi);
}

static const char *match_presence(bool want, bool open, bool has, const char *what, char *buf,
                                  size_t size)
{
    if (want && !has)
        return say(buf, size, "option %s is missing", what);
    if (!want && has && !open)
        return say(buf, size, "option %s was not expected", what);
    return NULL;
}

static const char *match_sacks(const struct script_segment *w, const struct seen *s,
                               const struct script_flow *f, char *buf, size_t size)
{
    if (w->nsacks == 0 && w->options_open)
        return NULL;
    if (w->nsacks != s->nsacks)
        return say(buf, size, "%u SACK blocks, expected %u", s->nsacks, w->nsacks);
    for (unsigned i = 0; i < s->nsacks; i++)
        if (s->sacks[i][0] - f->peer_isn != w->sacks[i].start ||
            s->sacks[i][1] - f->peer_isn != w->sacks[i].end)
            return say(buf, size, "SACK block %u is %u:%u, expected %u:%u", i,
                       s->sacks[i][0] - f->peer_isn, s->sacks[i][1] - f->peer_isn,
                       w->sacks[i].start, w->sacks[i].end);
    return NULL;
}

static const char *match_options(const struct script_segment *w, const struct seen *s,
                                 const struct script_flow *f, char *buf, size_t size)
{
    const char *e = NULL;
    bool open = w->options_open;
    if (!w->options_set)
        return NULL;
    if (!e)
        e = match_presence(w->has_mss, open, s->has_mss, "mss", buf, size);
    if (!e)
        e = match_presence(w->has_wscale, open, s->has_wscale, "wscale", buf, size);
    if (!e)
        e = match_presence(w->has_sack_ok, open, s->has_sack_ok, "sackOK", buf, size);
    if (!e)
        e = match_presence(w->has_ts, open, s->has_ts, "TS", buf, size);
    if (!e)
        e = match_sacks(w, s, f, buf, size);
    if (!e && w->has_mss)
        e = outside(&w->mss, s->mss, "mss", buf, size);
    if (!e && w->has_wscale)
        e = outside(&w->wscale, s->wscale, "wscale", buf, size);
    if (!e && w->has_ts)
        e = outside(&w->ts_val, s->ts_val - f->ts_base, "TS val", buf, size);
    if (!e && w->has_ts)
        e = outside(&w->ts_ecr, s->ts_ecr, "TS ecr", buf, size);
    return e;
}

static void learn(struct script_flow *f, const struct seen *s)
{
    f->us_port = ntohs(s->th->src_port);
    if (s->th->tcp_flags & 2) {
        f->us_isn = s->seq;
        f->us_isn_known = true;
    }
    if (s->has_ts) {
        if (!f->ts_known)
            f->ts_base = s->ts_val;
        f->ts_known = true;
        f->ts_last = s->ts_val;
    }
}

static void print_flags(uint8_t flags_byte, char *out)
{
    static const char order[] = "SFRPUEW.";
    for (const char *o = order; *o; o++)
        if (flags_byte & (1 << (strchr(flag_letters, *o) - flag_letters)))
            *out++ = *o;
    if (!flags_byte)
        *out++ = '-';
    *out = 0;
}

const char *script_segment_match(const struct script_segment *w, struct script_flow *f,
                                 const struct rte_ipv4_hdr *ip, char *buf, size_t size)
{
    struct seen s = see(ip);
    if (s.malformed)
        return say(buf, size, "malformed header or options");
    if (ntohs(s.th->dst_port) != f->peer_port ||
        (f->us_port && ntohs(s.th->src_port) != f->us_port))
        return say(buf, size, "another flow: ports %u and %u", ntohs(s.th->src_port),
                   ntohs(s.th->dst_port));
    learn(f, &s);
    const char *e = NULL;
    if ((s.th->tcp_flags & ~8) != (w->flags & ~8)) { /* PSH is the sender's whim */
        char is[10], want[10];
        print_flags(s.th->tcp_flags, is);
        print_flags(w->flags, want);
        return say(buf, size, "flags are %s, expected %s", is, want);
    }
    uint32_t seq = s.seq - f->us_isn;
    if (!w->seq_any && seq != w->seq)
        return say(buf, size, "sequence number is %u, expected %u", seq, w->seq);
    if (s.len != w->len)
        return say(buf, size, "length is %u, expected %u", s.len, w->len);
    if (s.th->tcp_flags & 0x10)
        e = outside(&w->ack, s.ack - f->peer_isn, "ack", buf, size);
    else if (w->ack.set)
        return say(buf, size, "ack is missing");
    if (!e)
        e = outside(&w->win, ntohs(s.th->rx_win), "win", buf, size);
    if (!e)
        e = outside(&w->tos, ip->type_of_service, "tos", buf, size);
    if (!e)
        e = match_options(w, &s, f, buf, size);
    return e;
}

/* --- printing --- */

struct printer {
    char *p, *end;
};

static void out(struct printer *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->p, (size_t)(o->end - o->p), fmt, ap);
    va_end(ap);
    o->p = n < o->end - o->p ? o->p + n : o->end - 1;
}

static void print_options(struct printer *o, const struct seen *s, uint32_t sack_base,
                          uint32_t val_base, uint32_t ecr_base)
{
    if (s->opt_len == 0)
        return;
    const char *sep = "";
    out(o, " <");
    if (s->has_mss)
        out(o, "mss %u", s->mss), sep = ",";
    if (s->has_sack_ok)
        out(o, "%ssackOK", sep), sep = ",";
    if (s->has_ts)
        out(o, "%sTS val %u ecr %u", sep, s->ts_val - val_base, s->ts_ecr - ecr_base), sep = ",";
    if (s->has_wscale)
        out(o, "%swscale %u", sep, s->wscale), sep = ",";
    for (unsigned i = 0; i < s->nsacks; i++)
        out(o, "%s%u:%u", i ? " " : (*sep ? ",sack " : "sack "), s->sacks[i][0] - sack_base,
            s->sacks[i][1] - sack_base);
    out(o, ">");
}

void script_segment_print(const struct rte_ipv4_hdr *ip, const struct script_flow *f, bool ours,
                          char *buf, size_t size)
{
    struct printer o = {buf, buf + size};
    struct seen s = see(ip);
    if (s.malformed && !s.opt) {
        out(&o, "malformed, %u bytes", ntohs(ip->total_length) - 20u);
        return;
    }
    uint32_t us = f->us_isn_known ? f->us_isn : (ours && s.th->tcp_flags & 2 ? s.seq : 0);
    if (ours && s.th->tcp_flags & 2)
        us = s.seq;
    uint32_t seq = s.seq - (ours ? us : f->peer_isn);
    char fl[10];
    print_flags(s.th->tcp_flags, fl);
    out(&o, "%s %u:%u(%u)", fl, seq, seq + s.len, s.len);
    if (s.th->tcp_flags & 0x10)
        out(&o, " ack %u", s.ack - (ours ? f->peer_isn : us));
    out(&o, " win %u", ntohs(s.th->rx_win));
    if (s.th->tcp_flags & 0x20)
        out(&o, " urg %u", ntohs(s.th->tcp_urp));
    uint32_t ts = f->ts_known ? f->ts_base : (ours ? s.ts_val : 0);
    print_options(&o, &s, ours ? f->peer_isn : us, ours ? ts : 0, ours ? 0 : ts);
    if (s.malformed)
        out(&o, " (malformed options)");
}
