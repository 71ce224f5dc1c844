#include "control/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/log_format.h"

#define LOG_QUEUE     512 /* power of two */
#define SINK_SIZE     65536
#define BUSY_POLL_MS  5 /* access rings can't wake us: how often they are looked at */
#define IDLE_POLL_MS  50
#define IDLE_AFTER    20 /* empty passes */
#define LAST_WORDS_MS 1000

_Static_assert(SINK_SIZE > 2 * LOG_LINE_MAX, "a sink holds more than one line");

/* A slot of the bounded multi-producer queue (Vyukov): seq == position when it is free for the
 * producer of that position, position + 1 when it is filled. */
struct slot {
    atomic_size_t seq;
    struct log_record rec;
};

/* Where bytes go, gathered to few writes. Log thread only. */
struct sink {
    int fd;
    size_t len, records;
    size_t chunk; /* a pipe or terminal gets no more at once than it takes without blocking */
    char buf[SINK_SIZE];
};

struct log {
    struct slot slots[LOG_QUEUE];
    _Alignas(64) atomic_size_t head; /* producers */
    _Alignas(64) size_t tail;        /* log thread */
    atomic_bool poked, asleep;       /* log_wake() sets one and takes the other: none is missed */
    atomic_bool stopping;
    atomic_bool reopen;
    atomic_int level;
    atomic_uint_fast64_t lines, lines_dropped, records, records_lost;
    int wake_fd;
    pthread_t thread;

    pthread_mutex_t lock; /* the block below; held while formatting, never while writing */
    pthread_cond_t idle;
    struct access_ring *rings[CONFIG_MAX_CORES];
    unsigned nrings;
    bool rings_leaving;
    enum config_log_format format;
    char access_path[256]; /* empty: to the lines' descriptor */
    int access_fd_new;     /* -1: no change waits */
    bool access_to_lines;  /* a change to the lines' descriptor waits */
    uint64_t flush_wanted, flush_done;

    struct sink out, access; /* access.fd -1: records go to out */
    struct log_clock clock;
    bool has_rings;    /* as of the last pass */
    uint64_t deadline; /* once stopping */
};

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void sink_open(struct sink *s, int fd)
{
    struct stat st;

    s->fd = fd;
    s->len = s->records = 0;
    s->chunk = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? SINK_SIZE : 4096;
}

static bool sink_has_room(const struct sink *s)
{
    return s->len + LOG_LINE_MAX <= SINK_SIZE;
}

/* False when the descriptor won't take more: an error, or time is up. */
static bool sink_wait(struct log *l, struct sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    for (;;) {
        int r = poll(&p, 1, 100);
        if (r > 0)
            return (p.revents & POLLOUT) != 0;
        if (r < 0 && errno != EINTR)
            return false;
        if (atomic_load(&l->stopping) && clock_ns(CLOCK_MONOTONIC) > l->deadline)
            return false;
    }
}

static void sink_write(struct log *l, struct sink *s)
{
    size_t done = 0;

    while (done < s->len) {
        size_t n = s->len - done < s->chunk ? s->len - done : s->chunk;
        if (!sink_wait(l, s))
            break;
        ssize_t w = write(s->fd, s->buf + done, n);
        if (w < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (w <= 0)
            break;
        done += (size_t)w;
    }
    if (done < s->len)
        atomic_fetch_add_explicit(&l->records_lost, s->records, memory_order_relaxed);
    s->len = s->records = 0;
}

static bool queue_push(struct log *l, const struct log_record *r)
{
    size_t pos = atomic_load_explicit(&l->head, memory_order_relaxed);

    for (;;) {
        struct slot *s = &l->slots[pos % LOG_QUEUE];
        size_t seq = atomic_load_explicit(&s->seq, memory_order_acquire); /* pairs with the pop */
        if (seq == pos) {
            if (!atomic_compare_exchange_weak_explicit(&l->head, &pos, pos + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
                continue;
            s->rec = *r;
            atomic_store_explicit(&s->seq, pos + 1, memory_order_release);
            return true;
        }
        if (seq < pos)
            return false;
        pos = atomic_load_explicit(&l->head, memory_order_relaxed);
    }
}

/* NULL when empty; the record is valid until queue_pop(). */
static const struct log_record *queue_peek(struct log *l)
{
    struct slot *s = &l->slots[l->tail % LOG_QUEUE];

    if (atomic_load_explicit(&s->seq, memory_order_acquire) != l->tail + 1)
        return NULL;
    return &s->rec;
}

static void queue_pop(struct log *l)
{
    struct slot *s = &l->slots[l->tail % LOG_QUEUE];

    atomic_store_explicit(&s->seq, l->tail + LOG_QUEUE, memory_order_release);
    l->tail++;
}

static void log_wake(struct log *l)
{
    uint64_t one = 1;

    atomic_store(&l->poked, true);
    if (atomic_exchange(&l->asleep, false)) {
        ssize_t n = write(l->wake_fd, &one, sizeof(one));
        (void)n; /* a full counter wakes as well */
    }
}

static void log_push(struct log *l, struct log_record *r, const char *text, size_t len)
{
    if (len >= sizeof(r->text))
        len = sizeof(r->text) - 1;
    memcpy(r->text, text, len);
    r->text[len] = '\0';
    if (queue_push(l, r))
        atomic_fetch_add_explicit(&l->lines, 1, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(&l->lines_dropped, 1, memory_order_relaxed);
}

void log_line(struct log *l, enum config_log_level level, const char *source, const char *fmt, ...)
{
    struct log_record r;
    char text[8 * LOG_TEXT_SIZE];
    va_list ap;

    if ((int)level > atomic_load_explicit(&l->level, memory_order_relaxed))
        return;
    r.wall_ns = clock_ns(CLOCK_REALTIME);
    r.level = level;
    snprintf(r.source, sizeof(r.source), "%s", source);
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);

    for (char *p = text, *end; *p; p = end + (*end == '\n')) {
        end = strchrnul(p, '\n');
        if (end > p)
            log_push(l, &r, p, (size_t)(end - p));
    }
    log_wake(l);
}

static bool drain_lines(struct log *l)
{
    const struct log_record *r;
    bool any = false;

    while (sink_has_room(&l->out) && (r = queue_peek(l))) {
        l->out.len += log_format_record(l->out.buf + l->out.len, r, l->format, &l->clock);
        queue_pop(l);
        any = true;
    }
    return any;
}

/* Round robin in batches, so that one busy core doesn't fill the others' rings. */
static bool drain_access(struct log *l)
{
    struct sink *s = l->access.fd >= 0 ? &l->access : &l->out;
    struct access_record r;
    bool any = false, more = true;

    while (more) {
        more = false;
        for (unsigned i = 0; i < l->nrings; i++) {
            for (unsigned n = 0; n < 32 && sink_has_room(s); n++) {
                if (!access_ring_take(l->rings[i], &r))
                    break;
                s->len += log_format_access(s->buf + s->len, &r, l->format, &l->clock);
                s->records++;
                more = any = true;
            }
        }
        more = more && sink_has_room(s);
    }
    return any;
}

static void adopt_changes(struct log *l)
{
    if (l->access_fd_new < 0 && !l->access_to_lines)
        return;
    if (l->access.fd >= 0)
        close(l->access.fd);
    l->access.fd = -1;
    if (!l->access_to_lines)
        sink_open(&l->access, l->access_fd_new);
    l->access_fd_new = -1;
    l->access_to_lines = false;
}

static int access_open(const char *path, int *ret_fd)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* Keeps the old file when the new one can't be opened: better there than nowhere. */
static void do_reopen(struct log *l)
{
    char path[sizeof(l->access_path)];
    int fd = -1, e = 0;

    pthread_mutex_lock(&l->lock);
    memcpy(path, l->access_path, sizeof(path));
    pthread_mutex_unlock(&l->lock);
    if (!path[0])
        return;
    e = access_open(path, &fd);
    if (e) {
        log_error(l, "access log: can't reopen %s: %s; still writing to the old file", path,
                  strerror(-e));
        return;
    }
    if (l->access.fd >= 0)
        close(l->access.fd);
    sink_open(&l->access, fd);
    log_info(l, "access log: reopened %s", path);
}

static void log_sleep(struct log *l, unsigned empty)
{
    struct pollfd p = {.fd = l->wake_fd, .events = POLLIN};
    int ms = !l->has_rings ? -1 : empty < IDLE_AFTER ? BUSY_POLL_MS : IDLE_POLL_MS;
    uint64_t n;

    atomic_store(&l->asleep, true);
    if (!atomic_exchange(&l->poked, false))
        (void)poll(&p, 1, ms);
    atomic_store(&l->asleep, false);
    if (read(l->wake_fd, &n, sizeof(n)) < 0) {
        /* Nothing was posted. */
    }
}

/* One pass; true if anything was written. */
static bool log_pass(struct log *l)
{
    bool any;

    if (atomic_exchange(&l->reopen, false))
        do_reopen(l);
    pthread_mutex_lock(&l->lock);
    uint64_t flush = l->flush_wanted;
    adopt_changes(l);
    any = drain_lines(l);
    bool access = drain_access(l);
    atomic_fetch_add_explicit(&l->records, l->out.records + l->access.records,
                              memory_order_relaxed);
    pthread_mutex_unlock(&l->lock);

    sink_write(l, &l->out);
    if (l->access.fd >= 0)
        sink_write(l, &l->access);

    pthread_mutex_lock(&l->lock);
    if (!access && l->rings_leaving) {
        l->nrings = 0;
        l->rings_leaving = false;
    }
    l->has_rings = l->nrings > 0;
    if (!any && !access)
        l->flush_done = flush;
    pthread_cond_broadcast(&l->idle);
    pthread_mutex_unlock(&l->lock);
    return any || access;
}

static void *log_main(void *arg)
{
    struct log *l = arg;
    unsigned empty = 0;

    pthread_setname_np(pthread_self(), "log");
    for (;;) {
        bool stopping = atomic_load(&l->stopping);
        if (log_pass(l)) {
            empty = 0;
            if (!stopping)
                continue;
        }
        if (stopping && (!queue_peek(l) || clock_ns(CLOCK_MONOTONIC) > l->deadline))
            return NULL;
        if (!stopping)
            log_sleep(l, empty++);
    }
}

int log_new(int fd, struct log **ret_log)
{
    struct log *l = aligned_alloc(64, (sizeof(*l) + 63) & ~(size_t)63);
    pthread_condattr_t ca;

    if (!l)
        return -ENOMEM;
    memset(l, 0, sizeof(*l));
    for (size_t i = 0; i < LOG_QUEUE; i++)
        atomic_init(&l->slots[i].seq, i);
    atomic_init(&l->level, CONFIG_LOG_INFO);
    l->access.fd = l->access_fd_new = -1;
    sink_open(&l->out, fd);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&ca);
    pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
    pthread_cond_init(&l->idle, &ca);
    pthread_condattr_destroy(&ca);

    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int e = l->wake_fd < 0 ? errno : pthread_create(&l->thread, NULL, log_main, l);
    if (e) {
        if (l->wake_fd >= 0)
            close(l->wake_fd);
        free(l);
        return -e;
    }
    *ret_log = l;
    return 0;
}

int log_configure(struct log *l, const struct config_log *c)
{
    bool to_lines = !c->access || strcmp(c->access, "stderr") == 0;
    int fd = -1, e = 0;

    atomic_store_explicit(&l->level, (int)c->level, memory_order_relaxed);
    pthread_mutex_lock(&l->lock);
    bool same = strcmp(l->access_path, to_lines ? "" : c->access) == 0;
    pthread_mutex_unlock(&l->lock);
    if (!same && !to_lines)
        e = strlen(c->access) < sizeof(l->access_path) ? access_open(c->access, &fd)
                                                       : -ENAMETOOLONG;

    pthread_mutex_lock(&l->lock);
    l->format = c->format;
    if (!same && !e) {
        if (l->access_fd_new >= 0)
            close(l->access_fd_new);
        l->access_fd_new = fd;
        l->access_to_lines = to_lines;
        snprintf(l->access_path, sizeof(l->access_path), "%s", to_lines ? "" : c->access);
    }
    pthread_mutex_unlock(&l->lock);
    log_wake(l);
    return e;
}

static void deadline_in(struct timespec *ts, unsigned ms)
{
    uint64_t at = clock_ns(CLOCK_MONOTONIC) + (uint64_t)ms * 1000000u;

    ts->tv_sec = (time_t)(at / 1000000000u);
    ts->tv_nsec = (long)(at % 1000000000u);
}

void log_set_access_rings(struct log *l, struct access_ring *const *rings, unsigned n)
{
    struct timespec until;

    deadline_in(&until, LAST_WORDS_MS);
    pthread_mutex_lock(&l->lock);
    if (n == 0 && l->nrings > 0) {
        l->rings_leaving = true;
        log_wake(l);
        while (l->rings_leaving && pthread_cond_timedwait(&l->idle, &l->lock, &until) == 0)
            ;
        l->rings_leaving = false;
    }
    if (n > CONFIG_MAX_CORES)
        n = CONFIG_MAX_CORES;
    for (unsigned i = 0; i < n; i++)
        l->rings[i] = rings[i];
    l->nrings = n;
    pthread_mutex_unlock(&l->lock);
    log_wake(l);
}

void log_flush(struct log *l, unsigned timeout_ms)
{
    struct timespec until;

    deadline_in(&until, timeout_ms);
    pthread_mutex_lock(&l->lock);
    uint64_t mine = ++l->flush_wanted;
    log_wake(l);
    while (l->flush_done < mine && pthread_cond_timedwait(&l->idle, &l->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&l->lock);
}

void log_reopen(struct log *l)
{
    atomic_store(&l->reopen, true);
    log_wake(l);
}

void log_free(struct log *l)
{
    if (!l)
        return;
    log_set_access_rings(l, NULL, 0);
    l->deadline = clock_ns(CLOCK_MONOTONIC) + LAST_WORDS_MS * 1000000ull;
    atomic_store(&l->stopping, true);
    log_wake(l);
    pthread_join(l->thread, NULL);
    if (l->access.fd >= 0)
        close(l->access.fd);
    if (l->access_fd_new >= 0)
        close(l->access_fd_new);
    close(l->wake_fd);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->idle);
    free(l);
}

void log_stats(struct log *l, struct log_stats *ret_stats)
{
    ret_stats->lines = atomic_load_explicit(&l->lines, memory_order_relaxed);
    ret_stats->lines_dropped = atomic_load_explicit(&l->lines_dropped, memory_order_relaxed);
    ret_stats->records = atomic_load_explicit(&l->records, memory_order_relaxed);
    ret_stats->records_lost = atomic_load_explicit(&l->records_lost, memory_order_relaxed);
}
