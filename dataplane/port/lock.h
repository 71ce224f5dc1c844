/* Who owns a device: a lock file in /run/millrace, held by the process and gone with it, so that a
 * second instance is refused and a crash leaves nothing to clean up.
 *
 * Thread: set-up. */
#ifndef MILLRACE_DATAPLANE_PORT_LOCK_H
#define MILLRACE_DATAPLANE_PORT_LOCK_H

#include <sys/types.h>

struct device_lock;

/* Devices of the same name in different network namespaces don't collide. -EBUSY with the owner's
 * process number in ret_owner (0: unknown), or another -errno. */
int device_lock_get(const char *device, struct device_lock **ret_lock, pid_t *ret_owner);
void device_lock_put(struct device_lock *l);

#endif
