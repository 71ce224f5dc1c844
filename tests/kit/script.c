#include "tests/kit/script.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kit/eal.h"
#include "tests/kit/script_priv.h"

#define WHENEVER_NS   300000000000ull
#define LOOPS_MAX     4
#define LINES_MAX     4000
#define VARIABLES_MAX 26

struct loop {
    unsigned first_line; /* index of the line after "for" */
    int64_t value, last;
    char name;
};

void script_fail(struct script *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->error, sizeof s->error, fmt, ap);
    va_end(ap);
    longjmp(s->failed, 1);
}

static void ignore_stream(void *ctx, struct stream *st)
{
    stream_abort(st);
}

/* The ISN that a first SYN from flow 0 would be answered with now: tried on a stack of its own. */
static uint32_t probe_isn(struct script *s)
{
    struct script_flow f = s->conns[0].flow;
    struct script_segment syn;
    uint8_t bytes[64];
    struct tcp_listener *l;
    script_segment_parse("S 0:0(0)", true, &syn);
    tcp_rig_init(&s->rig, &s->net_opts, &s->tcp_opts);
    tcp_listen(s->rig.tcp,
               &(struct tcp_listener_opts){.port = f.us_port, .on_accept = ignore_stream}, &l);
    net_rig_arp_reply(&s->rig.net, RIG_PEER, &rig_peer_mac);
    uint16_t len = (uint16_t)script_segment_build(&syn, &f, RIG_PEER, RIG_US, bytes);
    net_rig_in(&s->rig.net, net_rig_ip4(&s->rig.net, &(struct rig_ip4){.proto = IPPROTO_TCP,
                                                                       .payload = bytes,
                                                                       .payload_len = len}));
    tcp_rig_settle(&s->rig);
    net_rig_arp_reply(&s->rig.net, RIG_PEER, &rig_peer_mac);
    tcp_rig_settle(&s->rig);
    uint32_t isn = 0;
    for (struct rte_mbuf *m; (m = net_rig_out(&s->rig.net)); rte_pktmbuf_free(m)) {
        const struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, const struct rte_ipv4_hdr *, 14);
        if (ip->next_proto_id == IPPROTO_TCP)
            isn = rte_be_to_cpu_32(((const struct rte_tcp_hdr *)(ip + 1))->sent_seq);
    }
    tcp_rig_fini(&s->rig);
    return isn;
}

void script_start(struct script *s)
{
    if (s->started)
        return;
    if (s->us_isn_wanted)
        s->tcp_opts.isn_offset = s->us_isn - probe_isn(s);
    tcp_rig_init(&s->rig, &s->net_opts, &s->tcp_opts);
    s->frames = kit_pool_new(1023);
    s->start_at = s->base_at = tcp_rig_now(&s->rig);
    s->started = true;
}

/* --- {expressions} --- */

struct expression {
    const char *p;
    const int64_t *vars; /* 'a' first */
    bool bad;
};

static int64_t sum(struct expression *e);

static int64_t factor(struct expression *e)
{
    e->p += strspn(e->p, " ");
    if (*e->p == '(') {
        e->p++;
        int64_t v = sum(e);
        e->bad |= *e->p++ != ')';
        return v;
    }
    if (islower((unsigned char)*e->p))
        return e->vars[*e->p++ - 'a'];
    char *end;
    int64_t v = strtoll(e->p, &end, 0);
    e->bad |= end == e->p;
    e->p = end;
    return v;
}

static int64_t product(struct expression *e)
{
    int64_t v = factor(e);
    for (;;) {
        e->p += strspn(e->p, " ");
        char op = *e->p;
        if (op != '*' && op != '/' && op != '%')
            return v;
        e->p++;
        int64_t w = factor(e);
        if (op != '*' && w == 0) {
            e->bad = true;
            return 0;
        }
        v = op == '*' ? v * w : op == '/' ? v / w : v % w;
    }
}

static int64_t sum(struct expression *e)
{
    int64_t v = product(e);
    for (;;) {
        e->p += strspn(e->p, " ");
        if (*e->p != '+' && *e->p != '-')
            return v;
        bool plus = *e->p++ == '+';
        int64_t w = product(e);
        v = plus ? v + w : v - w;
    }
}

/* Replaces every {expression}; cuts comments and blanks. */
static void expand(struct script *s, const char *line, const int64_t *vars)
{
    size_t n = 0;
    line += strspn(line, " \t");
    while (*line && *line != '#' && *line != '\n' && n < sizeof s->text - 32) {
        if (*line != '{') {
            s->text[n++] = *line++;
            continue;
        }
        struct expression e = {.p = line + 1, .vars = vars};
        int64_t v = sum(&e);
        if (e.bad || *e.p != '}')
            script_fail(s, "bad expression");
        n += (size_t)snprintf(s->text + n, sizeof s->text - n, "%lld", (long long)v);
        line = e.p + 1;
    }
    while (n && isspace((unsigned char)s->text[n - 1]))
        n--;
    s->text[n] = 0;
}

/* --- time --- */

static uint64_t parse_seconds(struct script *s, char **p)
{
    char *end;
    double v = strtod(*p, &end);
    if (end == *p)
        script_fail(s, "a time was expected");
    *p = end;
    return (uint64_t)(v * 1e9 + 0.5);
}

/* Takes the time off the front of a line; false when there is none. */
static bool parse_when(struct script *s, char **text, struct script_when *ret_when)
{
    char *p = *text;
    uint64_t now = s->started ? tcp_rig_now(&s->rig) : 0;
    if (p[0] == '*' && p[1] == ' ') {
        *ret_when = (struct script_when){now, now + WHENEVER_NS};
        p++;
    } else if (*p == '+') {
        script_start(s);
        p++;
        uint64_t lo = parse_seconds(s, &p), hi = lo;
        if (*p == '~') {
            p++;
            hi = parse_seconds(s, &p);
        }
        *ret_when = (struct script_when){s->base_at + lo, s->base_at + hi};
    } else if (isdigit((unsigned char)*p)) {
        script_start(s);
        uint64_t at = s->start_at + parse_seconds(s, &p);
        *ret_when = (struct script_when){at, at};
    } else {
        return false;
    }
    *text = p + strspn(p, " \t");
    return true;
}

static void wait_until(struct script *s, uint64_t at)
{
    if (at < tcp_rig_now(&s->rig))
        script_fail(s, "that time has passed");
    script_no_output(s);
    script_run_until(s, at, true);
    script_no_output(s);
    s->base_at = at;
}

static void run_line(struct script *s, char *text)
{
    struct script_when when = {0};
    bool timed = parse_when(s, &text, &when);
    if (text[0] == '>') {
        script_start(s);
        if (!timed)
            when.earliest = when.latest = tcp_rig_now(&s->rig);
        when.earliest -= s->tolerance_ns;
        when.latest += s->tolerance_ns;
        script_expect(s, text + 1 + strspn(text + 1, " \t"), &when);
        return;
    }
    if (timed)
        wait_until(s, when.latest);
    else if (s->started)
        s->base_at = tcp_rig_now(&s->rig);
    if (text[0] == '<') {
        bool more = text[1] == '<';
        text += 1 + more;
        script_inject(s, text + strspn(text, " \t"), more);
    } else {
        script_command(s, text);
    }
}

/* --- files --- */

static void run_lines(struct script *s, char **lines, unsigned n)
{
    struct loop loops[LOOPS_MAX];
    unsigned depth = 0;
    int64_t vars[VARIABLES_MAX] = {0};
    for (unsigned i = 0; i < n; i++) {
        s->line = i + 1;
        expand(s, lines[i], vars);
        long long first, last;
        char name;
        if (s->text[0] == 0)
            continue;
        if (sscanf(s->text, "for %c %lli %lli", &name, &first, &last) == 3) {
            if (depth == LOOPS_MAX || name < 'a' || name > 'z')
                script_fail(s, "loops nest up to %d and run over a to z", LOOPS_MAX);
            loops[depth++] = (struct loop){i, first, last, name};
            vars[name - 'a'] = first;
        } else if (strcmp(s->text, "end") == 0) {
            if (depth == 0)
                script_fail(s, "'end' without 'for'");
            struct loop *l = &loops[depth - 1];
            if (l->value < l->last) {
                vars[l->name - 'a'] = ++l->value;
                i = l->first_line;
            } else {
                depth--;
            }
        } else {
            run_line(s, s->text);
        }
    }
    if (depth)
        script_fail(s, "'for' without 'end'");
    script_start(s);
    script_no_output(s);
}

static unsigned read_lines(const char *path, char **lines)
{
    FILE *f = fopen(path, "r");
    unsigned n = 0;
    size_t size = 0;
    if (!f)
        return 0;
    while (n < LINES_MAX && getline(&lines[n], &size, f) > 0) {
        n++;
        size = 0;
        lines[n] = NULL;
    }
    fclose(f);
    return n;
}

/* The end of a long transcript is what tells. */
static void report_tail(FILE *report, const char *transcript, size_t len)
{
    const char *p = transcript + len;
    for (unsigned n = 0; p > transcript && n < 60; p--)
        n += p[-1] == '\n';
    if (p > transcript) {
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
    while (*p) {
        size_t n = strcspn(p, "\n");
        fprintf(report, "#   %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static void script_init(struct script *s, const char *path, FILE *log)
{
    memset(s, 0, sizeof *s);
    s->path = path;
    s->log = log;
    s->arp_auto = true;
    s->chunk = 1000;
    s->tolerance_ns = 1000000;
    s->peer_isn = 0x10000000;
    s->net_opts = (struct net_rig_opts){.mbufs = 4095, .seed = 7};
    s->tcp_opts = (struct tcp_opts){.seed = 7, .cores = 1, .secret = "scripted secret"};
    s->conn = &s->conns[0];
    s->conn->flow = (struct script_flow){.peer_port = 40000, .us_port = 8080};
    s->conn->flow.peer_isn = s->peer_isn;
}

/* False when a line has failed. Apart, so that no local of the caller lives across the jump. */
static bool run_guarded(struct script *s, char **lines, unsigned n)
{
    if (setjmp(s->failed))
        return false;
    run_lines(s, lines, n);
    return true;
}

bool script_run(const char *path, FILE *report)
{
    char **lines = calloc(LINES_MAX + 1, sizeof *lines);
    struct script *s = calloc(1, sizeof *s);
    char *transcript = NULL;
    size_t transcript_len = 0;
    if (!lines || !s)
        abort();
    FILE *log = open_memstream(&transcript, &transcript_len);
    unsigned n = read_lines(path, lines);
    script_init(s, path, log);
    bool ok = n > 0 && run_guarded(s, lines, n);
    fflush(log);
    if (n == 0) {
        fprintf(report, "# %s: can't be read, or is empty\n", path);
    } else if (!ok) {
        fprintf(report, "# %s:%u: %s\n#   in: %s\n", path, s->line, s->error, s->text);
        report_tail(report, transcript, transcript_len);
    }
    if (s->started) {
        script_app_end(s);
        tcp_rig_fini(&s->rig);
        kit_pool_free(s->frames);
    }
    fclose(log);
    free(transcript);
    for (unsigned i = 0; lines[i]; i++)
        free(lines[i]);
    free(lines);
    free(s);
    return ok;
}
