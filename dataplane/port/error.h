/* Filling struct port_error. */
#ifndef MILLRACE_DATAPLANE_PORT_ERROR_H
#define MILLRACE_DATAPLANE_PORT_ERROR_H

#include "dataplane/port/port.h"

/* Returns rc, so that a failure is one statement. */
int port_fail(struct port_error *ret_error, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
