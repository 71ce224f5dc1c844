/* Drops LOSS_PERMILLE of a thousand packets where tc puts it: loss without a netem in the kernel.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int drop_some(struct __sk_buff *skb)
{
    return bpf_get_prandom_u32() % 1000 < LOSS_PERMILLE ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
