/* Opens one port as the real binary does and answers ARP, ICMP echo and UDP echo (port 7) by hand,
 * so that the kernel's end can be used to try a port without the stack on top.
 *
 * port_probe DRIVER DEVICE QUEUES ADDRESS HOST_ADDRESS [DRIVER_ARGS [ASK]]
 *
 * Prints "ready" when it answers, and "answered" when ASK echo requests of its own, sent to whoever
 * is at the other end, have been; on SIGTERM closes the port and prints one JSON object: the
 * counters, what each queue received, and the time the process ran on a CPU. */
#include <arpa/inet.h>
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <rte_arp.h>
#include <rte_icmp.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "dataplane/port/eal.h"
#include "dataplane/port/port.h"

#define BURST     32
#define IDLE_POLL 64 /* empty polls before it sleeps */

struct queue {
    struct port *port;
    uint16_t index;
    unsigned cpu;
    uint32_t addr;
    struct rte_ether_addr mac;
    int stop_fd;
    atomic_bool *stop;
    pthread_t thread;
    uint64_t received, sleeps;
    unsigned ask; /* echo requests still to be answered */
    bool asked;   /* one is on its way */
    struct rte_mempool *pool;
};

static void swap_macs(struct rte_ether_hdr *eth, const struct rte_ether_addr *mac)
{
    eth->dst_addr = eth->src_addr;
    eth->src_addr = *mac;
}

static bool answer_arp(const struct queue *q, struct rte_mbuf *m, struct rte_ether_hdr *eth)
{
    struct rte_arp_hdr *arp = (struct rte_arp_hdr *)(eth + 1);
    if (m->data_len < sizeof(*eth) + sizeof(*arp) ||
        arp->arp_opcode != rte_cpu_to_be_16(RTE_ARP_OP_REQUEST) || arp->arp_data.arp_tip != q->addr)
        return false;
    arp->arp_opcode = rte_cpu_to_be_16(RTE_ARP_OP_REPLY);
    arp->arp_data.arp_tip = arp->arp_data.arp_sip;
    arp->arp_data.arp_tha = arp->arp_data.arp_sha;
    arp->arp_data.arp_sip = q->addr;
    arp->arp_data.arp_sha = q->mac;
    swap_macs(eth, &q->mac);
    return true;
}

static void finish_ip(const struct queue *q, struct rte_ipv4_hdr *ip)
{
    ip->dst_addr = ip->src_addr;
    ip->src_addr = q->addr;
    ip->time_to_live = 64;
    ip->hdr_checksum = 0;
    ip->hdr_checksum = rte_ipv4_cksum(ip);
}

static void on_echo_reply(struct queue *q);

static bool answer_ip(struct queue *q, struct rte_mbuf *m, struct rte_ether_hdr *eth)
{
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(eth + 1);
    if (m->data_len < sizeof(*eth) + sizeof(*ip) + 8 || ip->dst_addr != q->addr)
        return false;
    if (ip->next_proto_id == IPPROTO_ICMP) {
        struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)(ip + 1);
        if (icmp->icmp_type == RTE_IP_ICMP_ECHO_REPLY)
            on_echo_reply(q);
        if (icmp->icmp_type != RTE_IP_ICMP_ECHO_REQUEST)
            return false;
        icmp->icmp_type = RTE_IP_ICMP_ECHO_REPLY;
        icmp->icmp_cksum = 0;
        icmp->icmp_cksum = ~rte_raw_cksum(icmp, rte_be_to_cpu_16(ip->total_length) - sizeof(*ip));
    } else if (ip->next_proto_id == IPPROTO_UDP) {
        struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
        if (udp->dst_port != rte_cpu_to_be_16(7))
            return false;
        udp->dst_port = udp->src_port;
        udp->src_port = rte_cpu_to_be_16(7);
        udp->dgram_cksum = 0;
    } else {
        return false;
    }
    finish_ip(q, ip);
    swap_macs(eth, &q->mac);
    return true;
}

static void ask_for_echo(struct queue *q)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(q->pool);
    struct rte_ether_hdr *eth = m ? (struct rte_ether_hdr *)rte_pktmbuf_append(m, 98) : NULL;
    if (!eth)
        return;
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(eth + 1);
    struct rte_icmp_hdr *icmp = (struct rte_icmp_hdr *)(ip + 1);
    memset(eth, 0, 98);
    memset(&eth->src_addr, 0xff, sizeof(eth->src_addr)); /* the destination, after the swap */
    swap_macs(eth, &q->mac);
    eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
    ip->version_ihl = 0x45;
    ip->total_length = rte_cpu_to_be_16(84);
    ip->next_proto_id = IPPROTO_ICMP;
    ip->src_addr = q->addr; /* both ends have the same */
    finish_ip(q, ip);
    icmp->icmp_type = RTE_IP_ICMP_ECHO_REQUEST;
    icmp->icmp_cksum = ~rte_raw_cksum(icmp, 64);
    q->asked = q->port->ops->tx_burst(q->port, q->index, &m, 1);
    if (!q->asked)
        rte_pktmbuf_free(m);
}

static void on_echo_reply(struct queue *q)
{
    q->asked = false;
    if (q->ask > 0 && --q->ask == 0) {
        printf("answered\n");
        fflush(stdout);
    }
}

static bool answer(struct queue *q, struct rte_mbuf *m)
{
    struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
    if (m->data_len < sizeof(*eth))
        return false;
    if (eth->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
        return answer_arp(q, m, eth);
    if (eth->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
        return answer_ip(q, m, eth);
    return false;
}

static unsigned serve(struct queue *q)
{
    struct rte_mbuf *in[BURST], *out[BURST];
    uint16_t n = q->port->ops->rx_burst(q->port, q->index, in, BURST), answers = 0;
    for (uint16_t i = 0; i < n; i++) {
        if (answer(q, in[i]))
            out[answers++] = in[i];
        else
            rte_pktmbuf_free(in[i]);
    }
    uint16_t sent = answers ? q->port->ops->tx_burst(q->port, q->index, out, answers) : 0;
    rte_pktmbuf_free_bulk(out + sent, answers - sent);
    q->received += n;
    return n;
}

static void sleep_until_needed(struct queue *q, int fd)
{
    struct pollfd fds[2] = {{.fd = q->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    struct timespec a_while = {.tv_sec = fd < 0 ? 0 : 10, .tv_nsec = fd < 0 ? 1000000 : 0};
    ppoll(fds, fd < 0 ? 1 : 2, &a_while, NULL);
    q->sleeps++;
}

static void *run_queue(void *arg)
{
    struct queue *q = arg;
    int fd = -1;
    if (eal_thread_register(q->cpu))
        abort();
    q->port->ops->sleep_fds(q->port, q->index, &fd, 1);
    for (unsigned idle = 0; !atomic_load(q->stop); idle++) {
        if (q->ask && !q->asked)
            ask_for_echo(q);
        if (serve(q)) {
            idle = 0;
        } else if (idle >= IDLE_POLL) {
            sleep_until_needed(q, fd);
            q->asked = false; /* unanswered for so long: ask again */
        }
    }
    eal_thread_unregister();
    return NULL;
}

static void on_log(void *ctx, enum config_log_level level, const char *line)
{
    (void)ctx;
    fprintf(stderr, "log %d: %s\n", (int)level, line);
}

static struct config_addr parse_addr(const char *text)
{
    char host[64];
    struct in_addr in;
    struct config_addr a = {0};
    const char *slash = strchr(text, '/');
    snprintf(host, sizeof(host), "%.*s", slash ? (int)(slash - text) : 63, text);
    if (inet_pton(AF_INET, host, &in) != 1) {
        fprintf(stderr, "not an address: %s\n", text);
        exit(2);
    }
    a.addr = in.s_addr;
    a.prefix = slash ? (uint8_t)atoi(slash + 1) : 24;
    return a;
}

static void die(const struct port_error *e)
{
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static enum config_driver parse_driver(const char *name)
{
    static const char *const names[] = {"veth", "af_xdp", "pci", "memif", "tap"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum config_driver)i;
    fprintf(stderr, "no driver %s\n", name);
    exit(2);
}

static void report(struct port *port, const struct queue *queues, uint16_t n)
{
    struct port_counters c;
    struct timespec cpu;
    port->ops->counters(port, &c);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"rx\": %lu, \"tx\": %lu, \"rx_missed\": %lu, \"tx_full\": %lu, \"tx_errors\": %lu, "
           "\"no_mbuf\": %lu, \"redirect\": %lu, \"pass\": %lu, \"drop\": %lu, \"cpu_ms\": %lu, "
           "\"queues\": [",
           c.rx_packets, c.tx_packets, c.rx_missed, c.tx_full, c.tx_errors, c.no_mbuf,
           c.steer_redirect, c.steer_pass, c.steer_drop,
           (unsigned long)cpu.tv_sec * 1000 + (unsigned long)cpu.tv_nsec / 1000000);
    for (uint16_t i = 0; i < n; i++)
        printf("%s{\"rx\": %lu, \"sleeps\": %lu}", i ? ", " : "", queues[i].received,
               queues[i].sleeps);
    printf("]}\n");
    fflush(stdout);
}

static void run_until_term(struct port *port, struct rte_mempool *pool, uint16_t n, uint32_t addr,
                           unsigned ask)
{
    static struct queue queues[64];
    static atomic_bool stop;
    struct port_info info;
    sigset_t set;
    int sig;
    port->ops->info(port, &info);
    for (uint16_t i = 0; i < n; i++) {
        queues[i] = (struct queue){.port = port,
                                   .index = i,
                                   .cpu = i % (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
                                   .addr = addr,
                                   .mac = info.mac,
                                   .pool = pool,
                                   .ask = i == 0 ? ask : 0,
                                   .stop = &stop,
                                   .stop_fd = eventfd(0, EFD_CLOEXEC)};
        pthread_create(&queues[i].thread, NULL, run_queue, &queues[i]);
    }
    printf("ready\n");
    fflush(stdout);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigwait(&set, &sig);
    atomic_store(&stop, true);
    for (uint16_t i = 0; i < n; i++) {
        eventfd_write(queues[i].stop_fd, 1);
        pthread_join(queues[i].thread, NULL);
        close(queues[i].stop_fd);
    }
    report(port, queues, n);
}

int main(int argc, char **argv)
{
    struct port_error err;
    struct eal_info info;
    struct port *port;
    sigset_t set;
    if (argc < 6) {
        fprintf(stderr, "usage: %s DRIVER DEVICE QUEUES ADDRESS HOST_ADDRESS [DRIVER_ARGS [ASK]]\n",
                argv[0]);
        return 2;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct config_addr addr = parse_addr(argv[4]);
    struct config_port cfg = {.name = "probe0",
                              .driver = parse_driver(argv[1]),
                              .device = argv[2],
                              .queues = (uint16_t)atoi(argv[3]),
                              .host_address = parse_addr(argv[5]),
                              .addresses = &addr,
                              .naddresses = 1,
                              .mtu = 1500,
                              .rx_descriptors = 1024,
                              .tx_descriptors = 1024,
                              .driver_args = argc > 6 ? argv[6] : NULL};
    uint32_t mbufs = port_ring_mbufs(&cfg, cfg.queues) + 4096;
    struct eal_opts o = {
        .memory = eal_mbuf_pool_bytes(mbufs), .ports = &cfg, .nports = 1, .log = on_log};
    if (eal_start(&o, &info, &err))
        die(&err);
    fprintf(stderr, "%s\n", info.text);
    struct rte_mempool *pool = eal_mbuf_pool_new("probe", mbufs, &err);
    if (!pool || port_open(&cfg, cfg.queues, pool, &port, &err))
        die(&err);
    run_until_term(port, pool, cfg.queues, addr.addr, argc > 7 ? (unsigned)atoi(argv[7]) : 0);
    port_close(port);
    rte_mempool_free(pool);
    eal_stop();
    return 0;
}
