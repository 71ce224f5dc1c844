/* Dates as HTTP writes them (RFC 9110 §5.6.7): IMF-fixdate, and the two obsolete forms that a
 * recipient has to understand, RFC 850's and asctime()'s.
 *
 * Pure. Thread: any.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_DATE_H
#define MILLRACE_DATAPLANE_HTTP_DATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds since 1970-01-01 00:00 UTC. A two-digit year is of 1970 to 2069. The day's name is looked
 * at for its form only. False: it isn't a date. */
bool http_date_parse(const char *text, size_t len, int64_t *ret_s);

#endif
