/* Who is asking, where proxies that we trust stand between us.
 *
 * May use: config/snapshot.h, http. Used by: proxy. Thread: any.
 */
#ifndef MILLRACE_DATAPLANE_ROUTE_FORWARDED_H
#define MILLRACE_DATAPLANE_ROUTE_FORWARDED_H

#include "config/snapshot.h"
#include "dataplane/http/message.h"

/* Each of them has put the address of who asked it at the end of X-Forwarded-For. So from the end
 * on, as far as those who say it are trusted: the first address that isn't one of `proxies` (sorted
 * and disjoint), or the last that is one, where there is no further address or something else.
 * Addresses in network order; `peer`, who is connected to us, if it isn't one of them. */
uint32_t forwarded_client(const struct config_range *proxies, size_t n, uint32_t peer,
                          const struct http_head *head);

#endif
