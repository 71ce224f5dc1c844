/* Control's contexts: one for each TLS configuration and contents of its files, shared by listeners
 * and kept through reloads that don't change them, so that sessions can be taken up again.
 *
 * Life of a context: made by prepare, used by cores from the snapshot that names it, let go of when
 * every core works by a newer snapshot that doesn't. Sessions hold references of their own.
 *
 * Thread: control's; blocks (files).
 */
#ifndef MILLRACE_DATAPLANE_TLS_REGISTRY_H
#define MILLRACE_DATAPLANE_TLS_REGISTRY_H

#include "config/snapshot.h"
#include "dataplane/tls/context.h"

struct tls_registry;

/* NULL: no memory. */
struct tls_registry *tls_registry_new(unsigned ncores);
void tls_registry_free(struct tls_registry *r);

/* Gives each TLS listener of `s`, whose version is set, its context; whether certificates are in
 * their time is not asked. Where the files are not in order, what they held when they last were
 * stays. 0; -EINVAL with what is wrong and in which listener, when there is nothing to stay;
 * -ENOMEM. Harmless if `s` is not published after all. */
int tls_registry_prepare(struct tls_registry *r, struct snapshot *s,
                         struct config_tls_fault *ret_fault, const char **ret_listener);

/* Lets go of what only versions below `acked` name: every core works by that one or a newer. */
void tls_registry_tidy(struct tls_registry *r, uint64_t acked);

/* Of the process's own ticket keys: a new one seals. */
int tls_registry_rotate(struct tls_registry *r);

#endif
