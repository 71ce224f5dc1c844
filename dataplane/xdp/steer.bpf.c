/* Divides a NIC's frames between Millrace and the kernel, before the kernel has touched them.
 *
 * Ours is what concerns one of our IPv4 addresses: packets to it, and ARP that asks for it, answers
 * it or claims it. Anything else, ssh, IPv6, VLANs and frames too short to tell included, goes to
 * the kernel as if we weren't there.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "dataplane/xdp/steer_maps.h"

/* The name is fixed: DPDK's driver looks for it. */
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, STEER_MAX_QUEUES);
    __type(key, __u32);
    __type(value, __u32);
} xsks_map SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, STEER_MAX_ADDRS);
    __type(key, __be32);
    __type(value, __u8);
} addrs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, STEER_VERDICTS);
    __type(key, __u32);
    __type(value, __u64);
} verdicts SEC(".maps");

/* RFC 826 with Ethernet and IPv4 lengths. (linux/if_arp.h needs a libc, which BPF hasn't.) */
struct arp_ipv4 {
    __be16 hardware, protocol;
    __u8 hardware_len, protocol_len;
    __be16 op;
    __u8 sender_mac[ETH_ALEN];
    __be32 sender;
    __u8 target_mac[ETH_ALEN];
    __be32 target;
} __attribute__((packed));

static __always_inline void count(__u32 verdict)
{
    __u64 *n = bpf_map_lookup_elem(&verdicts, &verdict);
    if (n)
        (*n)++;
}

static __always_inline int is_our_addr(__be32 addr)
{
    return bpf_map_lookup_elem(&addrs, &addr) != 0;
}

static __always_inline int is_our_arp(const void *l3, const void *end)
{
    const struct arp_ipv4 *a = l3;
    if ((const void *)(a + 1) > end || a->protocol != bpf_htons(ETH_P_IP))
        return 0;
    if (a->hardware_len != ETH_ALEN || a->protocol_len != sizeof(a->target))
        return 0;
    return is_our_addr(a->target) || is_our_addr(a->sender);
}

static __always_inline int is_our_ipv4(const void *l3, const void *end)
{
    const struct iphdr *ip = l3;
    return (const void *)(ip + 1) <= end && is_our_addr(ip->daddr);
}

static __always_inline int is_ours(const void *data, const void *end)
{
    const struct ethhdr *eth = data;
    if ((const void *)(eth + 1) > end)
        return 0;
    if (eth->h_proto == bpf_htons(ETH_P_IP))
        return is_our_ipv4(eth + 1, end);
    if (eth->h_proto == bpf_htons(ETH_P_ARP))
        return is_our_arp(eth + 1, end);
    return 0;
}

SEC("xdp")
int millrace_steer(struct xdp_md *ctx)
{
    if (!is_ours((const void *)(long)ctx->data, (const void *)(long)ctx->data_end)) {
        count(STEER_PASS);
        return XDP_PASS;
    }
    /* On a queue without a socket of ours the kernel must not get it either: it could forward our
     * traffic back out. Dropped and counted, so that the missing queue shows. */
    int verdict = bpf_redirect_map(&xsks_map, ctx->rx_queue_index, XDP_DROP);
    count(verdict == XDP_REDIRECT ? STEER_REDIRECT : STEER_DROP);
    return verdict;
}

const char steer_license[] SEC("license") = "Dual BSD/GPL";
