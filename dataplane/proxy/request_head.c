/* A request's head, from the client's bytes to the origin's: kept as it came, written for each
 * attempt. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/http/deadline.h"
#include "dataplane/proxy/duties.h"
#include "dataplane/proxy/exchange.h"

static struct proxy *proxy_of(const struct exchange *x)
{
    return client_proxy(x->client);
}

int exchange_keep_head(struct exchange *x, uint32_t end)
{
    struct client *c = x->client;
    struct rope_pool *ropes = proxy_of(x)->ropes;
    x->head_start = c->head.scan.start;
    x->head_len = end - x->head_start;
    if (c->head.buf) {
        x->head_buf = head_reader_steal(&c->head);
        rope_trim_head(ropes, &c->in, end);
        return 0;
    }
    head_reader_reset(&c->head);
    return rope_move(ropes, &x->head, &c->in, end) == (ssize_t)end ? 0 : -ENOMEM;
}

static const char *head_base(const struct exchange *x)
{
    return (x->head_buf ? x->head_buf : rope_node_data(x->head.head)) + x->head_start;
}

void exchange_drop_head(struct exchange *x)
{
    free(x->head_buf);
    x->head_buf = NULL;
    rope_clear(proxy_of(x)->ropes, &x->head);
}

/* The parsed head: what exchange_start() left, or read anew. NULL: it doesn't parse any more. */
static struct http_head *request_head(struct exchange *x)
{
    struct proxy *p = proxy_of(x);
    struct http_head *head = &p->request;
    struct h1_limits limits = {.head_size = x->head_len};
    if (p->request_of == x) {
        head->base = head_base(x);
        return head;
    }
    /* The table of fields is as large as the newest snapshot's limit; a reload may have lowered it
     * since this head was accepted. */
    p->request_of = NULL;
    *head = (struct http_head){0};
    http_head_init(head, p->fields, p->nfields);
    return h1_parse_request(head_base(x), x->head_len, &limits, head) == 0 ? head : NULL;
}

static void format_endpoint(char *to, size_t size, const struct endpoint *ep)
{
    char addr[INET_TEXT];
    inet_format(addr, &(struct inet_end){.addr = ep->addr});
    snprintf(to, size, "%s:%u", addr, ep->port);
}

/* Of the request, or of the attempt if that is less. */
static void format_time_left(const struct exchange *x, char text[HTTP_DEADLINE_TEXT_MAX])
{
    uint64_t due = x->try_due < x->deadline ? x->try_due : x->deadline;
    uint64_t left = due - client_now(x->client);
    if (strcmp(x->upstream->deadline_header, HTTP_GRPC_TIMEOUT) == 0)
        http_deadline_format_grpc(left, text);
    else
        http_deadline_format_ms(left, text);
}

/* Who has sent it to us, be it a proxy; the record tells, but for a client that was named. */
static struct inet_end sender_of(const struct exchange *x)
{
    return x->record.client_port ? record_end(&x->record) : conn_client(&x->client->c);
}

int exchange_write_head(struct exchange *x)
{
    const struct config_http *http = client_http(x->client);
    struct http_head *head = request_head(x);
    char addr[INET_TEXT], host[INET_TEXT + 6] = "";
    if (!head)
        return -EINVAL;
    struct inet_end sender = sender_of(x);
    inet_format(addr, &sender);
    if (!http_head_has(head, HTTP_H_HOST))
        format_endpoint(host, sizeof(host), x->conn->endpoint);
    struct h1_request_edit edit = {
        .forwarded = http->forwarded,
        .client_addr = addr,
        .https = client_is_secure(x->client),
        .default_host = host,
        .via = http->via,
    };
    char left[HTTP_DEADLINE_TEXT_MAX];
    if (x->upstream->deadline_header && x->deadline != NO_TIME) {
        edit.deadline_name = x->upstream->deadline_header;
        edit.deadline = left;
        format_time_left(x, left);
    }
    struct tls_info tls = {0};
    const struct config_tls *secure = x->client->c.listener->cfg->tls;
    if (secure && secure->client_header) {
        tls_get_info(x->client->c.stream, &tls);
        edit.subject_name = secure->client_header;
        edit.subject = tls.subject;
    }
    struct edit_work work;
    if (x->edit) {
        edit.changes = edit_request(x, head, &work);
        if (!edit.changes)
            return -EINVAL;
    }
    h1_request_framing(head, &edit);
    return h1_write_request(proxy_of(x)->ropes, &x->up, head, &edit);
}
