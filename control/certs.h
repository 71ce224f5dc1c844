/* Certificates and the other files of TLS listeners: looked into when a configuration is read,
 * watched while it runs.
 *
 * Thread: control's; reading blocks.
 */
#ifndef MILLRACE_CONTROL_CERTS_H
#define MILLRACE_CONTROL_CERTS_H

#include <uv.h>

#include "config/load.h"
#include "control/log.h"
#include "control/process_info.h"

/* For struct config_host. A certificate outside its time is a fault, unless the process starts: it
 * must come up after a power cut at night, and says so in the log (certs_warn()). */
const struct config_tls_checker *certs_checker(bool at_start);

/* Those of a published configuration, malloced; their texts are its own. NULL: none, or no memory.
 */
struct process_cert *certs_list(const struct snapshot *s, size_t *ret_n);

/* Logs which of them have expired, or soon will have. */
void certs_warn(struct log *log, const struct process_cert *list, size_t n);

struct certs;

/* `changed` is called some moments after a file that a TLS listener of the watched configuration
 * names has changed. NULL: no memory. */
struct certs *certs_new(uv_loop_t *loop, void (*changed)(void *ctx), void *ctx);
/* These files from now on. What can't be watched is logged, and found at the next reload. */
void certs_watch(struct certs *c, struct log *log, const struct snapshot *s);
/* Closes its handles; the memory goes when the loop has run. */
void certs_free(struct certs *c);

#endif
