#include "dataplane/port/error.h"

#include <stdarg.h>
#include <stdio.h>

int port_fail(struct port_error *ret_error, int rc, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(ret_error->text, sizeof(ret_error->text), format, ap);
    va_end(ap);
    return rc;
}
