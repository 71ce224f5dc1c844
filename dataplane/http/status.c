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

static void put_error_fields(struct h1_writer *w, int status)
{
    /* RFC 9110 §15.5.6 wants Allow with every 405. */
    if (status == 405)
        H1_PUT(w, "Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n");
    if (status == 503)
        H1_PUT(w, "Retry-After: 1\r\n");
}

int http_error_response(struct rope_pool *pool, struct rope *out, int status, bool keep_alive,
                        bool head_request, const char *date)
{
    const char *reason = http_status_reason(status);
    struct h1_writer w;
    h1_writer_begin(&w, pool);
    H1_PUT(&w, "HTTP/1.1 ");
    h1_put_number(&w, (uint64_t)status);
    H1_PUT(&w, " ");
    h1_put_text(&w, reason);
    H1_PUT(&w, "\r\nContent-Type: text/plain\r\nContent-Length: ");
    h1_put_number(&w, strlen(reason) + 5);
    H1_PUT(&w, "\r\n");
    put_error_fields(&w, status);
    if (date) {
        H1_PUT(&w, "Date: ");
        h1_put_text(&w, date);
        H1_PUT(&w, "\r\n");
    }
    if (keep_alive)
        H1_PUT(&w, "\r\n");
    else
        H1_PUT(&w, "Connection: close\r\n\r\n");
    if (!head_request) {
        h1_put_number(&w, (uint64_t)status);
        H1_PUT(&w, " ");
        h1_put_text(&w, reason);
        H1_PUT(&w, "\n");
    }
    return h1_writer_commit(&w, out);
}
