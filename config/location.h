/* Where a redirect leads, as far as its template tells. The template begins with "http://",
 * "https://", "/" or ${path}, as config_location has it. */
#ifndef MILLRACE_CONFIG_LOCATION_H
#define MILLRACE_CONFIG_LOCATION_H

#include <stdbool.h>
#include "config/snapshot.h"

/* Is it settled which host it leads to: by text, or by the host that was asked for? Else a client
 * finds a path that makes it lead anywhere, as "https://${path}" does. */
bool location_has_host(const struct config_template *t);

/* Do all that follow the redirect of `r`, one of `http`, come to `r` again? */
bool location_leads_back(const struct config_http *http, const struct config_route *r);

#endif
