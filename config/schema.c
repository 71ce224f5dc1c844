#include <string.h>
#include "config/schema.h"
#include "config/schema_duties.h"
#include "config/schema_terms.h"
#include "config/schema_tls.h"
#include "config/schema_tunnel.h"
#include "config/snapshot.h"

static const char *const poll_choices[] = {"adaptive", "busy", NULL};
static const char *const driver_choices[] = {"veth", "af_xdp", "pci", "memif", "tap", NULL};
static const char *const format_choices[] = {"text", "json", NULL};
static const char *const level_choices[] = {"error", "warn", "info", "debug", NULL};
static const char *const forwarded_choices[] = {"x_forwarded", "forwarded", "both", "off", NULL};
static const char *const priority_choices[] = {"high", "normal", "low", NULL};
static const char *const access_choices[] = {"stderr", NULL};
static const char *const listener_kinds[] = {"http", "tunnel", NULL};

static void name_identity(const void *base, FILE *f)
{
    const char *const *name = base; /* the first member, asserted below */

    fputs(*name ? *name : "", f);
}
_Static_assert(!offsetof(struct config_port, name), "name_identity");
_Static_assert(!offsetof(struct config_listener, name), "name_identity");

static void route_identity(const void *base, FILE *f)
{
    const struct config_route *r = base;

    config_host_pattern.format(NULL, r, f);
    fputs(r->path_prefix ? r->path_prefix : "", f);
}

static const struct config_key runtime_keys[] = {
    {"cores", CONFIG_VALUES, &config_cpu, ELEMENTS(config_runtime, cores, ncores), .in_place = true,
     .required = true, .frozen = true, RANGE(1, CONFIG_MAX_CORES), .example = "[1]",
     .doc = "CPU numbers to run the data plane on, one thread each. Leave at least one CPU to the "
            "kernel and to the control thread."},
    {"blocking_threads", CONFIG_VALUE, &config_integer, FIELD(config_runtime, blocking_threads),
     .initial = "2", .frozen = true, RANGE(1, 64),
     .doc = "Threads for work that is too long for a core."},
    {"tls_handshakes", CONFIG_VALUE, &config_integer, FIELD(config_runtime, tls_handshakes),
     .initial = "auto", .word = "auto", .word_value = 0, .frozen = true, RANGE(1, 64),
     .doc = "Handshakes that may run in these threads at once. `auto`: as many as there are "
            "threads."},
    {"tls_queue", CONFIG_VALUE, &config_integer, FIELD(config_runtime, tls_queue),
     .initial = "4096", .frozen = true, RANGE(1, 1000000),
     .doc = "Handshakes that may wait for these threads; what is over it is up to the listener's "
            "`tls.overload`."},
    {"poll", CONFIG_VALUE, &config_choice, FIELD(config_runtime, poll), .initial = "adaptive",
     .choices = poll_choices, .frozen = true,
     .doc = "What a core does without work. `adaptive` sleeps until a packet or a timer comes; "
            "`busy` keeps polling, for CPUs that do nothing else."},
    {"connections", CONFIG_VALUE, &config_integer, FIELD(config_runtime, connections),
     .initial = "20000", .frozen = true, RANGE(16, 4000000),
     .doc = "TCP connections a core holds at the most, clients' and origins' together."},
    {"receive_buffer", CONFIG_VALUE, &config_size, FIELD(config_runtime, memory_rcv_buf),
     .initial = "256KiB", .frozen = true, RANGE(16 * KIB, 64 * MIB),
     .doc = "What a TCP connection may hold of received bytes. Bounds its window."},
    {"send_buffer", CONFIG_VALUE, &config_size, FIELD(config_runtime, memory_snd_buf),
     .initial = "256KiB", .frozen = true, RANGE(16 * KIB, 64 * MIB),
     .doc = "What a TCP connection may hold of bytes that aren't acknowledged yet."},
    {"tracked_clients", CONFIG_VALUE, &config_integer, FIELD(config_runtime, tracked_clients),
     .initial = "16384", .frozen = true, RANGE(64, 67108864),
     .doc = "Client addresses that limits per client can tell apart at once, over all cores; each "
            "limit counts anew. 64 bytes each. When there are more, those nearest to their full "
            "burst are forgotten."},
    END,
};
static const struct config_group runtime_group = {
    "runtime", "Threads and memory.", sizeof(struct config_runtime), runtime_keys, NULL, NULL};

static const struct config_key port_keys[] = {
    {"name", CONFIG_VALUE, &config_name, FIELD(config_port, name), .required = true, .frozen = true,
     .example = "edge0", .doc = "What the port is called in logs and metrics."},
    {"driver", CONFIG_VALUE, &config_choice, FIELD(config_port, driver), .required = true,
     .choices = driver_choices, .frozen = true, .example = "veth",
     .doc = "How packets get here. `veth`: a pair made at start, for a machine without a spare "
            "NIC; `af_xdp`: a NIC that the kernel keeps; `pci`: a NIC bound to vfio; `memif`: "
            "another process's shared memory; `tap`: a kernel interface."},
    {"device", CONFIG_VALUE, &config_device, FIELD(config_port, device), .required = true,
     .frozen = true, .example = "mill0",
     .doc = "`veth`: name of the kernel's end; `af_xdp`: the NIC; `pci`: its address, such as "
            "`0000:3b:00.0`; `memif`: path of the socket; `tap`: name of the interface."},
    {"host_address", CONFIG_VALUE, &config_cidr, FIELD(config_port, host_address), .frozen = true,
     .example = "10.77.0.2/24", .doc = "`veth` and `tap` only: given to the kernel's end."},
    {"addresses", CONFIG_VALUES, &config_cidr, ELEMENTS(config_port, addresses, naddresses),
     .required = true, .frozen = true, RANGE(1, 64), .example = "[10.77.0.1/24]",
     .doc = "Our addresses on this port. Only their traffic is taken from the wire."},
    {"gateway", CONFIG_VALUE, &config_ip, FIELD(config_port, gateway), .frozen = true,
     .example = "10.77.0.2",
     .doc = "Router for everything that is not on a subnet of `addresses`."},
    {"mtu", CONFIG_VALUE, &config_integer, FIELD(config_port, mtu), .initial = "1500",
     .frozen = true, RANGE(576, 9000), .doc = "Largest IP packet, in bytes."},
    {"queues", CONFIG_VALUE, &config_integer, FIELD(config_port, queues), .initial = "auto",
     .word = "auto", .word_value = 0, .frozen = true, RANGE(1, CONFIG_MAX_CORES),
     .doc = "Receive queues, and as many for sending. `auto`: one a core (`veth`: one)."},
    {"rx_descriptors", CONFIG_VALUE, &config_integer, FIELD(config_port, rx_descriptors),
     .initial = "2048", .frozen = true, RANGE(64, 32768),
     .doc = "Packets a receive queue holds; a power of two."},
    {"tx_descriptors", CONFIG_VALUE, &config_integer, FIELD(config_port, tx_descriptors),
     .initial = "2048", .frozen = true, RANGE(64, 32768),
     .doc = "Packets a transmit queue holds; a power of two."},
    {"pool_size", CONFIG_VALUE, &config_integer, FIELD(config_port, pool_size), .initial = "auto",
     .word = "auto", .word_value = 0, .frozen = true, RANGE(4096, 16000000),
     .doc = "Packet buffers. `auto`: what the queues' rings and `runtime.connections` need."},
    {"driver_args", CONFIG_VALUE, &config_text, FIELD(config_port, driver_args), .frozen = true,
     .example = "busy_budget=64", .doc = "Added to the DPDK device's arguments as it stands."},
    END,
};
static const struct config_group port_group = {
    "ports",      "NIC ports that Millrace owns.", sizeof(struct config_port), port_keys, NULL,
    name_identity};

static const struct config_key match_keys[] = {
    {"host", CONFIG_VALUE, &config_host_pattern, .initial = "*", .example = "\"*.example.com\"",
     .doc = "`www.example.com`: that host; `*.example.com`: every host below it; `*`: any."},
    {"path_prefix", CONFIG_VALUE, &config_path_prefix, .initial = "/", .example = "/api",
     .doc = "The path's start, by whole segments: `/api` takes `/api` and `/api/x`, not `/apis`; "
            "`/api/` takes `/api/x` only. The most specific host wins, then the longest prefix."},
    END,
};
static const struct config_group match_group = {
    "match", "Which requests.", sizeof(struct config_route), match_keys, NULL, NULL};

static const struct config_key route_timeout_keys[] = {
    {"request", CONFIG_VALUE, &config_duration, FIELD(config_route, request_timeout),
     .initial = "upstream", .word = "upstream", .word_value = 0, RANGE(1 * MS, 24 * HR),
     .doc = "From the request's head to the answer's last byte. `upstream`: what the upstream "
            "says."},
    END,
};
static const struct config_group route_timeouts = {
    "timeouts", "Times of a route.", sizeof(struct config_route), route_timeout_keys, NULL, NULL};

static const struct config_key route_keys[] = {
    {"match", CONFIG_GROUP, .group = &match_group,
     .doc = "Which requests take this route; absent: all of them."},
    {"upstream", CONFIG_VALUE, &config_reference, FIELD(config_route, upstream), .example = "app",
     .doc = "Name of the upstream that answers."},
    {"redirect", CONFIG_OPTIONAL, .group = &config_redirect_group, FIELD(config_route, redirect),
     .doc = "Sends the client elsewhere."},
    {"timeouts", CONFIG_GROUP, .group = &route_timeouts, .doc = "Times of this route."},
    {"priority", CONFIG_VALUE, &config_choice, FIELD(config_route, priority), .initial = "normal",
     .choices = priority_choices,
     .doc = "Who goes first when requests wait at the upstream's limits."},
    {"access", CONFIG_OPTIONAL, .group = &config_route_access, FIELD(config_route, access),
     .doc = "Which clients' requests are taken; absent: everybody's."},
    {"maintenance", CONFIG_OPTIONAL, .group = &config_maintenance_group,
     FIELD(config_route, maintenance), .doc = "Answers every request of this route at once."},
    {"rate_limit", CONFIG_OPTIONAL, .group = &config_rate_limit, FIELD(config_route, rate_limit),
     .doc = "How often one client address may ask by this route; its listener's limit holds, too."},
    {"rewrite", CONFIG_OPTIONAL, .group = &config_rewrite_group, FIELD(config_route, rewrite),
     .doc = "Path and host that the origin is asked for."},
    {"headers", CONFIG_OPTIONAL, .group = &config_headers_group, FIELD(config_route, headers),
     .doc = "Header fields that are changed."},
    END,
};
static const char *const route_ends[] = {"upstream", "redirect", NULL};
static const struct config_group route_group = {"routes",
                                                "Routes of an HTTP listener.",
                                                sizeof(struct config_route),
                                                route_keys,
                                                route_ends,
                                                route_identity};

static const struct config_key http_timeout_keys[] = {
    {"header", CONFIG_VALUE, &config_duration, FIELD(config_http, header_timeout), .initial = "10s",
     RANGE(1 * MS, 1 * HR),
     .doc = "From the first byte of a request to the end of its head; then 408."},
    {"idle", CONFIG_VALUE, &config_duration, FIELD(config_http, idle_timeout), .initial = "60s",
     RANGE(1 * MS, 24 * HR),
     .doc = "Between two requests, and before the first; then the connection is closed."},
    {"body", CONFIG_VALUE, &config_duration, FIELD(config_http, body_timeout), .initial = "30s",
     RANGE(1 * MS, 24 * HR),
     .doc = "Between two pieces of a request's body, or of an answer that the client takes."},
    END,
};
static const struct config_group http_timeouts = {"timeouts",
                                                  "Times of clients' connections.",
                                                  sizeof(struct config_http),
                                                  http_timeout_keys,
                                                  NULL,
                                                  NULL};

static const struct config_key http_limit_keys[] = {
    {"header_size", CONFIG_VALUE, &config_size, FIELD(config_http, header_size), .initial = "16KiB",
     RANGE(512, 1 * MIB),
     .doc = "Bytes of a request's head (414 or 431 above). At most `runtime.receive_buffer`."},
    {"header_count", CONFIG_VALUE, &config_integer, FIELD(config_http, header_count),
     .initial = "100", RANGE(1, 1000), .doc = "Header fields of a request (431 above)."},
    {"body_size", CONFIG_VALUE, &config_size, FIELD(config_http, body_size), .initial = "1GiB",
     .word = "unlimited", .word_value = UINT64_MAX, RANGE(0, 1ull << 50),
     .doc = "Bytes of a request's body (413 above); `0B`: no body is allowed. Bodies are streamed, "
            "so a large limit costs no memory."},
    END,
};
static const struct config_group http_limits = {
    "limits", "Limits of a request.", sizeof(struct config_http), http_limit_keys, NULL, NULL};

static const struct config_key http_keys[] = {
    {"routes", CONFIG_LIST, .group = &route_group, ELEMENTS(config_http, routes, nroutes),
     .required = true, RANGE(1, 10000),
     .doc = "Where requests go. Their order doesn't matter: the most specific route wins. A "
            "request that none takes gets 404."},
    {"timeouts", CONFIG_GROUP, .group = &http_timeouts, .doc = "Times of clients' connections."},
    {"limits", CONFIG_GROUP, .group = &http_limits, .doc = "Limits of a request."},
    {"forwarded", CONFIG_VALUE, &config_choice, FIELD(config_http, forwarded),
     .initial = "x_forwarded", .choices = forwarded_choices,
     .doc = "What tells the origin who asked: `x_forwarded` (X-Forwarded-For, -Proto, -Host), "
            "`forwarded` (RFC 7239), `both` or `off`."},
    {"via", CONFIG_VALUE, &config_token, FIELD(config_http, via), .initial = "millrace",
     .word = "off", .doc = "Our name in the Via header; `off`: no Via."},
    {"deadline_header", CONFIG_VALUE, &config_field_name, FIELD(config_http, deadline_header),
     .initial = "x-request-timeout-ms", .word = "off",
     .doc = "Header by which a client says how long it will wait, in whole milliseconds: the "
            "request's deadline if it is sooner. `grpc-timeout` is always heeded; `off`: neither "
            "is."},
    {"trusted_proxies", CONFIG_VALUES, &config_network, ELEMENTS(config_http, proxies, nproxies),
     RANGE(1, 65536),
     .doc =
         "Proxies in front of us whose X-Forwarded-For is believed: the client of a request is the "
         "last address there that isn't one of theirs. It is what `rate_limit`, a route's "
         "`access`, `${client_ip}`, hashing by source and the access log go by; what is said of "
         "connections, and `request_id.trust`, goes by who is connected."},
    {"access_log", CONFIG_VALUE, &config_boolean, FIELD(config_http, access_log), .initial = "true",
     .doc = "Whether requests are written to `log.access`."},
    {"maintenance", CONFIG_OPTIONAL, .group = &config_maintenance_group,
     FIELD(config_http, maintenance), .doc = "Answers every request of this listener at once."},
    {"rate_limit", CONFIG_OPTIONAL, .group = &config_rate_limit, FIELD(config_http, rate_limit),
     .doc = "How often one client address may ask here, whatever the route."},
    {"headers", CONFIG_OPTIONAL, .group = &config_headers_group, FIELD(config_http, headers),
     .doc = "Header fields that are changed, whatever the route."},
    {"request_id", CONFIG_OPTIONAL, .group = &config_request_id_group,
     FIELD(config_http, request_id), .doc = "Gives each request an id."},
    {"traceparent", CONFIG_VALUE, &config_choice, FIELD(config_http, trace), .initial = "off",
     .choices = config_trace_choices,
     .doc = "W3C Trace Context. `off`: the field is passed on as it is. Else it is passed on with "
            "a parent id of ours, and where there is none (or a bad one) a trace begins here, "
            "which says of itself that it is `sampled` or `unsampled`. The trace id is in the "
            "access log."},
    END,
};
static const struct config_group http_group = {
    "http", "An HTTP/1.1 reverse proxy.", sizeof(struct config_http), http_keys, NULL, NULL};

static const struct config_key listener_limit_keys[] = {
    {"connections", CONFIG_VALUE, &config_integer, FIELD(config_listener, connections),
     .initial = "10000", RANGE(1, 100000000),
     .doc = "Clients at once, over all cores; each core gets its share, at least one."},
    {"per_client", CONFIG_GROUP, .group = &config_per_client, FIELD(config_listener, per_client),
     .doc = "Limits of each client address."},
    END,
};
static const struct config_group listener_limits = {
    "limits", "Limits of a listener.", sizeof(struct config_listener), listener_limit_keys, NULL,
    NULL};

static const struct config_key listener_keys[] = {
    {"name", CONFIG_VALUE, &config_name, FIELD(config_listener, name), .required = true,
     .example = "web", .doc = "What the listener is called in logs and metrics."},
    {"address", CONFIG_VALUE, &config_listen, FIELD(config_listener, address), .required = true,
     .may_wait = true, .example = "10.77.0.1:8080",
     .doc = "One of the ports' addresses and a TCP port; `*:8080`: all of the ports' addresses. An "
            "address that no running port has waits for a restart."},
    {"access", CONFIG_OPTIONAL, .group = &config_listener_access, FIELD(config_listener, access),
     .doc = "Which clients may connect; absent: everybody."},
    {"proxy_protocol", CONFIG_OPTIONAL, .group = &config_proxy_protocol_group,
     FIELD(config_listener, proxy_protocol),
     .doc = "Takes the client's address from a PROXY header; absent: none is looked for."},
    {"limits", CONFIG_GROUP, .group = &listener_limits, .doc = "Limits of the listener."},
    {"tls", CONFIG_OPTIONAL, .group = &config_tls_group, FIELD(config_listener, tls),
     .doc = "Makes clients speak TLS, which ends here; absent: plain TCP."},
    {"http", CONFIG_OPTIONAL, .group = &http_group, FIELD(config_listener, http),
     .doc = "Makes it an HTTP/1.1 reverse proxy."},
    {"tunnel", CONFIG_OPTIONAL, .group = &config_tunnel_group, FIELD(config_listener, tunnel),
     .doc = "Makes it a TCP tunnel."},
    END,
};
const struct config_group config_listener_group = {
    "listeners",   "Where clients connect.", sizeof(struct config_listener),
    listener_keys, listener_kinds,           name_identity};

static const struct config_key admin_keys[] = {
    {"socket", CONFIG_VALUE, &config_socket, FIELD(config_admin, socket),
     .initial = "/run/millrace/admin.sock", .word = "off", .frozen = true,
     .doc = "Unix socket for `millrace status`, `reload` and `drain`; `off`: none."},
    {"metrics", CONFIG_VALUE, &config_listen, FIELD(config_admin, metrics), .initial = "off",
     .word = "off", .frozen = true, .example = "127.0.0.1:9901",
     .doc = "Address of the kernel's (not of a port) that answers Prometheus; `off`: none."},
    END,
};
static const struct config_group admin_group = {"admin",
                                                "How the running process is asked and told.",
                                                sizeof(struct config_admin),
                                                admin_keys,
                                                NULL,
                                                NULL};

static const struct config_key log_keys[] = {
    {"format", CONFIG_VALUE, &config_choice, FIELD(config_log, format), .initial = "text",
     .choices = format_choices, .doc = "Of the log on stderr."},
    {"level", CONFIG_VALUE, &config_choice, FIELD(config_log, level), .initial = "info",
     .choices = level_choices, .doc = "The least important lines to write."},
    {"access", CONFIG_VALUE, &config_path, FIELD(config_log, access), .initial = "stderr",
     .choices = access_choices, .frozen = true,
     .doc = "Where requests are written, a line each: `stderr` or a file's path."},
    {"access_buffer", CONFIG_VALUE, &config_integer, FIELD(config_log, access_buffer),
     .initial = "4096", .frozen = true, RANGE(64, 1048576),
     .doc = "Lines that a core may have waiting; above that they are dropped and counted."},
    END,
};
static const struct config_group log_group = {
    "log", "What is written, and where.", sizeof(struct config_log), log_keys, NULL, NULL};

static const struct config_key drain_keys[] = {
    {"timeout", CONFIG_VALUE, &config_duration, FIELD(config_drain, timeout), .initial = "30s",
     RANGE(0, 24 * HR),
     .doc = "After SIGTERM or `millrace drain`, what is in flight may go on for this long."},
    END,
};
static const struct config_group drain_group = {"drain",    "The end.", sizeof(struct config_drain),
                                                drain_keys, NULL,       NULL};

static const struct config_key root_keys[] = {
    {"version", CONFIG_VALUE, &config_integer, .required = true, .frozen = true, RANGE(1, 1),
     .example = "1", .doc = "Of the language of this file: 1."},
    {"runtime", CONFIG_GROUP, .group = &runtime_group, FIELD(snapshot, runtime), .required = true,
     .doc = "Threads and memory."},
    {"ports", CONFIG_LIST, .group = &port_group, ELEMENTS(snapshot, ports, nports),
     .required = true, .frozen = true, RANGE(1, 16), .doc = "NIC ports that Millrace owns."},
    {"listeners", CONFIG_LIST, .group = &config_listener_group,
     ELEMENTS(snapshot, listeners, nlisteners), .required = true, .may_wait = true, RANGE(1, 1024),
     .doc = "Where clients connect. They come and go live: connections of one that goes, or that "
            "gets another address, finish what they are at."},
    {"upstreams", CONFIG_LIST, .group = &config_upstream_group,
     ELEMENTS(snapshot, upstreams, nupstreams), .required = true, RANGE(1, 4096),
     .doc = "Groups of origins."},
    {"admin", CONFIG_GROUP, .group = &admin_group, FIELD(snapshot, admin),
     .doc = "How the running process is asked and told."},
    {"log", CONFIG_GROUP, .group = &log_group, FIELD(snapshot, log),
     .doc = "What is written, and where."},
    {"drain", CONFIG_GROUP, .group = &drain_group, FIELD(snapshot, drain), .doc = "The end."},
    END,
};
const struct config_group config_root = {
    "", "The whole file.", sizeof(struct snapshot), root_keys, NULL, NULL};

const struct config_key *config_key_find(const struct config_group *g, const char *name, size_t len)
{
    for (const struct config_key *k = g->keys; k->name; k++)
        if (strlen(k->name) == len && !memcmp(k->name, name, len))
            return k;
    return NULL;
}
