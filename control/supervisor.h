/* `millrace run`: starts everything in order, keeps it going, ends it in order. */
#ifndef MILLRACE_CONTROL_SUPERVISOR_H
#define MILLRACE_CONTROL_SUPERVISOR_H

struct supervisor_opts {
    const char *config;
    const char *socket; /* instead of the config's; NULL: the config's */
};

/* Returns the exit status of the process: 0 after an ordered end, 1 otherwise. */
int supervisor_run(const struct supervisor_opts *o);

#endif
