/* Names of functions, static ones included, from an ELF file's symbol table.
 *
 * Thread: any; blocks on files. For the command, not for the daemon.
 */
#ifndef MILLRACE_CONTROL_SYMBOLS_H
#define MILLRACE_CONTROL_SYMBOLS_H

#include <stdint.h>

struct symbols;

/* Reads `path`, which must have that build ID (empty: whichever); when it has been stripped, what
 * Debian's -dbgsym packages put under /usr/lib/debug/.build-id. 0, or -errno: -ENOENT no such file
 * or no symbols in it, -ESTALE another build. */
int symbols_open(const char *path, const char *build_id, struct symbols **ret_symbols);
void symbols_close(struct symbols *s); /* NULL is fine */

/* The function that `offset` lies in, NULL when in none; *ret_into: how far. The compiler's
 * suffixes (.part.0, .lto_priv.0) are left out. Lives until the next call. */
const char *symbols_find(struct symbols *s, uint64_t offset, uint64_t *ret_into);

#endif
