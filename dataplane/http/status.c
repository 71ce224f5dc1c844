#include "dataplane/http/status.h"

#include <string.h>

#include "dataplane/http/h1/writer.h"

static void put_digits(char *to, unsigned n, unsigned digits)
{
    while (digits--) {
        to[digits] = (char)('0' + n % 10);
        n /= 10;
    }
}

struct civil {
    unsigned year, month, day; /* month 0 to 11, day from 1 */
};

/* Days since 1970-01-01 to a date, in years that begin in March. (gmtime_r takes a lock.) */
static struct civil civil_of(uint64_t days)
{
    uint64_t z = days + 719468; /* since 0000-03-01 */
    uint64_t era = z / 146097, doe = z % 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    uint64_t month = (5 * doy + 2) / 153; /* from March */
    return (struct civil){.year = (unsigned)(era * 400 + yoe + (month >= 10)),
                          .month = (unsigned)((month + 2) % 12),
                          .day = (unsigned)(doy - (153 * month + 2) / 5 + 1)};
}

const char *http_date_get(struct http_date *d, uint64_t unix_seconds)
{
    static const char weekdays[] = "ThuFriSatSunMonTueWed"; /* from the day of the epoch */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if (d->second_ == unix_seconds && d->text[0])
        return d->text;
    uint64_t days = unix_seconds / 86400;
    unsigned second = (unsigned)(unix_seconds % 86400);
    struct civil c = civil_of(days);
    memcpy(d->text, "Ddd, dd Mmm yyyy hh:mm:ss GMT", sizeof(d->text));
    memcpy(d->text, weekdays + 3 * (days % 7), 3);
    put_digits(d->text + 5, c.day, 2);
    memcpy(d->text + 8, months + 3 * c.month, 3);
    put_digits(d->text + 12, c.year, 4);
    put_digits(d->text + 17, second / 3600, 2);
    put_digits(d->text + 20, second / 60 % 60, 2);
    put_digits(d->text + 23, second % 60, 2);
    d->second_ = unix_seconds;
    return d->text;
}

const char *http_status_reason(int status)
{
    switch (status) {
#define STATUS(code, text)                                                                         \
    case code:                                                                                     \
        return text;
#include "dataplane/http/status.def"
#undef STATUS
    default:
        return "";
    }
}

static void put_fields(struct h1_writer *w, const struct http_answer *a)
{
    /* RFC 9110 §15.5.6 wants Allow with every 405. */
    if (a->status == 405)
        H1_PUT(w, "Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n");
    if (a->retry_after) {
        H1_PUT(w, "Retry-After: ");
        h1_put_number(w, a->retry_after);
        H1_PUT(w, "\r\n");
    }
    if (a->date) {
        H1_PUT(w, "Date: ");
        h1_put_text(w, a->date);
        H1_PUT(w, "\r\n");
    }
    if (a->put)
        a->put(w, a->ctx);
    if (!a->keep_alive)
        H1_PUT(w, "Connection: close\r\n");
}

static void put_body(struct h1_writer *w, const struct http_answer *a, const char *reason)
{
    if (a->body) {
        h1_put_text(w, a->body);
        return;
    }
    h1_put_number(w, (uint64_t)a->status);
    H1_PUT(w, " ");
    h1_put_text(w, reason);
    H1_PUT(w, "\n");
}

int http_answer_write(struct rope_pool *pool, struct rope *out, const struct http_answer *a)
{
    const char *reason = http_status_reason(a->status);
    struct h1_writer w;
    h1_writer_begin(&w, pool);
    H1_PUT(&w, "HTTP/1.1 ");
    h1_put_number(&w, (uint64_t)a->status);
    H1_PUT(&w, " ");
    h1_put_text(&w, reason);
    if (a->body)
        H1_PUT(&w, "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ");
    else
        H1_PUT(&w, "\r\nContent-Type: text/plain\r\nContent-Length: ");
    h1_put_number(&w, a->body ? strlen(a->body) : strlen(reason) + 5);
    H1_PUT(&w, "\r\n");
    put_fields(&w, a);
    H1_PUT(&w, "\r\n");
    if (!a->head_request)
        put_body(&w, a, reason);
    return h1_writer_commit(&w, out);
}
