/* A request's own deadline, in a header: how long the client will wait for the whole answer.
 *
 * Two notations: whole milliseconds, as proxies exchange them ("1500"), and that of gRPC over
 * HTTP/2 (PROTOCOL-HTTP2, Timeout: at most eight digits and one of H M S m u n, "1500m").
 *
 * Pure. Thread: any.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_DEADLINE_H
#define MILLRACE_DATAPLANE_HTTP_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_GRPC_TIMEOUT      "grpc-timeout"
#define HTTP_DEADLINE_TEXT_MAX 24

/* ns. False: it isn't one, and is to be ignored. Saturates. */
bool http_deadline_parse_ms(const char *text, size_t len, uint64_t *ret_ns);
bool http_deadline_parse_grpc(const char *text, size_t len, uint64_t *ret_ns);

/* Never more than `ns`; returns the length. */
size_t http_deadline_format_ms(uint64_t ns, char text[HTTP_DEADLINE_TEXT_MAX]);
size_t http_deadline_format_grpc(uint64_t ns, char text[HTTP_DEADLINE_TEXT_MAX]);

#endif
