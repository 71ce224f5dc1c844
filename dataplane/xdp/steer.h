/* The XDP program that gives a port its own addresses' traffic and leaves the rest to the kernel:
 * loading, attaching, and its counters.
 *
 * May use: runtime, config/snapshot.h, libbpf. Used by: port.
 *
 * The program is attached by a BPF link, so the kernel detaches it when the process ends, however
 * it ends. Actions return 0 or -errno.
 *
 * Thread: the set-up thread, but steer_counters(): any.
 */
#ifndef MILLRACE_DATAPLANE_XDP_STEER_H
#define MILLRACE_DATAPLANE_XDP_STEER_H

#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/xdp/steer_maps.h"

struct steer;

/* Loads the program with these addresses as ours; attaches nothing. -E2BIG: too many. */
int steer_new(const struct config_addr *addrs, size_t naddrs, struct steer **ret_steer);

/* Detaches, too. */
void steer_free(struct steer *s);

/* Frames of ours from `queue` go to this AF_XDP socket, which must be bound to it. */
int steer_set_socket(struct steer *s, uint32_t queue, int fd);

/* Puts the program on the interface, in the driver if it can. -EBUSY: another is there. */
int steer_attach(struct steer *s, unsigned ifindex);
void steer_detach(struct steer *s);

/* By enum steer_verdict, summed over CPUs; 0 on failure to read. */
void steer_counters(const struct steer *s, uint64_t ret_counts[STEER_VERDICTS]);

/* File descriptor of the loaded program (for BPF_PROG_TEST_RUN). */
int steer_prog_fd(const struct steer *s);

/* The compiled object, which DPDK's driver wants as a file: its maps are empty, so all frames pass.
 * A descriptor of an anonymous file that the caller closes, or -errno. */
int steer_object_fd(void);

/* Takes a program of ours that a crash left behind off the interface. -EBUSY with the name of the
 * other program in ret_name when one that isn't ours is there. */
int steer_remove_leftover(unsigned ifindex, char ret_name[16]);

#endif
