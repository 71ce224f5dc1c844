/* The terminal of `millrace top`: a full screen of plain ANSI, keys, resizes and signals in one
 * wait.
 *
 * While it is open the signals that end, stop or resize a program are taken as events instead; at
 * terminal_close() the screen, the cursor, the line discipline and the signal mask are what they
 * were before. Nothing global: no handlers.
 *
 * Thread: the command's only one.
 */
#ifndef MILLRACE_CONTROL_TERMINAL_H
#define MILLRACE_CONTROL_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

struct terminal {
    int in, out, signals;
    struct termios saved;
    sigset_t saved_mask;
};

/* 0, or -errno with nothing changed (-ENOTTY: not both are a terminal). */
int terminal_open(struct terminal *t, int in, int out);
/* Idempotent. */
void terminal_close(struct terminal *t);

enum terminal_event {
    TERMINAL_TIMEOUT,
    TERMINAL_READABLE, /* `fd` is */
    TERMINAL_KEY,      /* *ret_key */
    TERMINAL_RESIZED,  /* or it was stopped and goes on: draw anew */
    TERMINAL_SIGNAL,   /* *ret_key: one that asks us to end */
    TERMINAL_GONE,     /* no more input, or the terminal has hung up */
};

/* Waits for a key, a signal, `fd` (-1: none), or `timeout_ms` (-1: for ever). SIGTSTP is handled
 * inside: the terminal is given back, and taken again when we go on. */
enum terminal_event terminal_wait(struct terminal *t, int fd, int timeout_ms, int *ret_key);

/* The size now; 80 by 24 where it isn't known. */
void terminal_size(const struct terminal *t, unsigned *ret_cols, unsigned *ret_rows);

/* Shows a text of whole lines from the top left corner, and nothing else. False: the terminal is
 * gone. */
bool terminal_show(const struct terminal *t, const char *text, size_t len);

/* A number in at most five columns: "1234", "12.3K", "1.2M". */
void terminal_human(double v, char *buf, size_t size);

/* Text from elsewhere without what could steer a terminal: bytes that aren't printable ASCII
 * become '?'. */
void terminal_clean(const char *s, char *buf, size_t size);

#endif
