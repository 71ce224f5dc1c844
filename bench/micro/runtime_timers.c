/* Timers among 10^6 others that lie a minute to an hour ahead. */
#include <stdlib.h>
#include <string.h>

#include "bench/micro/measure.h"
#include "runtime/rng.h"

#define LIVE   1000000
#define ROUNDS 50000
#define FIRED  20000
#define START  1000000007ull

struct crowd {
    struct sched sched;
    struct rng rng;
    struct task task; /* whose timers they are */
    struct sleep *live;
};

static enum poll wait_poll(struct task *t)
{
    (void)t;
    return POLL_PENDING;
}

static void no_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind wait_kind = {"wait", wait_poll, no_drop};

static uint64_t delay(struct rng *r)
{
    return 60 * CLOCK_NS_PER_S + rng_below(r, 3540000) * 1000000ull;
}

static struct crowd *crowd_start(void)
{
    static struct crowd c;
    memset(&c, 0, sizeof(c));
    sched_init(&c.sched, &(struct sched_opts){.now = START});
    c.rng.state = 1;
    c.live = calloc(LIVE, sizeof(c.live[0]));
    if (!c.live)
        exit(1);
    task_spawn(&c.sched, &c.task, &wait_kind);
    sched_step(&c.sched, START);
    for (unsigned i = 0; i < LIVE; i++)
        sleep_arm(&c.live[i], &c.task, START + delay(&c.rng));
    return &c;
}

static void crowd_end(struct crowd *c)
{
    for (unsigned i = 0; i < LIVE; i++)
        sleep_cancel(&c->live[i]);
    free(c->live);
    sched_fini(&c->sched);
}

static void run_timer(struct samples *ret_samples, const struct cpus *cpus)
{
    struct crowd *c = crowd_start();
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        for (unsigned n = 0; n < ROUNDS; n++) {
            struct sleep s = {0};
            sleep_arm(&s, &c->task, START + delay(&c->rng));
            sleep_cancel(&s);
        }
        ret_samples->each[i] = cpu_ns_each(start, ROUNDS);
    }
    crowd_end(c);
}

static void run_timer_move(struct samples *ret_samples, const struct cpus *cpus)
{
    struct crowd *c = crowd_start();
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        for (unsigned n = 0; n < ROUNDS; n++)
            sleep_arm(&c->live[rng_below(&c->rng, LIVE)], &c->task, START + delay(&c->rng));
        ret_samples->each[i] = cpu_ns_each(start, ROUNDS);
    }
    crowd_end(c);
}

static void on_fire(struct timer *t, uint64_t now)
{
    (void)t;
    (void)now;
}

static void run_timer_fire(struct samples *ret_samples, const struct cpus *cpus)
{
    static struct timer fired[FIRED];
    static struct timer_wheel wheel;
    struct rng rng = {1};
    uint64_t now = START;
    timer_wheel_init(&wheel, now);
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        unsigned n = 0;
        memset(fired, 0, sizeof(fired));
        for (unsigned k = 0; k < FIRED; k++) {
            fired[k].fire = on_fire;
            timer_arm(&wheel, &fired[k], now + 1 + rng_below(&rng, 2000000000));
        }
        while (n < FIRED) {
            now += 1000000;
            n += timer_wheel_advance(&wheel, now, SCHED_TIMERS_STEP);
        }
        ret_samples->each[i] = cpu_ns_each(start, FIRED);
    }
}

static void run_idle_step(struct samples *ret_samples, const struct cpus *cpus)
{
    struct crowd *c = crowd_start();
    uint64_t now = START;
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        for (unsigned n = 0; n < ROUNDS; n++)
            sched_step(&c->sched, now += 700);
        ret_samples->each[i] = cpu_ns_each(start, ROUNDS);
    }
    crowd_end(c);
}

const struct measure measures_timers[] = {
    {"timer", "timer arm + cancel, 10^6 live", run_timer},
    {"timer_move", "one of 10^6 live timers moved", run_timer_move},
    {"timer_fire", "timer arm + cascades + fire", run_timer_fire},
    {"idle_step", "idle step, 10^6 timers live", run_idle_step},
    {NULL, NULL, NULL},
};
