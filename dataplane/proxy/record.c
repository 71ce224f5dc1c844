#include <stdio.h>
#include <string.h>

#include "dataplane/proxy/conn.h"

void record_text(char *to, size_t size, const char *from, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

static void record_tls(struct access_record *r, const struct stream *s)
{
    struct tls_info info;
    if (!tls_get_info(s, &info))
        return;
    r->has_tls = true;
    r->tls.version = info.version;
    r->tls.cipher = info.cipher;
    r->tls.resumed = info.resumed;
    const char *sni = info.sni ? info.sni : "";
    record_text(r->tls.sni, sizeof(r->tls.sni), sni, strlen(sni));
}

/* Written anew for each request, so only the fixed part is cleared. */
void record_conn(struct access_record *r, const struct listener *l, const struct inet_end *client)
{
    memset(r, 0, offsetof(struct access_record, method));
    r->method[0] = r->upstream[0] = r->host[0] = r->target[0] = 0;
    record_text(r->listener, sizeof(r->listener), l->name, strlen(l->name));
    r->client_addr = client->addr;
    r->client_port = client->port;
    r->has_ip6 = client->is_ip6;
    if (client->is_ip6)
        memcpy(r->client_ip6, client->ip6, sizeof(r->client_ip6));
}

void record_init(struct access_record *r, const struct client *c)
{
    struct inet_end client = conn_client(&c->c);
    record_conn(r, c->c.listener, &client);
    record_tls(r, c->c.stream);
    r->http_error = c->head.scan.error; /* a head that found no end */
}

struct inet_end record_end(const struct access_record *r)
{
    struct inet_end e = {.addr = r->client_addr, .port = r->client_port, .is_ip6 = r->has_ip6};
    if (e.is_ip6)
        memcpy(e.ip6, r->client_ip6, sizeof(e.ip6));
    return e;
}

void record_client(const struct access_record *r, char to[INET_TEXT])
{
    struct inet_end e = record_end(r);
    inet_format(to, &e);
}

static void believe(struct access_record *r, const struct client *c, const struct http_head *head)
{
    struct inet_end client = client_end(c, head);
    r->client_addr = client.addr;
    r->client_port = client.port;
}

void record_request(struct access_record *r, const struct client *c, const struct http_head *head)
{
    if (client_http(c)->nproxied && head->error == HTTP_ERR_NONE)
        believe(r, c, head);
    r->version_minor = head->version_minor;
    r->http_error = head->error;
    record_text(r->method, sizeof(r->method), http_head_at(head, head->method_text),
                head->method_text.len);
    record_text(r->host, sizeof(r->host), http_head_at(head, head->authority), head->authority.len);
    record_text(r->target, sizeof(r->target), http_head_at(head, head->target), head->target.len);
}

void record_put(struct access_record *r, struct proxy *p, uint64_t started, enum access_reason why)
{
    uint64_t now = sched_now(p->sched);
    r->reason = (uint8_t)why;
    r->duration_ns = now - started;
    r->wall_ns = (uint64_t)((int64_t)now + p->wall_offset);
    access_ring_put(p->log, r);
}

void record_finish(struct access_record *r, struct client *c, uint64_t started, int status,
                   enum access_reason why)
{
    struct listener_counters *count = &c->c.listener->count;
    struct proxy *p = client_proxy(c);
    c->requests++;
    count->requests++;
    count->bytes_in += r->bytes_in;
    count->bytes_out += r->bytes_out;
    count->status[status / 100 < 6 ? status / 100 : 0]++;
    if (!client_http(c)->access_log)
        return;
    r->status = (uint16_t)status;
    record_put(r, p, started, why);
}

const char *proxy_date(struct proxy *p)
{
    uint64_t wall = (uint64_t)((int64_t)sched_now(p->sched) + p->wall_offset);
    return http_date_get(&p->date, wall / 1000000000u);
}
