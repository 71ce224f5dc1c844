/* Futures on strings, and a task to poll one: for tests of what drives futures.
 *
 * A puppet is pending until puppet_finish(), which wakes the task of its last poll. It writes a
 * transcript: its name (a lower-case letter) for each poll, in upper case when that poll was ready,
 * and `!` and its name when it was dropped before it was ready.
 */
#ifndef MILLRACE_TESTS_KIT_PUPPET_H
#define MILLRACE_TESTS_KIT_PUPPET_H

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/future.h"
#include "runtime/sched.h"

struct transcript {
    char text[512];
    size_t len;
};

static inline void transcript_add(struct transcript *s, const char *what)
{
    size_t n = strlen(what);
    assert_true(s->len + n < sizeof(s->text));
    memcpy(s->text + s->len, what, n + 1);
    s->len += n;
}

/* And starts it anew. */
static inline void assert_transcript(struct transcript *s, const char *want)
{
    assert_string_equal(s->text, want);
    s->text[0] = 0;
    s->len = 0;
}

struct puppet {
    struct future f;
    struct transcript *transcript; /* may be NULL */
    char name;
    bool finishes; /* the next poll is ready ... */
    int result;    /* ... with this */
    struct task *waiter;
    unsigned polls, drops;
    unsigned *permits; /* counts up at its first poll, down when it is finished or dropped */
    bool holds;
};

static inline void puppet_say(const struct puppet *p, const char *before, char name)
{
    if (!p->transcript)
        return;
    transcript_add(p->transcript, before);
    transcript_add(p->transcript, (char[]){name, 0});
}

static inline void puppet_release(struct puppet *p)
{
    p->waiter = NULL;
    if (p->holds)
        --*p->permits;
    p->holds = false;
}

static inline enum poll puppet_poll(struct future *f, struct task *t)
{
    struct puppet *p = (struct puppet *)f;
    p->polls++;
    if (p->permits && !p->holds)
        ++*p->permits;
    p->holds = p->permits != NULL;
    puppet_say(p, "", p->finishes ? (char)toupper(p->name) : p->name);
    if (!p->finishes) {
        p->waiter = t;
        return POLL_PENDING;
    }
    puppet_release(p);
    f->status = p->result;
    return POLL_READY;
}

static inline void puppet_drop(struct future *f)
{
    struct puppet *p = (struct puppet *)f;
    if (!p->finishes && p->drops++ == 0)
        puppet_say(p, "!", p->name);
    puppet_release(p);
}

static const struct future_kind puppet_kind = {"puppet", puppet_poll, puppet_drop};

static inline void puppet_init(struct puppet *p, char name, struct transcript *s)
{
    *p = (struct puppet){.name = name, .transcript = s};
    future_init(&p->f, &puppet_kind);
}

/* One that is ready in its first poll. */
static inline void puppet_init_ready(struct puppet *p, char name, struct transcript *s, int result)
{
    puppet_init(p, name, s);
    p->finishes = true;
    p->result = result;
}

static inline void puppet_finish(struct puppet *p, int result)
{
    p->finishes = true;
    p->result = result;
    if (p->waiter)
        task_wake(p->waiter);
}

/* A task that polls one future. */
struct driver {
    struct task task;
    struct future *of;
    bool is_ready;
    uint64_t ready_at;
    unsigned polls;
};

static inline enum poll driver_poll(struct task *t)
{
    struct driver *d = (struct driver *)t;
    d->polls++;
    enum poll p = future_poll(d->of, t);
    if (p == POLL_READY) {
        d->is_ready = true;
        d->ready_at = task_now(t);
    }
    return p;
}

static inline void driver_drop(struct task *t)
{
    struct driver *d = (struct driver *)t;
    if (!d->is_ready)
        future_drop(d->of);
}

static const struct task_kind driver_kind = {"driver", driver_poll, driver_drop};

static inline void drive(struct driver *d, struct sched *s, struct future *of)
{
    *d = (struct driver){.of = of};
    task_spawn(s, &d->task, &driver_kind);
}

/* Runs all that can run without time going on. */
static inline void settle(struct sched *s)
{
    while (sched_is_runnable(s))
        sched_step(s, sched_now(s));
}

/* Lets time jump from timer to timer until `until`; the clock stands there afterwards. */
static inline void run_until(struct sched *s, uint64_t until)
{
    settle(s);
    while (sched_next_timeout(s) <= until) {
        sched_step(s, sched_next_timeout(s));
        settle(s);
    }
    sched_step(s, until);
    settle(s);
}

/* More timers due at `at` than one pass fires: those armed later come up in a later one. */
#define CROWD_TIMERS (SCHED_TIMERS_STEP + 1)

static inline void crowd_on_fire(struct timer *t, uint64_t now)
{
    (void)t;
    (void)now;
}

static inline void crowd_arm(struct sched *s, struct timer crowd[CROWD_TIMERS], uint64_t at)
{
    for (unsigned i = 0; i < CROWD_TIMERS; i++) {
        crowd[i] = (struct timer){.fire = crowd_on_fire};
        timer_arm(&s->wheel, &crowd[i], at);
    }
}

#endif
