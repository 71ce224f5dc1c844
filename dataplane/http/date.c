#include "dataplane/http/date.h"

#include <string.h>

struct civil {
    unsigned year, month, day, hour, minute, second; /* month from 1 */
};

static const char days[] = "MonTueWedThuFriSatSun";
static const char *const long_days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                        "Friday", "Saturday", "Sunday"};
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* The place of the three letters in a list of such, from 1; 0: they aren't there. */
static unsigned find_name(const char *list, const char *name)
{
    for (unsigned i = 0; list[3 * i]; i++)
        if (memcmp(list + 3 * i, name, 3) == 0)
            return i + 1;
    return 0;
}

/* Which number a letter of a shape is a digit of; NULL: none. */
static unsigned *part_of(struct civil *c, char letter)
{
    switch (letter) {
    case 'd':
        return &c->day;
    case 'y':
        return &c->year;
    case 'h':
        return &c->hour;
    case 'm':
        return &c->minute;
    case 's':
        return &c->second;
    default:
        return NULL;
    }
}

/* The text against a shape: d y h m s are digits of a part, _ is one of the day or a space, N are
 * letters of a day's and B of a month's name, and all else is itself. */
static bool match(const char *text, size_t len, const char *shape, struct civil *c)
{
    char name[4] = "", month[4] = "";
    unsigned nname = 0, nmonth = 0;
    if (len != strlen(shape))
        return false;
    for (size_t i = 0; i < len; i++) {
        bool is_padding = shape[i] == '_' && text[i] == ' ';
        unsigned *part = part_of(c, shape[i] == '_' ? 'd' : shape[i]);
        if (shape[i] == 'N')
            name[nname++] = text[i];
        else if (shape[i] == 'B')
            month[nmonth++] = text[i];
        else if (part && text[i] >= '0' && text[i] <= '9')
            *part = *part * 10 + (unsigned)(text[i] - '0');
        else if (part ? !is_padding : text[i] != shape[i])
            return false;
    }
    c->month = find_name(months, month);
    return c->month && (!nname || find_name(days, name));
}

/* "Sunday, ": the day's name of a date of RFC 850; its length, or 0. */
static size_t skip_long_day(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(long_days) / sizeof(long_days[0]); i++) {
        size_t n = strlen(long_days[i]);
        if (len > n + 2 && memcmp(text, long_days[i], n) == 0 && memcmp(text + n, ", ", 2) == 0)
            return n + 2;
    }
    return 0;
}

static bool read_civil(const char *text, size_t len, struct civil *ret)
{
    *ret = (struct civil){0};
    if (match(text, len, "NNN, dd BBB yyyy hh:mm:ss GMT", ret))
        return true;
    *ret = (struct civil){0};
    if (match(text, len, "NNN BBB _d hh:mm:ss yyyy", ret))
        return true;
    *ret = (struct civil){0};
    size_t day = skip_long_day(text, len);
    if (!day || !match(text + day, len - day, "dd-BBB-yy hh:mm:ss GMT", ret))
        return false;
    ret->year += ret->year < 70 ? 2000 : 1900;
    return true;
}

static bool is_leap(unsigned year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static unsigned days_of(unsigned year, unsigned month)
{
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return lengths[month - 1] + (month == 2 && is_leap(year));
}

/* A 60th second is a leap second, and the next minute's first. */
static bool is_sound(const struct civil *c)
{
    return c->year >= 1601 && c->day >= 1 && c->day <= days_of(c->year, c->month) && c->hour < 24 &&
           c->minute < 60 && c->second <= 60;
}

/* Days from 1970-01-01, in years that begin with March. */
static int64_t day_number(const struct civil *c)
{
    int64_t year = (int64_t)c->year - (c->month <= 2);
    int64_t of_year = (153 * ((c->month + 9) % 12) + 2) / 5 + c->day - 1;
    return 365 * year + year / 4 - year / 100 + year / 400 + of_year - 719468;
}

bool http_date_parse(const char *text, size_t len, int64_t *ret_s)
{
    struct civil c;
    if (!read_civil(text, len, &c) || !is_sound(&c))
        return false;
    *ret_s = ((day_number(&c) * 24 + c.hour) * 60 + c.minute) * 60 + c.second;
    return true;
}
