/* The files that this process runs the code of: turns an address into (file, offset), which means
 * the same to another process, to addr2line, and after this one has gone.
 *
 * Thread: any; each call looks anew.
 */
#ifndef MILLRACE_CONTROL_MODULES_H
#define MILLRACE_CONTROL_MODULES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define MODULE_BUILD_ID 64 /* letters; real ones have 40 */

struct module {
    char path[PATH_MAX];
    char build_id[MODULE_BUILD_ID + 1]; /* in hexadecimal; empty: it has none */
};

/* The module that `address` lies in, and where (as its ELF file counts). False: in none. */
bool module_of_address(uintptr_t address, struct module *ret_module, uint64_t *ret_offset);

#endif
