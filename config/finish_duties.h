/* What follows from the keys of the edge's own duties; a part of config_finish(). */
#ifndef MILLRACE_CONFIG_FINISH_DUTIES_H
#define MILLRACE_CONFIG_FINISH_DUTIES_H

#include <stdbool.h>
#include "config/snapshot.h"

/* In the snapshot's arena. False: out of memory. */
bool finish_duties(struct snapshot *s);

#endif
