/* The cores' stall rings as JSON, for `millrace stalls`. Frames are told as module and offset: the
 * names are the asker's to find (symbols.h), who has the same files and nothing to delay.
 *
 *   { "pid", "modules": [ { "path", "build_id" } ],
 *     "cores": [ { "core", "recorded", "stalls": [ newest first
 *       { "unix_ns", "ago_ns", "took_ns", "running", "kind", "label" or null,
 *         "frames": [ { "module": index or null, "offset" } innermost first ] } ] } ] }
 *
 * Thread: control's. Reads the rings themselves, so that a core that is stuck right now shows too.
 */
#ifndef MILLRACE_CONTROL_STALLS_H
#define MILLRACE_CONTROL_STALLS_H

#include <jansson.h>
#include <stddef.h>

#include "control/cores.h"
#include "runtime/stall.h"

/* A new reference, or NULL: no memory. `wall_offset` as clock_wall_offset(). */
json_t *stalls_to_json(const struct cores *cores, uint64_t now_ns, int64_t wall_offset);

/* "millrace+0x1234 libc.so.6+0x5678 ...": a record's call chain in one line, cut to `len`. */
void stalls_frames_line(const struct stall_record *r, char *ret_line, size_t len);

#endif
