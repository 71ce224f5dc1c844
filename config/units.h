/* Values whose unit is part of the text, and IPv4 addresses: to and from text.
 *
 * Parsing: 0, -EINVAL (another thing was expected), -ERANGE (right form, doesn't fit),
 * -EAFNOSUPPORT (an IPv6 address). The text needs no NUL. Formatting writes what parses to the
 * same value; an address always fits UNITS_TEXT_MAX.
 */
#ifndef MILLRACE_CONFIG_UNITS_H
#define MILLRACE_CONFIG_UNITS_H

#include <stddef.h>
#include <stdint.h>
#include "config/snapshot.h"

#define UNITS_TEXT_MAX 40

int units_parse_integer(const char *text, size_t len, uint64_t *ret);  /* "0", "17" */
int units_parse_duration(const char *text, size_t len, uint64_t *ret); /* "200ms": ns */
int units_parse_size(const char *text, size_t len, uint64_t *ret);     /* "64KiB": bytes */
int units_parse_percent(const char *text, size_t len, uint64_t *ret);  /* "20%": 20 */

void units_format_integer(uint64_t value, char text[UNITS_TEXT_MAX]);
void units_format_duration(uint64_t ns, char text[UNITS_TEXT_MAX]);
void units_format_size(uint64_t bytes, char text[UNITS_TEXT_MAX]);
void units_format_percent(uint64_t percent, char text[UNITS_TEXT_MAX]);

int units_parse_ip(const char *text, size_t len, uint32_t *ret);
int units_parse_cidr(const char *text, size_t len, struct config_addr *ret);     /* 10.0.0.1/24 */
int units_parse_endpoint(const char *text, size_t len, struct config_addr *ret); /* 10.0.0.1:80 */
int units_parse_listen(const char *text, size_t len, struct config_addr *ret);   /* or *:80 */

void units_format_ip(uint32_t addr, char text[UNITS_TEXT_MAX]);
void units_format_cidr(const struct config_addr *a, char text[UNITS_TEXT_MAX]);
void units_format_listen(const struct config_addr *a, char text[UNITS_TEXT_MAX]);

#endif
