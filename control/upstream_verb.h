/* `millrace upstream …`: from words to overrides. */
#ifndef MILLRACE_CONTROL_UPSTREAM_VERB_H
#define MILLRACE_CONTROL_UPSTREAM_VERB_H

#include "config/overrides.h"
#include "config/snapshot.h"
#include "control/admin_call.h"

/* What a call of ADMIN_UPSTREAM means for `base` with these overrides: paths and values, NULL for
 * one that is to go. 0 with a list for config_overrides_fini(), or -EINVAL with a line in err, or
 * -ENOMEM. */
int upstream_verb_changes(const struct admin_call *call, const struct snapshot *base,
                          const struct config_overrides *overrides,
                          struct config_overrides *ret_changes, char *err, size_t err_len);

#endif
