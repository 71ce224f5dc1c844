/* The log: lines of control and the libraries, and access records of the cores, written by a thread
 * of its own.
 *
 * Lines go through a bounded multi-producer queue; access records through each core's ring. What
 * does not fit is dropped and counted, never waited for; a slow terminal or disk slows nobody but
 * the log thread.
 *
 * Thread: any for log_line(); the rest is control's.
 */
#ifndef MILLRACE_CONTROL_LOG_H
#define MILLRACE_CONTROL_LOG_H

#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/proxy/access_log.h"

struct log;

/* Starts the thread; lines go to the descriptor `fd`, which stays the caller's. 0 or -errno. */
int log_new(int fd, struct log **ret_log);

/* Level and format now, and where access records go from now on: "stderr" (the descriptor of
 * log_new()) or a file, opened for append with mode 0640. -errno when the file can't be opened:
 * then the old place stays, the rest is applied. */
int log_configure(struct log *l, const struct config_log *c);

/* Writes what is queued, for at most a second, and ends the thread. NULL is fine. */
void log_free(struct log *l);

/* Any thread. Text with newlines becomes several lines. Cut at LOG_TEXT_SIZE. */
__attribute__((format(printf, 4, 5))) void log_line(struct log *l, enum config_log_level level,
                                                    const char *source, const char *fmt, ...);

#define log_error(l, ...) log_line(l, CONFIG_LOG_ERROR, "control", __VA_ARGS__)
#define log_warn(l, ...)  log_line(l, CONFIG_LOG_WARN, "control", __VA_ARGS__)
#define log_info(l, ...)  log_line(l, CONFIG_LOG_INFO, "control", __VA_ARGS__)
#define log_debug(l, ...) log_line(l, CONFIG_LOG_DEBUG, "control", __VA_ARGS__)

/* The rings to drain; n 0 takes them all away: what was committed before is formatted first, and
 * none is touched after the return. The array is copied. */
void log_set_access_rings(struct log *l, struct access_ring *const *rings, unsigned n);

/* The access log's file is opened anew by its path (after a rotation). */
void log_reopen(struct log *l);

/* Waits until everything queued so far has been written, at most `timeout_ms`. */
void log_flush(struct log *l, unsigned timeout_ms);

struct log_stats {
    uint64_t lines, lines_dropped;  /* queue full */
    uint64_t records, records_lost; /* lost: the file or pipe took them not */
};
void log_stats(struct log *l, struct log_stats *ret_stats);

#endif
