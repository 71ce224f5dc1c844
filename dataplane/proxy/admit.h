/* The states of an exchange before it has a connection (admit.c), and how one waits. Private to
 * exchange.c and admit.c. */
#ifndef MILLRACE_DATAPLANE_PROXY_ADMIT_H
#define MILLRACE_DATAPLANE_PROXY_ADMIT_H

#include "dataplane/proxy/exchange.h"

enum step exchange_admit(struct exchange *x);
enum step exchange_pick(struct exchange *x);
enum step exchange_permit(struct exchange *x);
enum step exchange_dial(struct exchange *x);
enum step exchange_conn_permit(struct exchange *x);
enum step exchange_acquire(struct exchange *x);

/* exchange.c: arms the timer for the nearest deadline. */
enum step exchange_wait(struct exchange *x);

#endif
