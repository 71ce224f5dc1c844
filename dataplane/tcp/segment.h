/* TCP segments on the wire (RFC 9293 §3.1): parsed into host order, built from it. */
#ifndef MILLRACE_DATAPLANE_TCP_SEGMENT_H
#define MILLRACE_DATAPLANE_TCP_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/net/net.h"
#include "dataplane/tcp/tcp.h"
#include "dataplane/tcp/tuple.h"

enum segment_flag {
    SEG_FIN = 0x01,
    SEG_SYN = 0x02,
    SEG_RST = 0x04,
    SEG_PSH = 0x08,
    SEG_ACK = 0x10,
    SEG_URG = 0x20,
};

enum segment_option {
    SEG_OPT_MSS = 1 << 0,
    SEG_OPT_WSCALE = 1 << 1,
    SEG_OPT_SACK_OK = 1 << 2,
    SEG_OPT_TS = 1 << 3,
    SEG_OPT_SACK = 1 << 4,
};

#define SEG_HDR_LEN     20
#define SEG_MAX_HDR_LEN 60
#define SEG_TS_LEN      12 /* timestamps with their padding */
#define SEG_MAX_SACK    4
#define SEG_WSCALE_MAX  14
#define SEG_MSS_DEFAULT 536
/* What must stand free in front of the TCP header for IPv4 and Ethernet. */
#define SEG_LOWER_HEADROOM 34

struct segment {
    struct rte_mbuf *m; /* NULL once the payload has been taken */
    struct tuple tuple;
    uint32_t seq, ack;
    uint32_t len; /* payload bytes left, trimmed ones not counted */
    uint32_t off; /* of the payload, from m->buf_addr */
    uint32_t ts_val, ts_echo;
    uint32_t sack[2]; /* the first block: what has just arrived (RFC 2018 §4) */
    uint16_t window;  /* as it stands in the header */
    uint16_t mss;
    uint8_t flags;
    uint8_t options; /* enum segment_option: those present and well formed */
    uint8_t wscale;
};

/* Sequence space a segment takes: payload, SYN and FIN. */
static inline uint32_t segment_seq_len(const struct segment *s)
{
    return s->len + !!(s->flags & SEG_SYN) + !!(s->flags & SEG_FIN);
}

/* Reads the segment in `m` (data_off at the IP header). The checksum is verified unless the port
 * has done it. TCP_DROP_accepted when good; else why not, and *ret is not to be used. `m` stays the
 * caller's. */
enum tcp_drop segment_parse(struct rte_mbuf *m, const struct ip4_rx *rx, struct segment *ret);

struct segment_out {
    struct tuple tuple;
    uint32_t seq, ack;
    uint32_t ts_val, ts_echo;
    uint16_t window;
    uint16_t mss;
    uint8_t flags;
    uint8_t options;
    uint8_t wscale;
    uint8_t sacks;
    uint32_t sack[SEG_MAX_SACK][2]; /* left and right edge */
};

/* Header length with options: a multiple of 4, at most SEG_MAX_HDR_LEN. */
unsigned segment_hdr_len(const struct segment_out *s);

/* How many SACK blocks fit beside the other options. */
static inline unsigned segment_max_sacks(unsigned options)
{
    return options & SEG_OPT_TS ? 3 : 4;
}

/* Writes segment_hdr_len() bytes, checksum 0. */
void segment_build(void *to, const struct segment_out *s);

/* Fills in the checksum of the segment that starts at m's data, or leaves it to a port with
 * NETIF_TX_TCP_CSUM (`offloads`; 0 when the port isn't known yet). */
void segment_checksum(struct rte_mbuf *m, const struct tuple *t, unsigned hdr_len,
                      uint32_t offloads);

#endif
