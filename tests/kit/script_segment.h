/* TCP segments as scripts write them: parsing, building, matching, printing. Numbers are relative
 * to the two ends' initial sequence numbers. The grammar: script.h. */
#ifndef MILLRACE_TESTS_KIT_SCRIPT_SEGMENT_H
#define MILLRACE_TESTS_KIT_SCRIPT_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ip.h>
#include <rte_tcp.h>

/* Both ends of one flow, as the script sees them. */
struct script_flow {
    uint16_t us_port, peer_port; /* host order; us_port 0: not known yet */
    uint32_t us_isn, peer_isn;
    bool us_isn_known;
    uint32_t ts_base, ts_last; /* TSval of our first segment, and of the last */
    bool ts_known;
};

struct script_range {
    bool set;
    uint32_t lo, hi;
};

#define SEG_OPTIONS_MAX 40

struct script_segment {
    uint8_t flags;
    bool seq_any;
    uint32_t seq, len;
    struct script_range ack, win, urg, tos;

    bool options_set, options_open; /* <...>: others may follow */
    bool has_mss, has_wscale, has_sack_ok, has_ts;
    struct script_range mss, wscale, ts_val, ts_ecr;
    bool ecr_last; /* echoes our last TSval */
    unsigned nsacks;
    struct {
        uint32_t start, end;
    } sacks[4];
    uint8_t raw[SEG_OPTIONS_MAX]; /* injected options, in the order written */
    unsigned raw_len;
    unsigned ts_at; /* place of TSval in raw, when has_ts */
    unsigned sack_at;

    /* Injected only. */
    bool bad_checksum, other_bytes, link_broadcast;
    struct script_range doff, cut, us_port, peer_port;
    uint32_t src, dst; /* 0: the flow's */
};

/* NULL, or what is wrong with the text. */
const char *script_segment_parse(const char *text, bool injected, struct script_segment *ret_seg);

/* A whole TCP segment with its checksum; returns its length. out holds 60 + 65535 bytes at most. */
size_t script_segment_build(const struct script_segment *s, const struct script_flow *f,
                            uint32_t src, uint32_t dst, uint8_t *out);

/* NULL when the IPv4 packet at `ip` is what the script expects, else why not (in buf). Learns the
 * flow's ISN, port and timestamps from it. */
const char *script_segment_match(const struct script_segment *s, struct script_flow *f,
                                 const struct rte_ipv4_hdr *ip, char *buf, size_t size);

/* Checksums, lengths and the payload of a segment of ours; NULL when they are right. */
const char *script_segment_verify(const struct script_flow *f, const struct rte_ipv4_hdr *ip,
                                  char *buf, size_t size);

/* "S. 0:0(0) ack 1 win 65535 <mss 1460>". `ours`: sent by the stack. */
void script_segment_print(const struct rte_ipv4_hdr *ip, const struct script_flow *f, bool ours,
                          char *buf, size_t size);

/* The byte at relative sequence number `seq` of either end's stream (1 is the first). */
static inline uint8_t script_byte(bool ours, uint32_t seq)
{
    return (uint8_t)((seq * 31 + (seq >> 8)) ^ (ours ? 0xa5 : 0));
}

#endif
