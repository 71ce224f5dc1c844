#include "dataplane/port/eal.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/mman.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <xdp/libxdp.h>

#include "dataplane/port/error.h"

#define MIB           (1024ull * 1024)
#define EAL_ARGS_MAX  64
#define EAL_OWN_BYTES (16 * MIB) /* the EAL's and the drivers' own tables and rings */

/* Arguments for rte_eal_init(). DPDK is a process-wide thing, its log hook included. */
struct eal_args {
    int argc;
    char *argv[EAL_ARGS_MAX + 1];
    char text[EAL_ARGS_MAX * 64];
    size_t used;
};

static struct {
    void (*line)(void *ctx, enum config_log_level level, const char *line);
    void *ctx;
} eal_log;

static void __attribute__((format(printf, 2, 3)))
add_arg(struct eal_args *a, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    size_t left = sizeof(a->text) - a->used;
    int n = vsnprintf(a->text + a->used, left, format, ap);
    va_end(ap);
    if (a->argc == EAL_ARGS_MAX || n < 0 || (size_t)n >= left)
        return;
    a->argv[a->argc++] = a->text + a->used;
    a->used += (size_t)n + 1;
}

/* --- Output of the libraries ---------------------------------------------------------------- */

static void log_lines(enum config_log_level level, char *text)
{
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (eal_log.line)
            eal_log.line(eal_log.ctx, level, line);
}

static enum config_log_level level_of_dpdk(unsigned level)
{
    if (level <= RTE_LOG_ERR)
        return CONFIG_LOG_ERROR;
    return level == RTE_LOG_WARNING ? CONFIG_LOG_WARN : CONFIG_LOG_INFO;
}

/* DPDK flushes its stream after each message, on the thread that wrote it. */
static ssize_t on_dpdk_log(void *cookie, const char *buf, size_t size)
{
    char text[1024];
    size_t n = size < sizeof(text) ? size : sizeof(text) - 1;
    memcpy(text, buf, n);
    text[n] = '\0';
    log_lines(level_of_dpdk((unsigned)rte_log_cur_msg_loglevel()), text);
    return (ssize_t)size;
}

static int log_vprintf(enum config_log_level level, const char *format, va_list ap)
{
    char text[1024];
    int n = vsnprintf(text, sizeof(text), format, ap);
    log_lines(level, text);
    return n;
}

static int on_libbpf_log(enum libbpf_print_level level, const char *format, va_list ap)
{
    if (level == LIBBPF_DEBUG || level == LIBBPF_INFO)
        return 0;
    return log_vprintf(CONFIG_LOG_WARN, format, ap);
}

static int on_libxdp_log(enum libxdp_print_level level, const char *format, va_list ap)
{
    if (level == LIBXDP_DEBUG || level == LIBXDP_INFO)
        return 0;
    return log_vprintf(CONFIG_LOG_WARN, format, ap);
}

static int take_over_logs(const struct eal_opts *o)
{
    static const cookie_io_functions_t io = {.write = on_dpdk_log};
    FILE *stream = fopencookie(NULL, "w", io);
    if (!stream)
        return -ENOMEM;
    eal_log.line = o->log;
    eal_log.ctx = o->log_ctx;
    libbpf_set_print(on_libbpf_log);
    libxdp_set_print(on_libxdp_log);
    return rte_openlog_stream(stream);
}

/* --- Memory --------------------------------------------------------------------------------- */

/* Whether `bytes` can be had in pages of this size (flag: MAP_HUGE_2MB...), without taking them. */
static bool can_map_huge(uint64_t bytes, int flag, uint64_t page)
{
    size_t len = (bytes + page - 1) / page * page;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | flag;
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED)
        return false;
    munmap(p, len);
    return true;
}

static bool have_huge_pages(uint64_t bytes)
{
    return can_map_huge(bytes, MAP_HUGE_2MB, 2 * MIB) ||
           can_map_huge(bytes, MAP_HUGE_1GB, 1024 * MIB);
}

/* --- Start ---------------------------------------------------------------------------------- */

static bool has_net_admin(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {0};
    if (syscall(SYS_capget, &head, caps))
        return false;
    return caps[0].effective & (1u << CAP_NET_ADMIN);
}

static bool has_pci(const struct eal_opts *o)
{
    for (size_t i = 0; i < o->nports; i++)
        if (o->ports[i].driver == CONFIG_PCI)
            return true;
    return false;
}

static void add_memory_args(struct eal_args *a, uint64_t bytes, bool huge)
{
    uint64_t mib = (bytes + MIB - 1) / MIB;
    if (huge) {
        add_arg(a, "--in-memory");
    } else {
        add_arg(a, "--no-huge");
        add_arg(a, "--no-shconf");
    }
    add_arg(a, "-m");
    add_arg(a, "%llu", (unsigned long long)mib);
}

static void add_device_args(struct eal_args *a, const struct eal_opts *o)
{
    if (!has_pci(o)) {
        add_arg(a, "--no-pci");
        add_arg(a, "--iova-mode=va");
        return;
    }
    for (size_t i = 0; i < o->nports; i++) {
        const struct config_port *p = &o->ports[i];
        if (p->driver != CONFIG_PCI)
            continue;
        bool extra = p->driver_args && p->driver_args[0];
        add_arg(a, "-a");
        add_arg(a, "%s%s%s", p->device, extra ? "," : "", extra ? p->driver_args : "");
    }
}

/* One EAL thread, ours, allowed on the CPUs that we are allowed on. */
static void add_lcore_arg(struct eal_args *a, const cpu_set_t *cpus)
{
    char list[512];
    size_t n = 0;
    for (int i = 0; i < CPU_SETSIZE && n < sizeof(list) - 8; i++)
        if (CPU_ISSET(i, cpus))
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", n ? "," : "", i);
    add_arg(a, "--lcores=0@(%s)", list);
}

/* The signals that control handles must not land on the EAL's own threads. */
static void block_signals(sigset_t *ret_old)
{
    static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE};
    sigset_t set;
    sigemptyset(&set);
    for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        sigaddset(&set, ours[i]);
    pthread_sigmask(SIG_BLOCK, &set, ret_old);
}

static int init_quietly(struct eal_args *a)
{
    sigset_t signals;
    cpu_set_t cpus;
    pthread_t self = pthread_self();
    int rc = -pthread_getaffinity_np(self, sizeof(cpus), &cpus);
    if (rc)
        return rc;
    add_lcore_arg(a, &cpus);
    block_signals(&signals);
    rc = rte_eal_init(a->argc, a->argv) < 0 ? -rte_errno : 0;
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    pthread_setaffinity_np(self, sizeof(cpus), &cpus);
    return rc;
}

static int choose_memory(const struct eal_opts *o, uint64_t bytes, struct eal_info *info,
                         struct port_error *ret_error)
{
    unsigned mib = (unsigned)(bytes / MIB);
    info->huge_pages = have_huge_pages(bytes);
    if (info->huge_pages) {
        snprintf(info->text, sizeof(info->text), "memory: %u MiB in huge pages", mib);
        return 0;
    }
    if (has_pci(o))
        return port_fail(ret_error, -ENOMEM,
                         "a pci port needs %u MiB of free huge pages: echo %u > "
                         "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                         mib, mib / 2 + 1);
    snprintf(info->text, sizeof(info->text),
             "memory: %u MiB without huge pages (not enough are free; %u of 2 MiB would be)", mib,
             mib / 2 + 1);
    return 0;
}

int eal_start(const struct eal_opts *o, struct eal_info *ret_info, struct port_error *ret_error)
{
    struct eal_args a = {0};
    struct eal_info info = {0};
    uint64_t bytes = (o->memory + EAL_OWN_BYTES + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (o->nports && !has_net_admin())
        return port_fail(ret_error, -EPERM,
                         "opening network ports needs root (or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF "
                         "and CAP_IPC_LOCK): run with sudo");
    int rc = choose_memory(o, bytes, &info, ret_error);
    if (rc)
        return rc;
    rc = take_over_logs(o);
    if (rc)
        return port_fail(ret_error, rc, "can't redirect DPDK's log: %s", strerror(-rc));
    add_arg(&a, "millrace");
    add_arg(&a, "--no-telemetry");
    add_arg(&a, "--log-level=%d", RTE_LOG_WARNING);
    add_arg(&a, "--log-level=lib.eal:%d", RTE_LOG_ERR); /* it warns of each unused page size */
    add_memory_args(&a, bytes, info.huge_pages);
    add_device_args(&a, o);
    rc = init_quietly(&a);
    if (rc)
        return port_fail(ret_error, rc,
                         "DPDK's EAL doesn't start: %s (its own messages are in the log)",
                         strerror(-rc));
    *ret_info = info;
    return 0;
}

void eal_stop(void)
{
    rte_eal_cleanup();
}

int eal_thread_register(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int rc = -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (rc)
        return rc;
    return rte_thread_register() ? -rte_errno : 0;
}

void eal_thread_unregister(void)
{
    rte_thread_unregister();
}

/* --- Pools ---------------------------------------------------------------------------------- */

#define MBUF_ELEMENT (sizeof(struct rte_mbuf) + RTE_MBUF_DEFAULT_BUF_SIZE)

/* Addresses that devices see are virtual ones, or nobody sees them: an mbuf may lie across pages,
 * so that they can stand dense, which AF_XDP needs and which saves 4 KiB pages a third. */
static unsigned pool_flags(void)
{
    return rte_eal_iova_mode() == RTE_IOVA_VA ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
}

struct rte_mempool *eal_mbuf_pool_new(const char *name, uint32_t n, struct port_error *ret_error)
{
    unsigned cache = n / 3 * 2 >= EAL_MBUF_CACHE ? EAL_MBUF_CACHE : 0;
    struct rte_mempool *mp = rte_mempool_create_empty(name, n, MBUF_ELEMENT, cache,
                                                      sizeof(struct rte_pktmbuf_pool_private),
                                                      SOCKET_ID_ANY, pool_flags());
    if (mp) {
        struct rte_pktmbuf_pool_private priv = {.mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE};
        rte_pktmbuf_pool_init(mp, &priv);
        if (rte_mempool_populate_default(mp) == (int)n) {
            rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
            return mp;
        }
        rte_mempool_free(mp);
    }
    port_fail(ret_error, -ENOMEM,
              "no memory for %u mbufs (%llu MiB): lower pool_size, or free some", n,
              (unsigned long long)(eal_mbuf_pool_bytes(n) / MIB));
    return NULL;
}

uint64_t eal_mbuf_pool_bytes(uint32_t n)
{
    uint64_t object = rte_mempool_calc_obj_size(MBUF_ELEMENT, 0, NULL);
    return n * (object + 2 * sizeof(void *)) + 2 * MIB;
}
