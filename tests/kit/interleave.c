#include "tests/kit/interleave.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kit/fiber.h"

enum { LOCATIONS = 32, HISTORY = 96, STEPS = 1024, CHOICES = 2048 };

typedef uint8_t moments __attribute__((vector_size(LOCATIONS)));

/* How far along each location's history something must have got. */
union view {
    uint8_t at[LOCATIONS];
    moments all;
};

struct message {
    uint64_t value;
    union view view; /* what who acquires it gets to know */
};

struct location {
    void *addr;
    size_t size;
    unsigned n;
    struct message history[HISTORY];
};

struct party {
    struct fiber fiber;
    const char *name;
    struct interleave_op next; /* what it does when it is scheduled */
    bool is_live;              /* `next` is valid */
    uint16_t nsteps;
    unsigned last;     /* its last step */
    union view now;    /* what it must see */
    union view loaded; /* what it would get to know by an acquire fence */
    union view fenced; /* what its relaxed stores tell since a release fence */
};

/* A point where the schedule could have gone another way. */
struct choice {
    uint16_t taken, options; /* of values; options 0: the choice is of a party */
    uint8_t enabled, asleep, tried;
    uint8_t wanted; /* parties whose going first makes a difference */
};

struct step {
    uint8_t party;
    bool is_stale;                      /* saw less than the newest */
    bool is_firm;                       /* a seq_cst load that could only see the newest */
    bool is_done;                       /* of a compare-exchange */
    uint16_t choice;                    /* of this party to take this step */
    uint16_t clock[INTERLEAVE_PARTIES]; /* steps of each that it depends on, itself included */
    struct interleave_op op;
    uint64_t old;
};

static struct {
    const struct interleave_case *c;
    struct interleave_result *result;
    struct party party[INTERLEAVE_PARTIES];
    struct party *running;
    unsigned nlocations;
    struct location location[LOCATIONS];
    union view order; /* of seq_cst operations and fences */
    unsigned depth, ndepth;
    struct choice choice[CHOICES];
    unsigned asleep; /* parties whose next step has been tried from here */
    unsigned nsteps;
    struct step step[STEPS];
    bool has_failed;
    bool is_exploring;
} x;

static void note_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void note_failure(const char *format, ...)
{
    if (x.has_failed)
        return;
    va_list ap;
    va_start(ap, format);
    vsnprintf(x.result->why, sizeof(x.result->why), format, ap);
    va_end(ap);
    x.has_failed = true;
}

void interleave_fail(const char *why)
{
    assert(x.running);
    note_failure("party %u: %s", (unsigned)(x.running - x.party), why);
    x.running->is_live = false;
    for (;;)
        fiber_yield();
}

/* An assertion of the code under test is a failure with a schedule, too. With NDEBUG <assert.h>
 * doesn't declare it. */
void __assert_fail(const char *assertion, const char *file, unsigned line, const char *function)
    __attribute__((noreturn));

void __assert_fail(const char *assertion, const char *file, unsigned line, const char *function)
{
    static char text[160];
    snprintf(text, sizeof(text), "%s:%u: %s(): %s", file, line, function, assertion);
    if (x.running)
        interleave_fail(text);
    fprintf(stderr, "%s\n", text);
    abort();
}

/* Memory. */

static void join(union view *v, const union view *other)
{
    moments later = (moments)(other->all > v->all);
    v->all = (other->all & later) | (v->all & ~later);
}

static void raise(union view *v, unsigned location, unsigned time)
{
    if (time > v->at[location])
        v->at[location] = (uint8_t)time;
}

static bool acquires(memory_order o)
{
    return o == memory_order_acquire || o == memory_order_consume || o == memory_order_acq_rel ||
           o == memory_order_seq_cst;
}

static bool releases(memory_order o)
{
    return o == memory_order_release || o == memory_order_acq_rel || o == memory_order_seq_cst;
}

static uint64_t plain_read(const void *addr, size_t size)
{
    uint64_t v = 0;
    memcpy(&v, addr, size);
    return v;
}

static void plain_write(void *addr, size_t size, uint64_t v)
{
    memcpy(addr, &v, size);
}

/* UINT_MAX: there is no room. */
static unsigned locate(const struct interleave_op *op)
{
    for (unsigned i = 0; i < x.nlocations; i++)
        if (x.location[i].addr == op->addr)
            return i;
    if (x.nlocations == LOCATIONS) {
        note_failure("more than %d locations", LOCATIONS);
        return 0;
    }
    struct location *l = &x.location[x.nlocations];
    l->addr = op->addr;
    l->size = op->size;
    l->n = 1;
    l->history[0] = (struct message){.value = plain_read(op->addr, op->size)};
    return x.nlocations++;
}

static const struct message *newest(const struct location *l)
{
    return &l->history[l->n - 1];
}

/* The earliest message that a load by `p` may still return. */
static unsigned oldest_visible(const struct party *p, unsigned loc, memory_order order)
{
    unsigned t = p->now.at[loc];
    return order == memory_order_seq_cst && x.order.at[loc] > t ? x.order.at[loc] : t;
}

static void on_read(struct party *p, unsigned loc, unsigned time, memory_order order)
{
    const struct message *m = &x.location[loc].history[time];
    raise(&p->now, loc, time);
    join(&p->loaded, &m->view);
    if (acquires(order))
        join(&p->now, &m->view);
    if (order == memory_order_seq_cst)
        raise(&x.order, loc, time);
}

/* `inherited`: the view of the message that a read-modify-write replaces. */
static void on_write(struct party *p, unsigned loc, uint64_t value, memory_order order,
                     const union view *inherited)
{
    struct location *l = &x.location[loc];
    if (l->n == HISTORY) {
        note_failure("more than %d stores to %s", HISTORY, p->next.what);
        return;
    }
    unsigned time = l->n++;
    struct message *m = &l->history[time];
    raise(&p->now, loc, time);
    m->value = value;
    m->view = releases(order) ? p->now : p->fenced;
    raise(&m->view, loc, time);
    if (inherited)
        join(&m->view, inherited);
    if (order == memory_order_seq_cst)
        raise(&x.order, loc, time);
    plain_write(l->addr, l->size, value);
}

static void on_fence(struct party *p, memory_order order)
{
    if (acquires(order))
        join(&p->now, &p->loaded);
    if (order == memory_order_seq_cst) {
        join(&p->now, &x.order);
        join(&x.order, &p->now);
    }
    if (releases(order))
        p->fenced = p->now;
}

/* Which of `n` ways to go on: the one of this schedule. */
static unsigned choose(unsigned n)
{
    if (n <= 1)
        return 0;
    if (x.depth == CHOICES) {
        note_failure("more than %d choices", CHOICES);
        return 0;
    }
    struct choice *c = &x.choice[x.depth];
    if (x.depth++ == x.ndepth) {
        x.ndepth++;
        *c = (struct choice){.options = (uint16_t)n};
    }
    assert(c->options == n);
    return c->taken;
}

static bool is_load(const struct interleave_op *op)
{
    return op->kind == INTERLEAVE_LOAD || op->kind == INTERLEAVE_AWAIT;
}

static bool is_ordered(const struct interleave_op *op)
{
    return op->order == memory_order_seq_cst || op->order2 == memory_order_seq_cst;
}

static uint64_t truncate_to(uint64_t v, size_t size)
{
    return size < 8 ? v & ((1ull << (8 * size)) - 1) : v;
}

static uint64_t modified(const struct interleave_op *op, uint64_t old)
{
    switch (op->kind) {
    case INTERLEAVE_ADD:
        return truncate_to(old + op->operand, op->size);
    case INTERLEAVE_SUB:
        return truncate_to(old - op->operand, op->size);
    case INTERLEAVE_AND:
        return old & op->operand;
    case INTERLEAVE_OR:
        return old | op->operand;
    default:
        return op->operand;
    }
}

/* The newest first, so that the first schedules are the ordinary ones. */
static uint64_t do_load(struct party *p, unsigned loc, struct step *s)
{
    const struct location *l = &x.location[loc];
    unsigned oldest = oldest_visible(p, loc, s->op.order);
    unsigned time = l->n - 1 - choose(l->n - oldest);
    s->is_stale = time != l->n - 1;
    uint64_t value = l->history[time].value;
    on_read(p, loc, time, s->op.order);
    return value;
}

static uint64_t do_modify(struct party *p, unsigned loc, memory_order order, struct step *s)
{
    struct message last = *newest(&x.location[loc]);
    on_read(p, loc, x.location[loc].n - 1, order);
    on_write(p, loc, modified(&s->op, last.value), order, &last.view);
    s->is_done = true;
    return last.value;
}

/* Succeeds on the newest value only, but may fail on any visible one that differs. */
static uint64_t do_compare(struct party *p, unsigned loc, struct step *s)
{
    const struct location *l = &x.location[loc];
    unsigned times[HISTORY], n = 0;
    bool can_succeed = newest(l)->value == s->op.expected;
    for (unsigned t = l->n; t-- > oldest_visible(p, loc, s->op.order2);)
        if (l->history[t].value != s->op.expected)
            times[n++] = t;
    unsigned way = choose(n + can_succeed);
    if (can_succeed && way == 0)
        return do_modify(p, loc, s->op.order, s);
    assert(way - can_succeed < n);
    unsigned time = times[way - can_succeed];
    s->is_stale = time != l->n - 1;
    uint64_t value = l->history[time].value;
    on_read(p, loc, time, s->op.order2);
    return value;
}

/* Whether a seq_cst load could only see the newest: then it leaves no trace for other loads. */
static bool is_firm(const struct interleave_op *op)
{
    for (unsigned i = 0; i < x.nlocations; i++)
        if (x.location[i].addr == op->addr)
            return x.order.at[i] == x.location[i].n - 1;
    return true;
}

/* Whether the two lead to the same state in either order. */
static bool commute(const struct interleave_op *a, const struct interleave_op *b, bool are_firm)
{
    if (a->kind == INTERLEAVE_FENCE || b->kind == INTERLEAVE_FENCE)
        return !is_ordered(a) || !is_ordered(b);
    if (a->addr != b->addr)
        return true;
    return is_load(a) && is_load(b) && (are_firm || !is_ordered(a) || !is_ordered(b));
}

static bool is_before(const struct step *a, const uint16_t clock[])
{
    return a->clock[a->party] <= clock[a->party];
}

/* Parties that could take the first step of what leads to `s` without `from`. */
static unsigned leading_parties(const struct step *from, const struct step *s)
{
    const struct step *rest[STEPS];
    unsigned n = 0, seen = 0, leading = 0;
    for (const struct step *k = from + 1; k <= s; k++) {
        if (k != s && is_before(from, k->clock))
            continue;
        bool is_led = seen & 1u << k->party;
        for (unsigned i = 0; i < n && !is_led; i++)
            is_led = is_before(rest[i], k->clock);
        if (!is_led)
            leading |= 1u << k->party;
        seen |= 1u << k->party;
        rest[n++] = k;
    }
    return leading;
}

/* Nothing but their order keeps `s` from coming before `from`: that has to be tried, too. */
static void want_reversed(const struct step *from, const struct step *s)
{
    struct choice *c = &x.choice[from->choice];
    unsigned leading = c->enabled & leading_parties(from, s);
    if (leading && !(leading & c->wanted))
        c->wanted |= (uint8_t)(leading & -leading);
}

/* Orders the step after those of others that it depends on; and where nothing else orders the two,
 * the other way round is another schedule. */
static void find_races(struct party *p, struct step *s)
{
    const struct step *races[STEPS];
    unsigned n = 0;
    if (p->nsteps > 0)
        memcpy(s->clock, x.step[p->last].clock, sizeof(s->clock));
    for (const struct step *k = s; k-- > x.step;) {
        if (k->party == s->party || commute(&k->op, &s->op, k->is_firm && s->is_firm) ||
            is_before(k, s->clock))
            continue;
        for (unsigned i = 0; i < INTERLEAVE_PARTIES; i++)
            if (k->clock[i] > s->clock[i])
                s->clock[i] = k->clock[i];
        races[n++] = k;
    }
    s->clock[s->party] = p->nsteps + 1;
    while (n > 0)
        want_reversed(races[--n], s);
}

static struct step *new_step(struct party *p)
{
    if (x.nsteps == STEPS) {
        note_failure("more than %d steps", STEPS);
        x.nsteps--;
    }
    struct step *s = &x.step[x.nsteps++];
    *s = (struct step){
        .party = (uint8_t)(p - x.party), .op = p->next, .choice = (uint16_t)(x.depth - 1)};
    find_races(p, s);
    p->last = x.nsteps - 1;
    p->nsteps++;
    return s;
}

/* Performs the party's next operation. */
static uint64_t perform(struct party *p, bool *ret_done)
{
    struct step *s = new_step(p);
    if (s->op.kind == INTERLEAVE_FENCE) {
        on_fence(p, s->op.order);
        return 0;
    }
    unsigned loc = locate(&s->op);
    switch (s->op.kind) {
    case INTERLEAVE_LOAD:
        s->old = do_load(p, loc, s);
        break;
    case INTERLEAVE_STORE:
        s->old = newest(&x.location[loc])->value;
        on_write(p, loc, s->op.operand, s->op.order, NULL);
        break;
    case INTERLEAVE_COMPARE_EXCHANGE:
        s->old = do_compare(p, loc, s);
        break;
    case INTERLEAVE_AWAIT:
        s->old = newest(&x.location[loc])->value;
        on_read(p, loc, x.location[loc].n - 1, memory_order_acquire);
        break;
    default:
        s->old = do_modify(p, loc, s->op.order, s);
        break;
    }
    if (ret_done)
        *ret_done = s->is_done;
    return s->old;
}

/* Without a schedule, in set-up and tear-down. */
static uint64_t do_plainly(const struct interleave_op *op, bool *ret_done)
{
    if (op->kind == INTERLEAVE_FENCE)
        return 0;
    uint64_t old = plain_read(op->addr, op->size);
    bool writes = op->kind != INTERLEAVE_LOAD && op->kind != INTERLEAVE_AWAIT &&
                  !(op->kind == INTERLEAVE_COMPARE_EXCHANGE && old != op->expected);
    if (writes)
        plain_write(op->addr, op->size, modified(op, old));
    if (ret_done)
        *ret_done = writes;
    return old;
}

static void mutate(struct interleave_op *op)
{
    const struct interleave_mutation *m = x.c->mutation;
    if (!m || m->kind != op->kind || strcmp(m->func, op->func) != 0 ||
        strcmp(m->what, op->what) != 0)
        return;
    op->order = op->order2 = m->order;
    x.result->mutated++;
}

static bool is_hint(const struct interleave_op *op)
{
    return x.c->hint && strcmp(op->what, x.c->hint) == 0;
}

uint64_t interleave_do_(const struct interleave_op *op, bool *ret_done)
{
    struct party *p = x.running;
    if (!p || is_hint(op))
        return do_plainly(op, ret_done);
    p->next = *op;
    mutate(&p->next);
    fiber_yield();
    uint64_t old = perform(p, ret_done);
    if (x.has_failed)
        interleave_fail("");
    return old;
}

void interleave_await_(void *flag, size_t size, bool may_end, const char *func, const char *what)
{
    interleave_do_(&(struct interleave_op){.kind = INTERLEAVE_AWAIT,
                                           .addr = flag,
                                           .size = size,
                                           .func = func,
                                           .what = what,
                                           .may_end = may_end},
                   NULL);
}

/* Schedules. */

static bool can_move(const struct party *p)
{
    if (!p->is_live)
        return false;
    return p->next.kind != INTERLEAVE_AWAIT || plain_read(p->next.addr, p->next.size) != 0;
}

static unsigned enabled_parties(void)
{
    unsigned set = 0;
    for (unsigned i = 0; i < x.c->nparties; i++)
        if (can_move(&x.party[i]))
            set |= 1u << i;
    return set;
}

static void run_party(struct party *p)
{
    x.running = p;
    fiber_enter(&p->fiber);
    x.running = NULL;
    if (p->fiber.has_ended)
        p->is_live = false;
}

/* Which party moves; UINT_MAX when all that could have been tried before. */
static unsigned pick_party(unsigned enabled)
{
    if (x.depth == CHOICES) {
        note_failure("more than %d choices", CHOICES);
        return UINT32_MAX;
    }
    struct choice *c = &x.choice[x.depth];
    if (x.depth == x.ndepth) {
        unsigned fresh = enabled & ~x.asleep;
        if (!fresh)
            return UINT32_MAX;
        x.ndepth++;
        *c = (struct choice){.enabled = (uint8_t)enabled, .asleep = (uint8_t)x.asleep};
        c->taken = (uint16_t)__builtin_ctz(fresh);
        c->wanted = (uint8_t)(x.c->try_all ? enabled : 1u << c->taken);
    }
    assert(c->options == 0 && c->enabled == enabled);
    x.depth++;
    x.asleep = c->asleep | c->tried;
    return c->taken;
}

/* Those asleep stay so as long as what happens is nothing to them. */
static void wake_dependents(const struct interleave_op *op)
{
    for (unsigned i = 0; i < x.c->nparties; i++)
        if ((x.asleep & 1u << i) && !commute(&x.party[i].next, op, is_firm(op)))
            x.asleep &= ~(1u << i);
}

/* What a sleeper waits for may have come earlier in another schedule. */
static void find_races_of_sleepers(void)
{
    for (unsigned i = 0; i < x.c->nparties; i++) {
        if (x.party[i].is_live && x.nsteps < STEPS) {
            struct step *s = &x.step[x.nsteps];
            *s = (struct step){.party = (uint8_t)i, .op = x.party[i].next, .is_firm = true};
            find_races(&x.party[i], s);
        }
    }
}

/* Nothing moves any more. */
static void judge_end(void)
{
    for (unsigned i = 0; i < x.c->nparties; i++) {
        if (x.party[i].is_live && !x.party[i].next.may_end) {
            note_failure("party %u sleeps for ever on %s", i, x.party[i].next.what);
            return;
        }
    }
    const char *wrong = x.c->end ? x.c->end() : NULL;
    if (wrong)
        note_failure("at the end: %s", wrong);
}

static void party_main(void *arg)
{
    struct party *p = arg;
    x.c->party[p - x.party]();
}

static void reset(void)
{
    x.nlocations = 0;
    x.order = (union view){.at = {0}};
    x.depth = x.nsteps = x.asleep = 0;
    x.result->mutated = 0;
    x.c->set_up();
    for (unsigned i = 0; i < x.c->nparties; i++) {
        struct party *p = &x.party[i];
        p->now = p->loaded = p->fenced = (union view){.at = {0}};
        p->is_live = true;
        p->nsteps = 0;
        fiber_restart(&p->fiber, party_main, p);
    }
    /* Up to the first atomic step of each, before which they can't meet. */
    for (unsigned i = 0; i < x.c->nparties; i++)
        run_party(&x.party[i]);
}

static void run_schedule(void)
{
    unsigned enabled;
    reset();
    while (!x.has_failed && (enabled = enabled_parties())) {
        unsigned i = pick_party(enabled);
        if (i == UINT32_MAX) {
            x.result->pruned += !x.has_failed;
            return;
        }
        wake_dependents(&x.party[i].next);
        run_party(&x.party[i]);
    }
    if (!x.has_failed) {
        find_races_of_sleepers();
        judge_end();
    }
    x.result->schedules++;
}

/* The next schedule in depth-first order; false when there is none. */
static bool backtrack(void)
{
    while (x.ndepth > 0) {
        struct choice *c = &x.choice[x.ndepth - 1];
        if (c->options > 0) {
            if (++c->taken < c->options)
                return true;
        } else {
            c->tried |= (uint8_t)(1u << c->taken);
            unsigned left = c->wanted & ~(unsigned)c->asleep & ~(unsigned)c->tried;
            if (left) {
                c->taken = (uint16_t)__builtin_ctz(left);
                return true;
            }
        }
        x.ndepth--;
    }
    return false;
}

static const char *order_name(memory_order o)
{
    static const char *const names[] = {"relaxed", "consume", "acquire",
                                        "release", "acq_rel", "seq_cst"};
    return names[o];
}

static void print_step(FILE *f, unsigned n, const struct step *s)
{
    static const char *const kinds[] = {"load", "store", "exchange", "compare", "add",
                                        "sub",  "and",   "or",       "fence",   "await"};
    fprintf(f, "#  %3u  party %u  %-22s %-8s %-22s %s", n, s->party, s->op.func, kinds[s->op.kind],
            s->op.what, order_name(s->op.order));
    if (s->op.kind == INTERLEAVE_STORE)
        fprintf(f, "  := %#lx", (unsigned long)s->op.operand);
    else if (s->op.kind != INTERLEAVE_FENCE)
        fprintf(f, "  = %#lx", (unsigned long)s->old);
    if (s->is_done)
        fprintf(f, " -> %#lx", (unsigned long)modified(&s->op, s->old));
    fprintf(f, "%s\n", s->is_stale ? "  (stale)" : "");
}

static void print_failure(FILE *f)
{
    fprintf(f, "# %s, schedule %lu: %s\n", x.c->name, (unsigned long)x.result->schedules,
            x.result->why);
    for (unsigned i = 0; i < x.nsteps; i++)
        print_step(f, i, &x.step[i]);
}

void interleave_explore(const struct interleave_case *c, FILE *log,
                        struct interleave_result *ret_result)
{
    assert(!x.is_exploring && c->nparties <= INTERLEAVE_PARTIES);
    *ret_result = (struct interleave_result){0};
    x.is_exploring = true;
    x.has_failed = false;
    x.c = c;
    x.result = ret_result;
    x.ndepth = 0;
    for (unsigned i = 0; i < c->nparties; i++)
        if (fiber_init(&x.party[i].fiber) < 0)
            abort();
    do {
        run_schedule();
        if (c->tear_down)
            c->tear_down();
    } while (!x.has_failed && backtrack());
    for (unsigned i = 0; i < c->nparties; i++)
        fiber_fini(&x.party[i].fiber);
    ret_result->has_failed = x.has_failed;
    if (x.has_failed && log)
        print_failure(log);
    x.is_exploring = false;
}
