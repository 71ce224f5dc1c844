/* How log lines look: pure functions from records to bytes. No I/O, no state but a time cache.
 *
 * Every line ends in one newline and holds no other; bytes of the outside world are escaped, so a
 * hostile target or host can't forge a line, a field or a terminal sequence.
 */
#ifndef MILLRACE_CONTROL_LOG_FORMAT_H
#define MILLRACE_CONTROL_LOG_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "config/snapshot.h"
#include "dataplane/proxy/access_log.h"

#define LOG_SOURCE_SIZE 24
#define LOG_TEXT_SIZE   968
/* The longest line of either kind with everything escaped, newline and NUL included. */
#define LOG_LINE_MAX (6 * (LOG_TEXT_SIZE + LOG_SOURCE_SIZE) + 4096)

/* The broken-down second that was formatted last; zero before first use. */
struct log_clock {
    time_t second;
    struct tm tm;
};

struct log_record {
    uint64_t wall_ns;
    enum config_log_level level;
    char source[LOG_SOURCE_SIZE];
    char text[LOG_TEXT_SIZE]; /* no newline needed */
};

const char *log_level_name(enum config_log_level l);

/* Both write a whole line and a NUL to buf, which has LOG_LINE_MAX bytes; the line's length. */
size_t log_format_record(char *buf, const struct log_record *r, enum config_log_format f,
                         struct log_clock *clock);
size_t log_format_access(char *buf, const struct access_record *r, enum config_log_format f,
                         struct log_clock *clock);

#endif
