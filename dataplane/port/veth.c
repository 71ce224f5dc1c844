#include "dataplane/port/veth.h"

#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/port/error.h"
#include "dataplane/port/link.h"

#define VETH_ALIAS "millrace"

struct veth {
    unsigned port_index;
    char host_end[IFNAMSIZ], port_end[IFNAMSIZ];
};

static bool is_leftover(const struct link_details *d)
{
    return strcmp(d->kind, "veth") == 0 && strcmp(d->alias, VETH_ALIAS) == 0;
}

/* Either end, because the other may have been moved to a namespace that we can't see. */
static int remove_leftover(const struct config_port *cfg, const char *name,
                           struct port_error *ret_error)
{
    struct link_details d;
    int rc = link_get(name, &d);
    if (rc == -ENODEV)
        return 0;
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't look up interface %s: %s", cfg->name, name,
                         strerror(-rc));
    if (!is_leftover(&d))
        return port_fail(ret_error, -EEXIST,
                         "port %s: interface %s exists and isn't Millrace's: choose another "
                         "device name, or remove it (ip link del %s)",
                         cfg->name, name, name);
    rc = link_delete(d.index);
    if (rc && rc != -ENODEV)
        return port_fail(ret_error, rc, "port %s: can't remove the leftover interface %s: %s",
                         cfg->name, name, strerror(-rc));
    return 0;
}

static int set_up_host_end(const struct config_port *cfg, const struct veth *v)
{
    struct link_details d;
    int rc = link_get(v->host_end, &d);
    if (!rc)
        rc = link_set_alias(d.index, VETH_ALIAS);
    if (!rc)
        rc = link_disable_offloads(v->host_end);
    if (!rc && cfg->host_address.addr)
        rc = link_add_ipv4(d.index, cfg->host_address.addr, cfg->host_address.prefix);
    return rc ? rc : link_set_up(d.index);
}

static int set_up_port_end(struct veth *v)
{
    struct link_details d;
    int rc = link_get(v->port_end, &d);
    if (rc)
        return rc;
    v->port_index = d.index;
    rc = link_set_alias(d.index, VETH_ALIAS);
    if (!rc)
        rc = link_disable_offloads(v->port_end);
    if (!rc)
        rc = link_disable_ipv6(d.index, v->port_end);
    return rc ? rc : link_set_up(d.index);
}

static int make_pair(const struct config_port *cfg, uint16_t queues, struct veth *v,
                     struct port_error *ret_error)
{
    int rc = link_add_veth(v->host_end, v->port_end, queues, cfg->mtu);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't make the veth pair %s, %s: %s%s", cfg->name,
                         v->host_end, v->port_end, strerror(-rc),
                         rc == -EPERM ? ": run as root" : "");
    rc = set_up_port_end(v);
    if (!rc)
        rc = set_up_host_end(cfg, v);
    if (rc) {
        link_delete(if_nametoindex(v->port_end));
        return port_fail(ret_error, rc, "port %s: can't set up the veth pair %s, %s: %s", cfg->name,
                         v->host_end, v->port_end, strerror(-rc));
    }
    return 0;
}

int veth_new(const struct config_port *cfg, uint16_t queues, struct veth **ret_veth,
             struct port_error *ret_error)
{
    if (strlen(cfg->device) > IFNAMSIZ - 2)
        return port_fail(ret_error, -EINVAL, "port %s: device name %s: at most %d characters",
                         cfg->name, cfg->device, IFNAMSIZ - 2);
    struct veth *v = calloc(1, sizeof(*v));
    if (!v)
        return port_fail(ret_error, -ENOMEM, "port %s: out of memory", cfg->name);
    snprintf(v->host_end, sizeof(v->host_end), "%s", cfg->device);
    snprintf(v->port_end, sizeof(v->port_end), "%.*sp", IFNAMSIZ - 2, cfg->device);
    int rc = remove_leftover(cfg, v->host_end, ret_error);
    if (!rc)
        rc = remove_leftover(cfg, v->port_end, ret_error);
    if (!rc)
        rc = make_pair(cfg, queues, v, ret_error);
    if (rc) {
        free(v);
        return rc;
    }
    *ret_veth = v;
    return 0;
}

void veth_free(struct veth *v)
{
    if (!v)
        return;
    link_delete(v->port_index);
    free(v);
}

const char *veth_port_end(const struct veth *v)
{
    return v->port_end;
}
