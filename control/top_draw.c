#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/terminal.h"
#include "control/top.h"

#define LINE      512
#define MAX_ITEMS 4096

enum look { PLAIN, BOLD, INVERSE, BAD, WARN };

struct canvas {
    FILE *f;
    const struct top_screen *s;
    unsigned used; /* rows */
};

static void line(struct canvas *c, enum look look, const char *text)
{
    static const char *const codes[] = {
        [BOLD] = "\033[1m", [INVERSE] = "\033[7m", [BAD] = "\033[31m", [WARN] = "\033[33m"};
    unsigned cols = c->s->cols ? c->s->cols : LINE;
    bool coded = c->s->ansi && look != PLAIN;
    int len = (int)strlen(text);

    if (c->s->rows && c->used >= c->s->rows)
        return;
    c->used++;
    if (len > (int)cols)
        len = (int)cols;
    while (len > 0 && text[len - 1] == ' ')
        len--;
    fprintf(c->f, "%s%.*s%s\n", coded ? codes[look] : "", len, text, coded ? "\033[0m" : "");
}

/* --- cells: right-aligned texts in buffers that live as long as the expression -----------------
 */

struct cell {
    char s[32];
};

static struct cell dash(void)
{
    return (struct cell){"-"};
}

static struct cell number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    struct cell c;

    if (!json_is_number(v))
        return dash();
    terminal_human(json_number_value(v), c.s, sizeof(c.s));
    return c;
}

static struct cell percent(const json_t *o, const char *key, int digits)
{
    const json_t *v = json_object_get(o, key);
    struct cell c;

    if (!json_is_number(v))
        return dash();
    snprintf(c.s, sizeof(c.s), "%.*f%%", digits, 100 * json_number_value(v));
    return c;
}

/* ns as "850ns", "12us", "1.3ms", "2.0s". */
static struct cell span(const json_t *o, const char *key)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    const json_t *v = json_object_get(o, key);
    double d = json_number_value(v);
    unsigned u = 0;
    struct cell c;

    if (!json_is_number(v))
        return dash();
    for (; d >= 1000 && u < 3; u++)
        d /= 1000;
    snprintf(c.s, sizeof(c.s), "%.*f%s", d < 9.95 && u > 0 ? 1 : 0, d, units[u]);
    return c;
}

/* "12/1.02K"; "12" without a bound. */
static struct cell of(const json_t *o, const char *part, const char *whole)
{
    struct cell p = number(o, part), w = number(o, whole), c;

    if (strcmp(w.s, "-") == 0)
        return p;
    snprintf(c.s, sizeof(c.s), "%.12s/%.12s", p.s, w.s);
    return c;
}

static struct cell name(const json_t *o, const char *key, int width)
{
    const char *s = json_string_value(json_object_get(o, key));
    struct cell c;

    if (!s)
        return dash();
    terminal_clean(s, c.s, sizeof(c.s));
    if ((int)strlen(c.s) > width) {
        c.s[width - 1] = '~';
        c.s[width] = '\0';
    }
    return c;
}

static double value(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* --- sections ----------------------------------------------------------------------------------
 */

static void draw_core(struct canvas *c, const json_t *o)
{
    char text[LINE], bar[9] = "        ";
    double busy = value(o, "busy");

    if (!json_is_true(json_object_get(o, "answering"))) {
        snprintf(text, sizeof(text), "%-4s %s", number(o, "core").s,
                 json_is_true(json_object_get(o, "running")) ? "does not answer" : "has ended");
        line(c, BAD, text);
        return;
    }
    for (unsigned i = 0; i < 8 && busy > i / 8.0 + 0.0625; i++)
        bar[i] = '|';
    snprintf(text, sizeof(text), "%-4s %3s %6s [%s] %7s %6s %6s %6s %6s %6s %6s",
             number(o, "core").s, number(o, "cpu").s, percent(o, "busy", 1).s, bar,
             span(o, "poll_p99_ns").s, span(o, "poll_worst_ns").s, number(o, "stalls").s,
             number(o, "connections").s, number(o, "tasks").s, number(o, "rx_packets_per_s").s,
             number(o, "tx_packets_per_s").s);
    line(c, value(o, "stalls") > 0 ? BAD : busy > 0.9 ? WARN : PLAIN, text);
}

static void draw_listener(struct canvas *c, const json_t *o)
{
    bool draining = json_is_true(json_object_get(o, "draining"));
    char text[LINE];

    snprintf(text, sizeof(text), "%-13s %-21s %5s %5s %5s %5s %5s %5s %5s", name(o, "name", 13).s,
             draining ? "draining" : name(o, "address", 21).s, number(o, "connections").s,
             number(o, "accepted_per_s").s, number(o, "requests_per_s").s, number(o, "4xx_per_s").s,
             number(o, "5xx_per_s").s, number(o, "bytes_in_per_s").s,
             number(o, "bytes_out_per_s").s);
    line(c, value(o, "5xx_per_s") > 0 ? WARN : PLAIN, text);
}

static void draw_upstream(struct canvas *c, const json_t *o)
{
    char text[LINE];
    bool bad = value(o, "endpoints") > 0 && value(o, "endpoints_used") == 0;
    bool warn = value(o, "endpoints_ejected") > 0 || value(o, "endpoints_unhealthy") > 0 ||
                value(o, "queued") > 0 || value(o, "failed_per_s") > 0;

    snprintf(text, sizeof(text), "%-13s %5s %9s %9s %6s %5s %5s %5s %6s %5s %2s",
             name(o, "name", 13).s, number(o, "requests_per_s").s,
             of(o, "in_flight", "requests_limit").s, of(o, "queued", "queue_limit").s,
             number(o, "budget_left").s, percent(o, "reuse_ratio", 0).s,
             number(o, "retries_per_s").s, number(o, "refused_per_s").s,
             number(o, "failed_per_s").s, of(o, "endpoints_used", "endpoints").s,
             number(o, "endpoints_ejected").s);
    line(c, bad ? BAD : warn ? WARN : PLAIN, text);
}

struct section {
    const char *head, *key;
    const char *busiest[2]; /* what says which ones stay when there is too little room */
    void (*draw)(struct canvas *c, const json_t *o);
    unsigned n, rows;
};

static double weight(const struct section *s, const json_t *o)
{
    return value(o, s->busiest[0]) + value(o, s->busiest[1]);
}

/* The k busiest, in their own order: a frame must not jump about. */
static void draw_busiest(struct canvas *c, const struct section *s, const json_t *list, unsigned k)
{
    const json_t *o, *other;
    size_t i, j;

    json_array_foreach(list, i, o)
    {
        unsigned before = 0;
        json_array_foreach(list, j, other)
        {
            double w = weight(s, o), v = weight(s, other);
            before += v > w || (v == w && j < i);
        }
        if (before < k)
            s->draw(c, o);
    }
}

static void draw_section(struct canvas *c, const struct section *s, const json_t *frame)
{
    const json_t *list = json_object_get(frame, s->key);
    unsigned shown = s->rows < s->n && s->rows > 0 ? s->rows - 1 : s->rows;
    char text[64];

    line(c, INVERSE, s->head);
    draw_busiest(c, s, list, shown);
    if (shown == s->n || s->rows == 0)
        return;
    snprintf(text, sizeof(text), "  and %u more, less busy", s->n - shown);
    line(c, PLAIN, text);
}

/* A third for each at first; what one doesn't need goes to those after it, then to those before. */
static void share_rows(struct section *s, unsigned n, unsigned room)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned share = room / (n - i);
        s[i].rows = s[i].n < share ? s[i].n : share;
        room -= s[i].rows;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned more = s[i].n - s[i].rows < room ? s[i].n - s[i].rows : room;
        s[i].rows += more;
        room -= more;
    }
}

static void draw_head(struct canvas *c, const json_t *o)
{
    int64_t up = (int64_t)value(o, "uptime_ms") / 1000;
    char text[LINE], days[32] = "";

    if (up >= 86400)
        snprintf(days, sizeof(days), "%" PRId64 "d ", up / 86400);
    snprintf(text, sizeof(text),
             "millrace %s  pid %.0f  %s  up %s%02d:%02d:%02d  configuration %.0f  %s %.1f s",
             name(o, "version", 20).s, value(o, "pid"), name(o, "state", 12).s, days,
             (int)(up / 3600 % 24), (int)(up / 60 % 60), (int)(up % 60), value(o, "config_version"),
             json_is_true(json_object_get(o, "since_start")) ? "average of" : "last",
             value(o, "interval_ms") / 1000);
    line(c, BOLD, text);
}

static double sum(const json_t *frame, const char *list, const char *key)
{
    const json_t *o;
    double d = 0;
    size_t i;

    json_array_foreach(json_object_get(frame, list), i, o)
    {
        d += value(o, key);
    }
    return d;
}

static struct cell total(const json_t *frame, const char *list, const char *key)
{
    struct cell c;

    terminal_human(sum(frame, list, key), c.s, sizeof(c.s));
    return c;
}

static void draw_totals(struct canvas *c, const json_t *o)
{
    char text[LINE];

    snprintf(
        text, sizeof(text),
        "clients %s  requests %s/s  in %s/s  out %s/s  stalls %s  retransmits %s/s  log lost %s",
        total(o, "cores", "clients").s, total(o, "listeners", "requests_per_s").s,
        total(o, "listeners", "bytes_in_per_s").s, total(o, "listeners", "bytes_out_per_s").s,
        total(o, "cores", "stalls").s, total(o, "cores", "retransmits_per_s").s,
        number(o, "log_lost").s);
    line(c, sum(o, "cores", "stalls") > 0 || value(o, "log_lost") > 0 ? WARN : PLAIN, text);
}

/* A line for each class of the blocking pool's jobs. */
static void draw_blocking(struct canvas *c, const json_t *frame)
{
    const json_t *o;
    size_t i;

    json_array_foreach(json_object_get(frame, "blocking"), i, o)
    {
        char text[LINE];
        snprintf(
            text, sizeof(text),
            "pool %s: %s jobs/s  queued %s  running %s  waited p99 %s  ran p99 %s  refused %s/s",
            name(o, "name", 13).s, number(o, "jobs_per_s").s, number(o, "queued").s,
            number(o, "running").s, span(o, "queue_p99_ns").s, span(o, "run_p99_ns").s,
            number(o, "refused_per_s").s);
        line(c, value(o, "refused_per_s") > 0 ? WARN : PLAIN, text);
    }
}

void top_draw(FILE *f, const json_t *frame, const struct top_screen *s)
{
    struct canvas c = {f, s, 0};
    struct section sections[] = {
        {"CORE CPU   BUSY            POLLp99  WORST STALLS  CONNS  TASKS   RX/s   TX/s",
         "cores",
         {"busy", "stalls"},
         draw_core,
         0,
         0},
        {"LISTENER      ADDRESS               CONNS ACC/s REQ/s 4xx/s 5xx/s  IN/s OUT/s",
         "listeners",
         {"requests_per_s", "connections"},
         draw_listener,
         0,
         0},
        {"UPSTREAM      REQ/s   PERMITS     QUEUE BUDGET REUSE RTR/s REF/s FAIL/s  ENDP EJ",
         "upstreams",
         {"requests_per_s", "queued"},
         draw_upstream,
         0,
         0},
    };
    enum { N = sizeof(sections) / sizeof(sections[0]) };
    unsigned pool = (unsigned)json_array_size(json_object_get(frame, "blocking"));
    unsigned fixed = 2 + pool + N + (s->note ? 1 : 0), gaps = 0;

    for (unsigned i = 0; i < N; i++) {
        sections[i].n = (unsigned)json_array_size(json_object_get(frame, sections[i].key));
        sections[i].rows = sections[i].n;
        gaps += sections[i].n;
    }
    gaps = s->rows == 0 || s->rows >= fixed + gaps + N ? 1 : 0; /* lines between, if they fit */
    if (s->rows)
        share_rows(sections, N, s->rows > fixed + N * gaps ? s->rows - fixed - N * gaps : 0);
    draw_head(&c, frame);
    draw_totals(&c, frame);
    draw_blocking(&c, frame);
    for (unsigned i = 0; i < N; i++) {
        if (gaps)
            line(&c, PLAIN, "");
        draw_section(&c, &sections[i], frame);
    }
    while (s->note && s->rows && c.used + 1 < s->rows)
        line(&c, PLAIN, "");
    if (s->note)
        line(&c, PLAIN, s->note);
}
