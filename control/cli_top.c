#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "control/cli_online.h"
#include "control/terminal.h"
#include "control/top.h"

#define SECOND     1000000000ull
#define MIN_MS     100
#define RECEIVE_MS 2000
#define RETRY_MS   1000

struct top {
    const struct cli_options *o;
    struct terminal term;
    struct client *client; /* NULL: not connected */
    json_t *before, *now;  /* statuses; before NULL: none yet */
    bool asked;            /* an answer is on its way */
    const char *note;
};

static int interval_ms(const struct cli_options *o)
{
    uint64_t ms = (o->interval ? o->interval : SECOND) / 1000000;

    return ms < MIN_MS ? MIN_MS : ms > 3600000 ? 3600000 : (int)ms;
}

static json_t *request(void)
{
    json_t *r = cli_request("status");

    if (r)
        json_object_set_new(r, "detail", json_string("buckets"));
    return r;
}

/* One question, one answer: the status, or NULL after a line on stderr. */
static json_t *look(const struct cli_options *o)
{
    json_t *answer = cli_answer(o, request(), false), *status = NULL;

    if (answer && cli_is_good(answer))
        status = json_incref(json_object_get(answer, "result"));
    else if (answer)
        cli_print_refusal(answer);
    json_decref(answer);
    return status;
}

static int once(const struct cli_options *o)
{
    struct top_screen screen = {0};
    struct timespec ts = {interval_ms(o) / 1000, interval_ms(o) % 1000 * 1000000L};
    json_t *before = look(o), *now, *frame;

    if (!before)
        return 1;
    while (nanosleep(&ts, &ts))
        ;
    now = look(o);
    frame = now ? top_frame(before, now) : NULL;
    if (frame && o->json)
        cli_print_json(frame);
    else if (frame)
        top_draw(stdout, frame, &screen);
    json_decref(before);
    json_decref(now);
    json_decref(frame);
    return frame ? 0 : 1;
}

/* --- live --------------------------------------------------------------------------------------
 */

static bool draw(struct top *t)
{
    struct top_screen screen = {.ansi = true, .note = t->note};
    json_t *frame = top_frame(t->before, t->now);
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    bool good = true;

    terminal_size(&t->term, &screen.cols, &screen.rows);
    if (f && frame)
        top_draw(f, frame, &screen);
    json_decref(frame);
    if (f && fclose(f) == 0)
        good = terminal_show(&t->term, text, len);
    free(text);
    return good;
}

static void lose(struct top *t, const char *note)
{
    client_close(t->client);
    t->client = NULL;
    t->asked = false;
    t->note = note;
}

static void ask(struct top *t)
{
    char err[256];
    json_t *r = request();

    if (!t->client) {
        t->client = cli_ask(t->o, r, true); /* takes the reference */
        t->asked = t->client != NULL;
        if (!t->asked)
            t->note = "millrace can't be reached; trying again (q ends)";
        return;
    }
    t->asked = r && client_send(t->client, r, err, sizeof(err)) == 0;
    json_decref(r);
    if (!t->asked)
        lose(t, "millrace has hung up; trying again (q ends)");
}

static void take(struct top *t)
{
    json_t *answer = NULL, *status;
    char err[256];

    t->asked = false;
    if (client_receive(t->client, RECEIVE_MS, &answer, err, sizeof(err))) {
        lose(t, "millrace has hung up; trying again (q ends)");
        return;
    }
    status = json_object_get(answer, "result");
    if (cli_is_good(answer) && status) {
        json_decref(t->before);
        t->before = t->now;
        t->now = json_incref(status);
        t->note = "q ends, space looks now";
    } else {
        t->note = "millrace is ending";
    }
    json_decref(answer);
}

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Until someone wants to end: 0, or the signal that says so. */
static int live(struct top *t)
{
    int64_t next = now_ms();

    for (;;) {
        int key = 0;
        int64_t now = now_ms();
        if (!t->asked && now >= next) {
            ask(t);
            next = now + (t->client ? interval_ms(t->o) : RETRY_MS);
            if (!t->asked && t->now && !draw(t))
                return 0;
        }
        int wait = t->asked ? -1 : next > now ? (int)(next - now) : 0;
        switch (terminal_wait(&t->term, t->asked ? client_fd(t->client) : -1, wait, &key)) {
        case TERMINAL_READABLE:
            take(t);
            break;
        case TERMINAL_KEY:
            if (key == 'q' || key == 'Q')
                return 0;
            if (key == ' ')
                next = now;
            continue;
        case TERMINAL_SIGNAL:
            return key;
        case TERMINAL_GONE:
            return 0;
        case TERMINAL_TIMEOUT:
            continue;
        case TERMINAL_RESIZED:
            break;
        }
        if (t->now && !draw(t))
            return 0;
    }
}

int cli_top(const struct cli_options *o)
{
    struct top t = {.o = o, .note = ""};

    if (o->once || o->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return once(o);
    /* The first look is a plain question, so that what is wrong is said on a plain terminal. */
    t.now = look(o);
    if (!t.now)
        return 1;
    t.note = "q ends, space looks now";
    if (terminal_open(&t.term, STDIN_FILENO, STDOUT_FILENO))
        return once(o);
    int ended_by = draw(&t) ? live(&t) : 0;
    terminal_close(&t.term);
    client_close(t.client);
    json_decref(t.before);
    json_decref(t.now);
    if (ended_by) { /* as if we had never caught it */
        signal(ended_by, SIG_DFL);
        raise(ended_by);
    }
    return 0;
}
