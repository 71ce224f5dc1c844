/* One request on the admin socket: a verb and its arguments, checked against the table of verbs.
 *
 *     {"verb": "reload", "if_version": 7, "overrides": "drop"}
 *
 * Thread: any.
 */
#ifndef MILLRACE_CONTROL_ADMIN_CALL_H
#define MILLRACE_CONTROL_ADMIN_CALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum admin_verb {
    ADMIN_STATUS,
    ADMIN_RELOAD,
    ADMIN_ROLLBACK,
    ADMIN_UPSTREAM,
    ADMIN_CONFIG,
    ADMIN_DRAIN,
    ADMIN_STALLS,
    ADMIN_CONNS,
    ADMIN_PING,
#ifdef MILLRACE_DEBUG_VERBS
    ADMIN_MISBEHAVE, /* debug builds: a task that holds its core up (dataplane/misbehave.h) */
#endif
    ADMIN_VERBS
};

struct admin_call {
    enum admin_verb verb;
    json_t *args; /* the whole object */
};

/* Reads one request, without its newline. 0, or -EINVAL with a line in err that says what is wrong.
 * The call is emptied by admin_call_fini(). */
int admin_parse(const char *line, size_t len, struct admin_call *ret, char *err, size_t err_len);
void admin_call_fini(struct admin_call *c);

/* Arguments of the verb's table; NULL or false: not given. */
const char *admin_text(const struct admin_call *c, const char *name);
bool admin_number(const struct admin_call *c, const char *name, uint64_t *ret);

#endif
