#include "dataplane/port/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libmnl/libmnl.h>

#define LINK_MESSAGE_SIZE 8192

/* A request under construction. */
struct request {
    _Alignas(struct nlmsghdr) char buf[LINK_MESSAGE_SIZE];
    struct nlmsghdr *head;
};

static struct ifinfomsg *request_link(struct request *r, uint16_t type, uint16_t flags,
                                      unsigned index)
{
    r->head = mnl_nlmsg_put_header(r->buf);
    r->head->nlmsg_type = type;
    r->head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    struct ifinfomsg *ifi = mnl_nlmsg_put_extra_header(r->head, sizeof(*ifi));
    ifi->ifi_family = AF_UNSPEC;
    ifi->ifi_index = (int)index;
    return ifi;
}

/* Sends the request and takes in the answers until the acknowledgement. */
static int request_send(struct request *r, mnl_cb_t on_message, void *ctx)
{
    _Alignas(struct nlmsghdr) char buf[LINK_MESSAGE_SIZE * 2];
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (!nl)
        return -errno;
    int rc = 0;
    r->head->nlmsg_seq = 1;
    if (mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ||
        mnl_socket_sendto(nl, r->head, r->head->nlmsg_len) < 0)
        rc = -errno;
    for (int more = MNL_CB_OK; !rc && more > MNL_CB_STOP;) {
        ssize_t n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
        if (n >= 0)
            more = mnl_cb_run(buf, (size_t)n, 1, mnl_socket_get_portid(nl), on_message, ctx);
        if (n < 0 || more < 0)
            rc = -errno;
    }
    mnl_socket_close(nl);
    return rc;
}

static int on_link_kind(const struct nlattr *attr, void *ctx)
{
    struct link_details *d = ctx;
    if (mnl_attr_get_type(attr) == IFLA_INFO_KIND)
        snprintf(d->kind, sizeof(d->kind), "%s", mnl_attr_get_str(attr));
    return MNL_CB_OK;
}

static int on_link_attr(const struct nlattr *attr, void *ctx)
{
    struct link_details *d = ctx;
    switch (mnl_attr_get_type(attr)) {
    case IFLA_MTU:
        d->mtu = mnl_attr_get_u32(attr);
        break;
    case IFLA_IFALIAS:
        snprintf(d->alias, sizeof(d->alias), "%s", mnl_attr_get_str(attr));
        break;
    case IFLA_LINKINFO:
        return mnl_attr_parse_nested(attr, on_link_kind, d);
    default:
        break;
    }
    return MNL_CB_OK;
}

static int on_link(const struct nlmsghdr *head, void *ctx)
{
    struct link_details *d = ctx;
    const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(head);
    d->index = (unsigned)ifi->ifi_index;
    d->up = ifi->ifi_flags & IFF_UP;
    return mnl_attr_parse(head, sizeof(*ifi), on_link_attr, d);
}

int link_get(const char *name, struct link_details *ret_details)
{
    struct request r;
    struct link_details d = {0};
    request_link(&r, RTM_GETLINK, 0, 0);
    mnl_attr_put_strz(r.head, IFLA_IFNAME, name);
    int rc = request_send(&r, on_link, &d);
    if (!rc)
        *ret_details = d;
    return rc;
}

static void put_queues(struct request *r, uint16_t queues, uint16_t mtu)
{
    mnl_attr_put_u32(r->head, IFLA_NUM_TX_QUEUES, queues);
    mnl_attr_put_u32(r->head, IFLA_NUM_RX_QUEUES, queues);
    mnl_attr_put_u32(r->head, IFLA_MTU, mtu);
}

int link_add_veth(const char *name, const char *peer, uint16_t queues, uint16_t mtu)
{
    struct request r;
    request_link(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, 0);
    mnl_attr_put_strz(r.head, IFLA_IFNAME, name);
    put_queues(&r, queues, mtu);
    struct nlattr *info = mnl_attr_nest_start(r.head, IFLA_LINKINFO);
    mnl_attr_put_strz(r.head, IFLA_INFO_KIND, "veth");
    struct nlattr *data = mnl_attr_nest_start(r.head, IFLA_INFO_DATA);
    struct nlattr *other = mnl_attr_nest_start(r.head, VETH_INFO_PEER);
    mnl_nlmsg_put_extra_header(r.head, sizeof(struct ifinfomsg));
    mnl_attr_put_strz(r.head, IFLA_IFNAME, peer);
    put_queues(&r, queues, mtu);
    mnl_attr_nest_end(r.head, other);
    mnl_attr_nest_end(r.head, data);
    mnl_attr_nest_end(r.head, info);
    return request_send(&r, NULL, NULL);
}

int link_delete(unsigned index)
{
    struct request r;
    request_link(&r, RTM_DELLINK, 0, index);
    return request_send(&r, NULL, NULL);
}

int link_set_alias(unsigned index, const char *alias)
{
    struct request r;
    request_link(&r, RTM_SETLINK, 0, index);
    mnl_attr_put_str(r.head, IFLA_IFALIAS, alias);
    return request_send(&r, NULL, NULL);
}

int link_set_up(unsigned index)
{
    struct request r;
    struct ifinfomsg *ifi = request_link(&r, RTM_SETLINK, 0, index);
    ifi->ifi_flags = IFF_UP;
    ifi->ifi_change = IFF_UP;
    return request_send(&r, NULL, NULL);
}

/* Both ways: /proc may be read-only, and the netlink attribute alone leaves multicast reports. */
int link_disable_ipv6(unsigned index, const char *name)
{
    struct request r;
    char path[128];
    snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, "1", 1);
        close(fd);
        if (n == 1)
            return 0;
    } else if (errno == ENOENT) {
        return 0; /* a kernel without IPv6 */
    }
    request_link(&r, RTM_SETLINK, 0, index);
    struct nlattr *spec = mnl_attr_nest_start(r.head, IFLA_AF_SPEC);
    struct nlattr *inet6 = mnl_attr_nest_start(r.head, AF_INET6);
    mnl_attr_put_u8(r.head, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
    mnl_attr_nest_end(r.head, inet6);
    mnl_attr_nest_end(r.head, spec);
    return request_send(&r, NULL, NULL);
}

int link_add_ipv4(unsigned index, uint32_t addr, uint8_t prefix)
{
    struct request r;
    r.head = mnl_nlmsg_put_header(r.buf);
    r.head->nlmsg_type = RTM_NEWADDR;
    r.head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(r.head, sizeof(*ifa));
    ifa->ifa_family = AF_INET;
    ifa->ifa_prefixlen = prefix;
    ifa->ifa_scope = RT_SCOPE_UNIVERSE;
    ifa->ifa_index = index;
    mnl_attr_put_u32(r.head, IFA_LOCAL, addr);
    mnl_attr_put_u32(r.head, IFA_ADDRESS, addr);
    return request_send(&r, NULL, NULL);
}

static int ethtool(const char *name, void *command)
{
    struct ifreq ifr = {.ifr_data = command};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
    int rc = ioctl(fd, SIOCETHTOOL, &ifr) ? -errno : 0;
    close(fd);
    return rc;
}

int link_disable_offloads(const char *name)
{
    static const uint32_t commands[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM};
    for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct ethtool_value off = {.cmd = commands[i], .data = 0};
        int rc = ethtool(name, &off);
        if (rc && rc != -EOPNOTSUPP)
            return rc;
    }
    return 0;
}

unsigned link_rx_queues(const char *name)
{
    struct ethtool_channels ch = {.cmd = ETHTOOL_GCHANNELS};
    if (ethtool(name, &ch) || ch.combined_count + ch.rx_count == 0)
        return 1;
    return ch.combined_count + ch.rx_count;
}
