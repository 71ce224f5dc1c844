/* The admin socket: one JSON object a line in each direction.
 *
 *     {"verb": "status"}                →  {"ok": true, "result": {…}}
 *     {"verb": "reload"}                →  {"ok": false, "error": "…", "errors": ["…"]}
 *
 * A request may get notes ({"ok": true, "note": {…}}) before its answer. Requests of one client are
 * handled in turn. Bounded: a request to ADMIN_MAX_REQUEST bytes, ADMIN_MAX_CLIENTS at once, a
 * client that sends or takes nothing for ADMIN_IDLE_MS is cut; a client waiting for its answer is
 * not.
 *
 * One instance a socket: a lock file beside it (path + ".lock") is held as long as the process
 * lives, so what a crash has left behind is replaced and a live instance is never disturbed.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_ADMIN_H
#define MILLRACE_CONTROL_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#define ADMIN_MAX_REQUEST 65536
#define ADMIN_MAX_CLIENTS 64
#define ADMIN_IDLE_MS     30000

enum admin_verb { ADMIN_STATUS, ADMIN_RELOAD, ADMIN_DRAIN, ADMIN_PING, ADMIN_VERBS };

/* Reads one request, without its newline. 0, or -EINVAL with a line in err. */
int admin_parse(const char *line, size_t len, enum admin_verb *ret_verb, char *err, size_t err_len);

struct admin;
struct admin_request;

struct admin_opts {
    const char *path;
    unsigned idle_ms; /* 0: ADMIN_IDLE_MS */
    /* Every request gets exactly one admin_reply(), at once or later, also when its client has gone
     * meanwhile. */
    void (*on_request)(void *ctx, enum admin_verb verb, struct admin_request *r);
    void *ctx;
};

/* Claims `path` for this process: makes its folder if need be, takes the lock, removes a stale
 * socket. 0 with the lock's descriptor, or -errno with one line in err (-EADDRINUSE: another
 * instance runs). */
int admin_claim(const char *path, int *ret_lock, char *err, size_t err_len);

/* Listens; the path must have been claimed. 0, or -errno with one line in err. */
int admin_new(uv_loop_t *loop, const struct admin_opts *o, struct admin **ret_admin, char *err,
              size_t err_len);

/* Both take over the reference; NULL (no memory) is answered as such. */
void admin_note(struct admin_request *r, json_t *note);
void admin_reply(struct admin_request *r, json_t *result);
/* `errors` may be NULL. */
void admin_refuse(struct admin_request *r, const char *error, json_t *errors);

/* Stops listening, removes the socket, closes clients once what was written to them has left (at
 * most a second). Every request must have been answered. NULL is fine. */
void admin_close(struct admin *a);

#endif
