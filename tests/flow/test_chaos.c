/* Clients and origins that say anything in any pieces, stop reading, and go away at any moment, on
 * a wire that loses frames and with a pool that runs dry, and (two seeds of five) under reloads
 * that move listeners and endpoints. From a seed; CHAOS_SEED=N runs that one.
 *
 * Whatever they do: nothing is left over at the end, no exchange outlasts its deadline, and what a
 * client reads are whole, well-formed answers, or a connection that is visibly cut. */
#include "dataplane/proxy/access_log.h"
#include "runtime/rng.h"
#include "tests/flow/chaos.h"
#include "tests/kit/http_reader.h"

#define SEEDS       40
#define ROUNDS      400
#define USERS       8
#define MAX_ORIGINS 512
#define NO_LENGTH   SIZE_MAX
#define REQUEST_NS  (8 * WORLD_S)

/* Bytes to be sent by and by. */
struct speech {
    struct text text;
    size_t said;
};

struct user {
    struct peer *p;
    struct reader reader;
    struct speech speech;
    bool polite;  /* well-formed requests of HTTP/1.1 only, and no half-close */
    size_t read;  /* of p->rx, by the reader */
    size_t meant; /* X-Len of the present answer */
    unsigned asked, answered;
};

struct origin {
    struct peer *p;
    struct speech speech;
    size_t seen;
};

struct chaos {
    struct world *w;
    struct rng rng;
    struct rope_pool ropes; /* of the readers */
    struct user users[USERS];
    struct origin origins[MAX_ORIGINS];
    unsigned norigins;
    uint64_t records;
};

static uint32_t one_of(struct chaos *x, uint32_t n)
{
    return rng_below(&x->rng, n);
}

#define ANY(x, list) (list)[one_of((x), sizeof(list) / sizeof((list)[0]))]

static void add_noise(struct chaos *x, struct text *t)
{
    for (uint32_t n = 1 + one_of(x, 40); n; n--)
        text_add(t, &(char){(char)rng_next(&x->rng)}, 1);
}

static void add_mutated(struct chaos *x, struct text *t, const char *from)
{
    size_t at = t->len, len = strlen(from);
    text_add(t, from, one_of(x, 4) ? len : one_of(x, (uint32_t)len + 1));
    for (uint32_t n = one_of(x, 3); n && t->len > at; n--)
        t->buf[at + one_of(x, (uint32_t)(t->len - at))] = "\r\n :;,0a\xff"[one_of(x, 9)];
}

static void add_padding(struct chaos *x, struct text *t)
{
    uint32_t n = 1 + one_of(x, 5000);
    text_addf(t, "X-Pad: ");
    while (n--)
        text_add(t, "p", 1);
    text_addf(t, "\r\n");
}

/* As it is, or with a header so long that the head fills more than one segment. */
static void add_request(struct chaos *x, struct text *t, const char *request)
{
    const char *fields = strstr(request, "\r\n") + 2;
    text_add(t, request, (size_t)(fields - request));
    if (one_of(x, 4) == 0)
        add_padding(x, t);
    text_add(t, fields, strlen(fields));
    if (strstr(request, " 20000"))
        for (int i = 0; i < 20000; i++)
            text_add(t, "u", 1);
}

static void say_some(struct chaos *x, struct peer *p, struct speech *s)
{
    size_t left = s->text.len - s->said;
    if (left == 0 || !p->stream)
        return;
    size_t n = one_of(x, 3) ? left : 1 + one_of(x, (uint32_t)left);
    peer_send(p, s->text.buf + s->said, n);
    s->said += n;
}

/* Users -------------------------------------------------------------------------------------- */

static void on_answer(struct reader *r, const struct rope *payload, const struct rope *trailers)
{
    struct user *u = container_of(r, struct user, reader);
    u->answered += r->head.status >= 200;
    /* What the origin meant to send is what has come. */
    if (u->meant != NO_LENGTH && r->head.framing != HTTP_BODY_NONE && r->body.total != u->meant)
        fail_msg("%zu bytes, not the origin's %zu", (size_t)r->body.total, u->meant);
    (void)payload;
    (void)trailers;
}

static void on_head(struct reader *r, const struct http_head *h)
{
    struct user *u = container_of(r, struct user, reader);
    u->meant = NO_LENGTH;
    for (unsigned i = 0; i < h->nheaders; i++) {
        const struct http_header *f = &h->headers[i];
        if (f->name_len == 5 && memcmp(h->base + f->name_off, "X-Len", 5) == 0)
            u->meant = strtoul(h->base + f->value_off, NULL, 10);
    }
}

static void user_read(struct user *u)
{
    struct peer *p = u->p;
    if (!u->polite || !p->rx || p->rx_len == u->read)
        return;
    reader_feed(&u->reader, p->rx + u->read, p->rx_len - u->read);
    u->read = p->rx_len;
    if (u->reader.failed || u->answered > u->asked) {
        world_dump(p->host->world);
        fail_msg("%u asked, %u answered; malformed: %s\n%s", u->asked, u->answered,
                 u->reader.failed ? "yes" : "no", u->reader.transcript.buf);
    }
}

/* A FIN that the user did not ask for comes after a whole answer. */
static void user_leave(struct user *u)
{
    if (!u->p)
        return;
    user_read(u);
    if (u->polite && u->p->eof && (u->reader.in_body || u->reader.head_bytes.len)) {
        world_dump(u->p->host->world);
        fail_msg("a part was passed off as the whole: %s", u->reader.transcript.buf);
    }
    peer_pause(u->p, false);
    if (u->p->stream)
        peer_abort(u->p);
    u->p = NULL;
    reader_fini(&u->reader);
    text_free(&u->speech.text);
}

static void user_come(struct chaos *x, struct user *u)
{
    memset(u, 0, sizeof(*u));
    u->polite = one_of(x, 2);
    reader_init(&u->reader, &x->ropes, true);
    u->reader.on_payload = on_answer;
    u->reader.on_head = on_head;
    u->p = world_connect(x->w, u->polite || one_of(x, 3) ? 80 : 81);
}

static void user_think(struct chaos *x, struct user *u)
{
    struct text *t = &u->speech.text;
    if (u->polite) {
        add_request(x, t, ANY(x, requests));
        u->asked++;
        return;
    }
    switch (one_of(x, 6)) {
    case 0:
        add_noise(x, t);
        break;
    case 1:
        text_addf(t, "%s / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
                  one_of(x, 2) ? "GET" : "HEAD");
        break;
    case 2:
        text_addf(t, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        break;
    case 3:
        add_request(x, t, ANY(x, requests));
        break;
    default:
        add_mutated(x, t, ANY(x, requests));
    }
}

static void user_act(struct chaos *x, struct user *u)
{
    if (!u->p || !u->p->stream || u->p->eof) {
        user_leave(u);
        user_come(x, u);
        return;
    }
    user_read(u);
    uint32_t what = one_of(x, 100);
    if (what < 40)
        user_think(x, u);
    if (what < 80)
        say_some(x, u->p, &u->speech);
    else if (what < 90)
        peer_pause(u->p, !u->p->paused);
    else if (what < 94 && !u->polite)
        peer_shutdown(u->p);
    else if (what >= 96)
        user_leave(u);
}

/* Origins ------------------------------------------------------------------------------------ */

static void origins_accept(struct chaos *x)
{
    while (!list_is_empty(&x->w->accepted) && x->norigins < MAX_ORIGINS) {
        struct list_node *n = list_pop_head(&x->w->accepted);
        x->origins[x->norigins++] = (struct origin){.p = container_of(n, struct peer, waiting)};
    }
}

/* More than fits into all buffers on its way. */
static void add_big_answer(struct text *t)
{
    static const char some[1000];
    text_addf(t, "HTTP/1.1 200 OK\r\nX-Len: 600000\r\nContent-Length: 600000\r\n\r\n");
    for (int i = 0; i < 600; i++)
        text_add(t, some, sizeof(some));
}

static void origin_think(struct chaos *x, struct origin *o)
{
    struct text *t = &o->speech.text;
    uint32_t what = one_of(x, 20);
    if (what < 1)
        add_big_answer(t);
    else if (what < 14)
        text_addf(t, "%s", ANY(x, answers));
    else if (what < 17)
        text_addf(t, "%s", ANY(x, answers_in_part));
    else if (what < 19)
        add_mutated(x, t, ANY(x, answers_in_part));
    else
        add_noise(x, t);
}

static void origin_act(struct chaos *x, struct origin *o)
{
    if (!o->p->stream)
        return;
    bool news = o->p->rx_len > o->seen;
    o->seen = o->p->rx_len;
    uint32_t what = one_of(x, 100);
    if (news && what < 85)
        origin_think(x, o);
    if (what < 90)
        say_some(x, o->p, &o->speech);
    else if (what < 94)
        peer_pause(o->p, !o->p->paused);
    else if (what < 96)
        peer_shutdown(o->p);
    else if (what < 98)
        peer_close(o->p);
    else
        peer_abort(o->p);
}

/* Reloads ------------------------------------------------------------------------------------ */

/* What a reload may change of chaos_yamls. */
static const char *const edits[][2] = {
    {"10.9.0.1:81\n", "10.9.0.1:83\n"}, /* a tunnel's listener moves */
    {"10.9.0.1:80\n", "10.9.0.1:84\n"}, /* the users' does, out of their sight */
    {"[10.9.0.2:9000, 10.9.0.2:9001]", "[10.9.0.2:9001]"},
    {"[10.9.0.2:9000, 10.9.0.2:9001]", "[10.9.0.2:9001, 10.9.0.2:9000, 10.9.0.2:9999]"},
    {"connections: 6", "connections: 2"},
    {"/none }, upstream: nobody", "/none }, upstream: app"},
    {"name: raw\n", "name: lower\n"},
    {"name: web\n",
     "name: web\n    proxy_protocol: { from: [10.9.0.3], required: false, timeout: 1s }\n"},
    {"name: raw\n",
     "name: raw\n    proxy_protocol: { from: [10.9.0.0/24], required: false, timeout: 1s }\n"},
    {"name: app\n", "name: app\n    proxy_protocol: v1\n"},
    {"tunnel: { upstream: app,", "tunnel: { upstream: app, sni: [{ match: \"*.a\", upstream: "
                                 "nobody }], hello: { not_tls: pass },"},
    {"body: 3s", "body: 2s"},
};

static void edit(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    if (!at)
        return;
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
}

static void reload(struct chaos *x, const char *yaml)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s", yaml);
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++)
        if (one_of(x, 4) == 0)
            edit(text, edits[i][0], edits[i][1]);
    world_publish(x->w, text);
}

/* The run ------------------------------------------------------------------------------------ */

static void check_records(struct chaos *x)
{
    struct access_ring *ring = core_access_ring(x->w->cores[0]);
    struct access_record r;
    while (access_ring_take(ring, &r)) {
        assert_true(r.reason < ACCESS_REASON_COUNT && r.status < 600);
        assert_true(r.version_minor <= 1 && r.attempts <= 3);
        assert_non_null(memchr(r.target, 0, sizeof(r.target)));
        if (r.attempts && r.method[0]) /* a tunnel lives as long as it is used */
            assert_true(r.duration_ns <= REQUEST_NS + WORLD_MS);
        x->records++;
    }
}

static uint64_t pause_of(struct chaos *x)
{
    uint32_t what = one_of(x, 100);
    return what < 85   ? one_of(x, 2000000)
           : what < 98 ? one_of(x, 300000000)
                       : one_of(x, 4) * WORLD_S;
}

static void run(uint64_t seed)
{
    static struct chaos chaos;
    struct chaos *x = &chaos;
    memset(x, 0, sizeof(*x));
    x->rng.state = seed;
    struct world_opts o = {.yaml = chaos_yamls[seed % 2],
                           .seed = seed,
                           .path = {.delay_ns = 100000, .jitter_ns = 50000},
                           .mbufs = 16383,
                           .proxy_mbufs = seed % 3 == 0 ? 300 + one_of(x, 600) : 4095};
    if (seed % 4 == 0)
        o.path.loss_ppm = 20000;
    x->w = world_new(&o);
    rope_pool_init(&x->ropes, x->w->pools[0], 0);
    world_listen(x->w, 9000);
    world_listen(x->w, 9001);
    for (unsigned i = 0; i < ROUNDS; i++) {
        user_act(x, &x->users[one_of(x, USERS)]);
        if (seed % 5 < 2 && one_of(x, 20) == 0)
            reload(x, o.yaml);
        origins_accept(x);
        for (unsigned k = x->norigins > 8 ? x->norigins - 8 : 0; k < x->norigins; k++)
            origin_act(x, &x->origins[k]);
        world_sleep(x->w, pause_of(x));
        check_records(x);
    }
    for (unsigned i = 0; i < USERS; i++)
        user_leave(&x->users[i]);
    for (unsigned i = 0; i < x->norigins; i++)
        text_free(&x->origins[i].speech.text);
    assert_true(x->records > (seed % 5 < 2 ? 4 : 20)); /* or it was no test */
    rope_pool_fini(&x->ropes);
    world_free(x->w);
}

static void whatever_they_do_nothing_breaks_and_nothing_is_left(void **state)
{
    const char *only = getenv("CHAOS_SEED"), *many = getenv("CHAOS_SEEDS");
    uint64_t n = many ? strtoull(many, NULL, 0) : SEEDS;
    if (only) {
        run(strtoull(only, NULL, 0));
        return;
    }
    for (uint64_t seed = 1; seed <= n; seed++) {
        printf("# chaos seed %llu\n", (unsigned long long)seed);
        fflush(stdout);
        run(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_they_do_nothing_breaks_and_nothing_is_left),
    };
    return cmocka_run_group_tests_name("flow_chaos", tests, NULL, NULL);
}
