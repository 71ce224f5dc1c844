#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <string.h>
#include "config/units.h"
#include "config/validate.h"

/* What no machine may have as its address on a subnet; NULL: fine. */
static const char *unusable(const struct config_addr *a)
{
    uint32_t addr = ntohl(a->addr), host = a->prefix < 32 ? UINT32_MAX >> a->prefix : 0;

    if (addr >> 24 == 0 || addr >> 24 == 127)
        return "can't be used on a network";
    if (addr >= 0xe0000000)
        return "is no single machine's address";
    if (a->prefix && a->prefix < 31 && !(addr & host))
        return "is the subnet's own address";
    if (a->prefix && a->prefix < 31 && (addr & host) == host)
        return "is the subnet's broadcast address";
    return NULL;
}

static void check_addresses(struct validate *v)
{
    const struct snapshot *s = v->s;
    size_t total = 0, n = 0;
    struct validate_item *items;

    for (size_t i = 0; i < s->nports; i++)
        total += s->ports[i].naddresses;
    items = validate_items(v, total);
    for (size_t i = 0; items && i < s->nports; i++) {
        for (size_t j = 0; j < s->ports[i].naddresses; j++) {
            const struct config_addr *a = &s->ports[i].addresses[j];
            const struct yaml_node *node = bind_where(v->b, a, "[]");
            char text[UNITS_TEXT_MAX];

            if (!node)
                continue;
            units_format_ip(a->addr, text);
            if (unusable(a))
                bind_fault(v->b, node, "%s %s", text, unusable(a));
            items[n++] = (struct validate_item){config_say(v->b->scratch, "%s", text), node};
        }
    }
    if (items)
        validate_distinct(v, items, n, "the address");
}

static bool is_on_subnet(const struct config_port *p, uint32_t addr)
{
    for (size_t i = 0; i < p->naddresses; i++)
        if (validate_is_on(&p->addresses[i], addr))
            return true;
    return false;
}

static void check_gateway(struct validate *v, const struct config_port *p)
{
    const struct yaml_node *n = bind_where(v->b, &p->gateway, "gateway");

    if (!n || !v->know_addresses)
        return;
    if (validate_is_ours(v->s, p->gateway))
        bind_fault(v->b, n, "the gateway is one of our own addresses");
    else if (!is_on_subnet(p, p->gateway))
        bind_fault(v->b, n, "the gateway is not on a subnet of this port's addresses");
}

static void check_host_address(struct validate *v, const struct config_port *p)
{
    const struct yaml_node *n = bind_where(v->b, &p->host_address, "host_address");

    if (!n)
        return;
    if (bind_where(v->b, &p->driver, "driver") && p->driver != CONFIG_VETH &&
        p->driver != CONFIG_TAP)
        bind_fault(v->b, n, "only for the drivers veth and tap");
    else if (unusable(&p->host_address))
        bind_fault(v->b, n, "%s %s", n->text, unusable(&p->host_address));
    else if (validate_is_ours(v->s, p->host_address.addr))
        bind_fault(v->b, n, "the kernel's end can't have one of our own addresses");
}

static unsigned nearest_power(unsigned value)
{
    unsigned below = 1u << (31 - __builtin_clz(value));

    return value - below > 2 * below - value ? 2 * below : below;
}

static void check_power_of_two(struct validate *v, const uint16_t *value, const char *name)
{
    const struct yaml_node *n = bind_where(v->b, value, name);

    if (n && (*value & (*value - 1)))
        bind_fault(v->b, n, "expected a power of two, found %u (did you mean \"%u\"?)", *value,
                   nearest_power(*value));
}

static void check_queues(struct validate *v, const struct config_port *p)
{
    const struct yaml_node *n = bind_where(v->b, &p->queues, "queues");
    unsigned cores = v->s->runtime.ncores;

    if (n && cores && p->queues > cores)
        bind_fault(v->b, n, "expected at most %u, one a core, found %u", cores, p->queues);
}

static bool is_interface(const char *text)
{
    return strlen(text) < IFNAMSIZ && !strpbrk(text, "/:%") && strcmp(text, ".") &&
           strcmp(text, "..");
}

static bool has_form(const char *text, const char *form)
{
    for (; *form; form++, text++)
        if (*form == 'x' ? !isxdigit((unsigned char)*text) : *text != *form)
            return false;
    return !*text;
}

static void check_device(struct validate *v, const struct config_port *p)
{
    const struct yaml_node *n = bind_where(v->b, &p->device, "device");

    if (!n || !bind_where(v->b, &p->driver, "driver"))
        return;
    switch (p->driver) {
    case CONFIG_VETH:
    case CONFIG_AF_XDP:
    case CONFIG_TAP:
        if (!is_interface(p->device))
            bind_fault(v->b, n, "expected an interface's name of at most %d characters, found %s",
                       IFNAMSIZ - 1, yaml_quote(v->b->scratch, n->text, n->len));
        break;
    case CONFIG_PCI:
        if (!has_form(p->device, "xxxx:xx:xx.x") && !has_form(p->device, "xx:xx.x"))
            bind_fault(v->b, n, "expected a PCI address such as 0000:3b:00.0, found %s",
                       yaml_quote(v->b->scratch, n->text, n->len));
        break;
    case CONFIG_MEMIF:
        if (*p->device != '/')
            bind_fault(v->b, n, "expected the absolute path of memif's socket, found %s",
                       yaml_quote(v->b->scratch, n->text, n->len));
        break;
    }
}

static void check_names(struct validate *v)
{
    const struct snapshot *s = v->s;
    struct validate_item *names = validate_items(v, s->nports);
    struct validate_item *devices = validate_items(v, s->nports);
    size_t nnames = 0, ndevices = 0;

    if (!names || !devices)
        return;
    for (size_t i = 0; i < s->nports; i++) {
        const struct config_port *p = &s->ports[i];
        const struct yaml_node *name = bind_where(v->b, &p->name, "name");
        const struct yaml_node *device = bind_where(v->b, &p->device, "device");

        if (name)
            names[nnames++] = (struct validate_item){p->name, name};
        if (device && p->driver != CONFIG_MEMIF) /* memif: several may share a socket */
            devices[ndevices++] = (struct validate_item){p->device, device};
    }
    validate_distinct(v, names, nnames, "the name");
    validate_distinct(v, devices, ndevices, "the device");
}

void validate_ports(struct validate *v)
{
    check_names(v);
    check_addresses(v);
    for (size_t i = 0; i < v->s->nports; i++) {
        const struct config_port *p = &v->s->ports[i];

        check_device(v, p);
        check_host_address(v, p);
        check_gateway(v, p);
        check_queues(v, p);
        check_power_of_two(v, &p->rx_descriptors, "rx_descriptors");
        check_power_of_two(v, &p->tx_descriptors, "tx_descriptors");
    }
}
