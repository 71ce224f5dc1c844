/* The edge's own duties around an exchange. In this order, and the first that says no has the last
 * word (docs/tuning.md):
 *
 *   at a SYN             the listener's access list
 *   after a handshake    connection rate, then connections, of the client's address
 *   after a head         the listener's maintenance, then its rate limit; the route (404, 421); its
 *                        access list, maintenance, rate limit and redirect
 *   on the way           path, host and fields of the request; fields of the answer; ids
 *
 * Private to proxy/.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_DUTIES_H
#define MILLRACE_DATAPLANE_PROXY_DUTIES_H

#include "dataplane/http/h1/serialize.h"
#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/exchange.h"

/* What a request gets instead of an exchange. */
struct refusal {
    int status;
    enum access_reason why;
    uint32_t retry_after;                   /* s; 0: none */
    const char *body;                       /* NULL: the status in words */
    const struct config_redirect *redirect; /* NULL: it is none; else with the next two */
    const struct config_route *route;
    const struct http_route_key *key;
};

/* For a listener or a route that is `gated`. False: `ret_refusal` has the answer. */
bool duties_pass_listener(struct client *c, const struct http_head *head,
                          struct refusal *ret_refusal);
bool duties_pass_route(struct client *c, const struct exchange_request *r,
                       struct refusal *ret_refusal);

/* Answers; `r` has been filled from the connection and, if there is a whole one, from `head`. */
void duties_answer(struct client *c, const struct http_head *head, bool keep_alive,
                   const struct refusal *no, struct access_record *r);

/* A client of IPv6 is one that no list names. */
bool duties_allow(const struct config_access *x, const struct inet_end *client);

/* A connection is there. False: its client has too many, or they come too fast. */
bool duties_enter(struct listener *l, const struct inet_end *client,
                  struct conn_ticket *ret_ticket);
void duties_leave(struct listener *l, const struct conn_ticket *ticket);

/* Core-local copies of what routes change: those of `s` in the place of the old ones. 0 or -ENOMEM;
 * ends in a commit or a rollback. */
int edits_prepare(struct proxy *p, const struct snapshot *s);
void edits_commit(struct proxy *p);
void edits_rollback(struct proxy *p);
void edits_free(struct proxy *p);

/* A request is taken: x->edit is set. Its ids are found or made. */
void edit_begin(struct exchange *x, const struct http_head *head);

struct http_answer;
/* For an answer of the proxy's own: the ids that the exchange has. */
void edit_answer(const struct exchange *x, struct http_answer *a);

/* Room for what a change of a head needs while it is written. */
struct edit_work {
    struct h1_changes changes;
    struct h1_path path;
    struct http_route_key key;
    struct template_vars vars;
    struct exchange *x;
    char ip[INET_TEXT];
};
/* NULL: the request doesn't parse any more. */
const struct h1_changes *edit_request(struct exchange *x, struct http_head *head,
                                      struct edit_work *w);
const struct h1_changes *edit_response(struct exchange *x, struct edit_work *w);

/* The line that tells the request's id. */
void edit_put_id(struct h1_writer *w, const char *header, const char *id);

/* The ids of a request that gets no exchange, for the log and its answer. */
void ids_record(struct client *c, const struct http_head *head, struct access_record *r);

#endif
