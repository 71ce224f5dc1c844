#include "control/terminal.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* xterm's names: alternate screen, cursor, clear. Every terminal of this century knows them. */
#define ENTER "\033[?1049h\033[?25l\033[2J"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME  "\033[H"
#define REST  "\033[J" /* clear to the end of the screen */
#define EOL   "\033[K"

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

static bool put(int fd, const char *s, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, s, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        s += n;
        len -= (size_t)n;
    }
    return true;
}

static int take(struct terminal *t)
{
    struct termios raw = t->saved;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(t->in, TCSAFLUSH, &raw))
        return -errno;
    put(t->out, ENTER, strlen(ENTER));
    return 0;
}

static void give_back(const struct terminal *t)
{
    put(t->out, LEAVE, strlen(LEAVE));
    tcsetattr(t->in, TCSAFLUSH, &t->saved);
}

int terminal_open(struct terminal *t, int in, int out)
{
    sigset_t set;

    memset(t, 0, sizeof(*t));
    t->in = in;
    t->out = out;
    t->signals = -1;
    if (!isatty(in) || !isatty(out))
        return -ENOTTY;
    if (tcgetattr(in, &t->saved))
        return -errno;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        sigaddset(&set, caught[i]);
    sigprocmask(SIG_BLOCK, &set, &t->saved_mask);
    t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int e = t->signals < 0 ? -errno : take(t);
    if (!e)
        return 0;
    if (t->signals >= 0)
        close(t->signals);
    t->signals = -1;
    sigprocmask(SIG_SETMASK, &t->saved_mask, NULL);
    return e;
}

void terminal_close(struct terminal *t)
{
    if (t->signals < 0)
        return;
    give_back(t);
    close(t->signals);
    t->signals = -1;
    sigprocmask(SIG_SETMASK, &t->saved_mask, NULL);
}

static enum terminal_event on_signal(struct terminal *t, int *ret_key)
{
    struct signalfd_siginfo info;

    if (read(t->signals, &info, sizeof(info)) != sizeof(info))
        return TERMINAL_TIMEOUT;
    if (info.ssi_signo == SIGWINCH)
        return TERMINAL_RESIZED;
    if (info.ssi_signo == SIGTSTP) {
        give_back(t);
        raise(SIGSTOP);
        take(t);
        return TERMINAL_RESIZED;
    }
    *ret_key = (int)info.ssi_signo;
    return TERMINAL_SIGNAL;
}

static enum terminal_event on_input(const struct terminal *t, int *ret_key)
{
    unsigned char c;
    ssize_t n = read(t->in, &c, 1);

    if (n != 1)
        return n < 0 && (errno == EINTR || errno == EAGAIN) ? TERMINAL_TIMEOUT : TERMINAL_GONE;
    *ret_key = c;
    return TERMINAL_KEY;
}

enum terminal_event terminal_wait(struct terminal *t, int fd, int timeout_ms, int *ret_key)
{
    struct pollfd p[] = {{.fd = t->signals, .events = POLLIN},
                         {.fd = t->in, .events = POLLIN},
                         {.fd = fd, .events = POLLIN}};

    if (poll(p, 3, timeout_ms) <= 0)
        return TERMINAL_TIMEOUT;
    if (p[0].revents)
        return on_signal(t, ret_key);
    if (p[1].revents)
        return on_input(t, ret_key);
    return TERMINAL_READABLE;
}

void terminal_size(const struct terminal *t, unsigned *ret_cols, unsigned *ret_rows)
{
    struct winsize w = {0};

    ioctl(t->out, TIOCGWINSZ, &w);
    *ret_cols = w.ws_col ? w.ws_col : 80;
    *ret_rows = w.ws_row ? w.ws_row : 24;
}

/* In one write, or it would flicker. A newline after the last row would scroll. */
static void write_screen(FILE *f, const char *text, size_t len)
{
    const char *end = text + len;

    fputs(HOME, f);
    while (text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t n = nl ? (size_t)(nl - text) : (size_t)(end - text);
        fwrite(text, 1, n, f);
        text += n + 1;
        fputs(text < end ? EOL "\r\n" : EOL, f);
    }
    fputs(REST, f);
}

bool terminal_show(const struct terminal *t, const char *text, size_t len)
{
    char *screen = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&screen, &size);

    if (!f)
        return true; /* the next one may find memory */
    write_screen(f, text, len);
    bool good = fclose(f) != 0 || put(t->out, screen, size);
    free(screen);
    return good;
}

void terminal_human(double v, char *buf, size_t size)
{
    static const char units[] = " KMGTPE";
    unsigned u = 0;

    if (!(v >= 0))
        v = 0;
    for (; v >= 999.5 && u < 6; u++)
        v /= 1000;
    if (u == 0 && (v >= 9.95 || v == floor(v)))
        snprintf(buf, size, "%.0f", v);
    else if (u == 0)
        snprintf(buf, size, "%.1f", v);
    else
        snprintf(buf, size, "%.*f%c", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
}

void terminal_clean(const char *s, char *buf, size_t size)
{
    size_t n = 0;

    for (; *s && n + 1 < size; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c & 0xc0) == 0x80) /* the rest of a character that is a '?' already */
            continue;
        buf[n++] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    buf[n] = '\0';
}
