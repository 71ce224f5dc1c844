/* reference metrics|reasons         prints the page
 * reference metrics|reasons FILE    compares FILE with it: 0 the same, 1 not
 *
 * docs/metrics.md is what the program itself writes for a scrape; docs/reasons.md is made of the
 * tables that the program is made of. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/metrics_text.h"

/* --- metrics -----------------------------------------------------------------------------------
 */

/* One of everything that has numbers. */
static void fill(struct core_status *s)
{
    static const struct task_kind kind = {.name = "client"};

    memset(s, 0, sizeof(*s));
    s->tsc_hz = 1;
    s->nkinds = 1;
    s->kinds[0].kind = &kind;
    s->nlisteners = 1;
    strcpy(s->listeners[0].name, "name");
    s->nupstreams = 1;
    strcpy(s->upstreams[0].name, "name");
    s->nendpoints = 1;
}

static char *a_scrape(void)
{
    static struct core_status s;
    struct status_view v = {.ncores = 1, .cores[0] = {true, true, &s}};
    struct process_info p = {.version = "", .build = "", .dpdk = "", .state = "", .nports = 1};
    static const struct process_cert cert = {"", "", "", "", 0};
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    p.certs = &cert;
    p.ncerts = p.npool = 1;
    p.pool[0].name = "";
    p.ports[0].name = p.ports[0].device = p.ports[0].info.driver = "";
    fill(&s);
    if (!f || metrics_write(f, &p, &v) || fclose(f))
        exit(2);
    return text;
}

/* The labels of a sample: x{a="1",b="2"} 3 → "`a` `b`". `le` is Prometheus' own. */
static void labels_of(const char *sample, char *buf, size_t size)
{
    const char *end = sample + strcspn(sample, " \n"),
               *p = memchr(sample, '{', (size_t)(end - sample));
    size_t n = 0;

    buf[0] = '\0';
    while (p && p < end && *p != '}') {
        size_t len = strcspn(++p, "=");
        if (len != 2 || memcmp(p, "le", 2) != 0)
            n += (size_t)snprintf(buf + n, size - n, "%s`%.*s`", n ? " " : "", (int)len, p);
        p = strchr(p + len + 2, '"') + 1;
    }
}

/* "loop_passes_total" → "loop"; what is alone in its group is of the process. */
static const char *group_of(const char *name)
{
    static const char *const alone[] = {"build", "draining", "start"};
    static char group[64];

    snprintf(group, sizeof(group), "%.*s", (int)strcspn(name, "_ "), name);
    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
        if (strcmp(group, alone[i]) == 0)
            return "process";
    return group;
}

static void family(FILE *f, const char *help_line, char *group)
{
    const char *name = help_line + strlen("# HELP "), *help = strchr(name, ' ') + 1;
    const char *type_line = strchr(help, '\n') + 1, *type = strchr(type_line + 7, ' ') + 1;
    const char *sample = strchr(type, '\n') + 1, *short_name = name + strlen("millrace_");
    char labels[128];

    if (strcmp(group, group_of(short_name)) != 0) {
        snprintf(group, 64, "%s", group_of(short_name));
        fprintf(f, "\n## %s\n\n| name | type | labels | meaning |\n|---|---|---|---|\n", group);
    }
    labels_of(*sample == '#' ? "" : sample, labels, sizeof(labels));
    fprintf(f, "| `%.*s` | %.*s | %s | %.*s |\n", (int)strcspn(name, " "), name,
            (int)strcspn(type, "\n"), type, labels, (int)strcspn(help, "\n"), help);
}

/* In the order of the groups' first metrics. */
static void metrics(FILE *f)
{
    char *text = a_scrape(), *groups[128], group[64] = "";
    unsigned n = 0, i;

    fputs("<!-- Generated from what the program emits by `reference metrics`; don't edit. -->\n"
          "# Metrics\n\n"
          "`admin.metrics` is an address of the host's (not of Millrace's ports), best its "
          "loopback:\n"
          "`http://ADDRESS/metrics` has these in Prometheus' text format 0.0.4. The same numbers "
          "are in\n"
          "`millrace status --json`, under the same names without `millrace_` and `_total`.\n\n"
          "- **Names are stable**; new ones may come. Counters count since the process started\n"
          "  (`millrace_start_time_seconds`).\n"
          "- `core` numbers the cores from 0 in the order of `runtime.cores`. A core that doesn't "
          "answer\n"
          "  within a second has `millrace_core_up` 0 and no other sample in that scrape.\n"
          "- Listeners and upstreams are summed over the cores, and named as the configuration "
          "does.\n"
          "- Labels that hold text of the configuration are escaped; what isn't printable ASCII is "
          "`?`.\n"
          "- Codes in `reason` labels are in [reasons.md](reasons.md).\n\n"
          "| to see | ask |\n|---|---|\n"
          "| how busy a core is | `rate(millrace_core_busy_seconds_total[1m]) / "
          "rate(millrace_core_seconds_total[1m])` |\n"
          "| what a packet may have to wait, p99 | "
          "`histogram_quantile(0.99, rate(millrace_loop_pass_seconds_bucket[1m]))` |\n"
          "| amplification by retries | `rate(millrace_upstream_attempts_total[1m]) / "
          "rate(millrace_upstream_requests_total[1m])` |\n"
          "| how well pools work | `rate(millrace_upstream_reused_total[1m]) / "
          "(rate(millrace_upstream_reused_total[1m]) + "
          "rate(millrace_upstream_connects_total[1m]))` |\n"
          "| whether a reload was refused | `millrace_config_last_reload_success == 0` |\n",
          f);
    for (const char *p = text; (p = strstr(p, "# HELP millrace_")); p++) {
        const char *of = group_of(p + strlen("# HELP millrace_"));
        for (i = 0; i < n && strcmp(groups[i], of) != 0; i++)
            ;
        if (i == n)
            groups[n++] = strdup(of);
    }
    for (i = 0; i < n; i++) {
        for (const char *p = text; (p = strstr(p, "# HELP millrace_")); p++)
            if (strcmp(groups[i], group_of(p + strlen("# HELP millrace_"))) == 0)
                family(f, p, group);
        free(groups[i]);
    }
    free(text);
}

/* --- reasons -----------------------------------------------------------------------------------
 */

struct code {
    const char *name, *text;
};

#define CODE(name, text) {#name, text},
static const struct code reasons[] = {
#define REASON(name, text) CODE(name, text)
#include "dataplane/proxy/reason.def"
#undef REASON
};
static const struct code http_errors[] = {
#define ERROR(name, status, text) CODE(name, text)
#include "dataplane/http/error.def"
#undef ERROR
};
static const struct code net_drops[] = {
#define DROP(name, text) CODE(name, text)
#include "dataplane/net/drop.def"
#undef DROP
};
static const struct code tcp_drops[] = {
#define DROP(name, text) CODE(name, text)
#include "dataplane/tcp/drop.def"
#undef DROP
};
static const struct code verdicts[] = {
#define VERDICT(name, text) CODE(name, text)
#include "control/verdict.def"
#undef VERDICT
};
static const struct code probes[] = {
#define PROBE(name, text) CODE(name, text)
#include "dataplane/upstream/probe.def"
#undef PROBE
};
static const struct code tls_fails[] = {
#define TLS_FAIL(name, text) CODE(name, text)
#include "dataplane/tls/fail.def"
#undef TLS_FAIL
};
static const struct code turned_away[] = {
#define TURNED_AWAY(name, text) CODE(name, text)
#include "dataplane/proxy/turned_away.def"
#undef TURNED_AWAY
};
static const struct code conn_states[] = {
#define CONN_STATE(name, text) CODE(name, text)
#include "dataplane/proxy/conn_state.def"
#undef CONN_STATE
};

struct field {
    const char *name, *type, *presence, *text, *help;
};

static const struct field fields[] = {
#define ALWAYS                                      ""
#define SOMETIMES                                   ", when there is one"
#define LOG_FIELD(name, type, presence, text, help) {#name, type, presence, text, help},
#include "control/log_fields.def"
#undef LOG_FIELD
};

/* Codes are lower-case wherever they are shown. */
static void print_code(FILE *f, const struct code *c)
{
    fputs("| `", f);
    for (const char *p = c->name; *p; p++)
        fputc(tolower((unsigned char)*p), f);
    fprintf(f, "` | %s |\n", c->text);
}

static void codes(FILE *f, const char *title, const char *intro, const struct code *c, size_t n)
{
    fprintf(f, "\n## %s\n\n%s\n\n| code | meaning |\n|---|---|\n", title, intro);
    for (size_t i = 0; i < n; i++)
        print_code(f, &c[i]);
}

#define CODES(f, title, intro, c) codes(f, title, intro, c, sizeof(c) / sizeof(c[0]))

static void access_log(FILE *f)
{
    fputs(
        "\n## The access log\n\n"
        "A record for every request of an HTTP listener, and for every tunnel when it ends, where\n"
        "`access_log` is on. It goes to\n"
        "`log.access`, in the format that `log.format` says:\n\n"
        "- `json`: an object a line, with the keys below in this order. Bytes over 0x7f are taken "
        "for\n"
        "  Latin-1, so that every record is valid JSON.\n"
        "- `text`: the common log format, then fields as `name=value`:\n"
        "  `10.77.0.2 - - [01/Jan/2026:00:00:00 +0000] \"GET /a HTTP/1.1\" 200 612 "
        "client_port=40000 "
        "host=\"a\" …`.\n"
        "  Bytes that aren't printable ASCII, quotes and backslashes are `\\xNN`.\n\n"
        "Every line is one record: nothing that a client sends can break a line or forge a field. "
        "A\n"
        "record that finds its core's ring full, or its file not writable, is dropped and counted\n"
        "(`millrace_proxy_access_log_dropped_total`, `millrace_log_access_records_lost_total`).\n\n"
        "| field | type | in text | meaning |\n|---|---|---|---|\n",
        f);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *d = &fields[i];
        fprintf(f, "| `%s` | %s%s | ", d->name, d->type, d->presence);
        if (*d->text)
            fprintf(f, "%s", d->text);
        else
            fprintf(f, "`%s=`", d->name);
        fprintf(f, " | %s |\n", d->help);
    }
}

static void reasons_page(FILE *f)
{
    fputs("<!-- Generated from the program's tables by `reference reasons`; don't edit. -->\n"
          "# Reasons\n\n"
          "Every request ends with exactly one reason, every packet too. The codes are stable; new "
          "ones\n"
          "may come.\n",
          f);
    access_log(f);
    CODES(f, "How a request ends",
          "`reason` in the access log. `ok` is a response that was relayed whole, whatever its "
          "status;\n"
          "all others are answers that Millrace made itself, or ends without one. Which attempt it "
          "was\n"
          "is in `attempts`, which endpoint in `endpoint`.",
          reasons);
    CODES(f, "How a connection ends before its protocol begins",
          "`reason` of `millrace_listener_turned_away_total`; `turned_away` of a listener in the "
          "status.\n"
          "All of them are resets, but for a `proxy_cut` that left no byte unread. Access lists "
          "and limits "
          "have metrics of their own.",
          turned_away);
    CODES(f, "How a TLS handshake fails",
          "`reason` of `millrace_tls_handshakes_failed_total`; `tls.failed` of a core in the "
          "status.",
          tls_fails);
    codes(
        f, "What is wrong with a message",
        "`http_error` in the access log: of a request that was refused, or of a response that was\n"
        "not passed on (`upstream_malformed`).",
        http_errors + 1, sizeof(http_errors) / sizeof(http_errors[0]) - 1);
    CODES(f, "How the network layer lets go of a packet",
          "`reason` of `millrace_net_packets_total`; `net.drops` in the status.", net_drops);
    CODES(f, "How TCP lets go of a segment",
          "`reason` of `millrace_tcp_segments_total`; `tcp.drops` in the status.", tcp_drops);
    CODES(f, "Why an endpoint is used, or isn't",
          "The log says so, in these words, whenever what is known of an endpoint changes.",
          verdicts);
    CODES(f, "How a probe ends", "`probe` of an endpoint in the status: its last one.", probes);
    CODES(f, "What a connection is doing",
          "`state` in `millrace conns`. TCP's own state beside it has the RFC's names.",
          conn_states);
}

/* --- the same or not ---------------------------------------------------------------------------
 */

static int is_same(const char *path, const char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    char *found = malloc(size + 1);
    int same = f && found && fread(found, 1, size + 1, f) == size && !memcmp(found, text, size);

    if (f)
        fclose(f);
    free(found);
    return same;
}

int main(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int status = 0;

    if (argc < 2 || !f)
        return 2;
    (strcmp(argv[1], "metrics") == 0 ? metrics : reasons_page)(f);
    fclose(f);
    if (argc == 2) {
        fwrite(text, 1, size, stdout);
    } else if (!is_same(argv[2], text, size)) {
        fprintf(stderr, "%s is out of date: \"%s %s\" prints the page\n", argv[2], argv[0],
                argv[1]);
        status = 1;
    }
    free(text);
    return status;
}
