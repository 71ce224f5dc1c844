/* The admin socket: one JSON object a line in each direction (verbs and arguments: admin_call.h).
 *
 *     {"verb": "status"}                →  {"ok": true, "result": {…}}
 *     {"verb": "reload"}                →  {"ok": false, "error": "…", "errors": ["…"]}
 *
 * A request may get notes ({"ok": true, "note": {…}}) before its answer. Requests of one client are
 * handled in turn. Bounded: a request to ADMIN_MAX_REQUEST bytes, ADMIN_MAX_CLIENTS at once. A
 * client that hasn't sent a whole request ADMIN_IDLE_MS after it came or got its last answer, or
 * hasn't taken an answer by then, is cut; one waiting for its answer is not. When there are too
 * many, the one that has kept us waiting longest gives way to the next, if that was ADMIN_SPARE_MS
 * at the least: nobody can lock us out by doing nothing.
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

#include "control/admin_call.h"

#define ADMIN_MAX_REQUEST 65536
#define ADMIN_MAX_CLIENTS 64
#define ADMIN_IDLE_MS     30000
#define ADMIN_SPARE_MS    1000

struct admin;
struct admin_request;

struct admin_opts {
    const char *path;
    unsigned idle_ms;  /* 0: ADMIN_IDLE_MS */
    unsigned spare_ms; /* 0: ADMIN_SPARE_MS */
    /* Every request gets exactly one admin_reply(), at once or later, also when its client has gone
     * meanwhile. The call is valid until on_request() returns. */
    void (*on_request)(void *ctx, const struct admin_call *call, struct admin_request *r);
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
