/* The printed memory budget: what each setting costs, and whether it fits this machine. */
#ifndef MILLRACE_CONTROL_BUDGETS_H
#define MILLRACE_CONTROL_BUDGETS_H

#include <stdint.h>
#include <stdio.h>

#include "config/snapshot.h"

/* A table for people. */
void budgets_print(const struct snapshot *s, FILE *f);

/* One line for the log, into buf. */
void budgets_line(const struct snapshot *s, char *buf, size_t size);

/* All of it, bytes. */
uint64_t budgets_total(const struct snapshot *s);

/* Bytes the kernel could give out now; 0: unknown. */
uint64_t budgets_available(void);

#endif
