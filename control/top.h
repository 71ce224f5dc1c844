/* `millrace top`: what two looks at an instance's status say of the time between them, and how that
 * is drawn. No I/O, no clock.
 *
 * A frame is JSON (`millrace top --json`): rates are per second of the instance's own time, and
 * `busy`, percentiles and worst are of the interval. Without a look before, all is since the start.
 */
#ifndef MILLRACE_CONTROL_TOP_H
#define MILLRACE_CONTROL_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* A new reference; NULL: no memory. `before` may be NULL, or of another process. What a status
 * lacks (one of another version) is null in the frame. */
json_t *top_frame(const json_t *before, const json_t *now);

struct top_screen {
    unsigned cols, rows; /* 0: no bound */
    bool ansi;           /* bold, inverse and colours */
    const char *note;    /* for the last line; NULL: no such line */
};

/* At most `rows` lines of at most `cols` columns. What doesn't fit is counted, the busiest stay. */
void top_draw(FILE *f, const json_t *frame, const struct top_screen *s);

#endif
