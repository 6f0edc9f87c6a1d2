#include "s3/stamp.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void stamp_amz(int64_t seconds, char out[STAMP_AMZ_TEXT])
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!gmtime_r(&t, &tm))
        tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    int year = tm.tm_year + 1900;
    year = year < 0 ? 0 : year > 9999 ? 9999 : year;
    snprintf(out, STAMP_AMZ_TEXT, "%04u%02u%02uT%02u%02u%02uZ", (unsigned)year % 10000u,
             (unsigned)(tm.tm_mon + 1) % 100u, (unsigned)tm.tm_mday % 100u,
             (unsigned)tm.tm_hour % 100u, (unsigned)tm.tm_min % 100u, (unsigned)tm.tm_sec % 100u);
}

/* Exactly n digits; moves *text past them. */
static bool digits(const char **text, int n, int *out)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        char c = (*text)[i];
        if (c < '0' || c > '9')
            return false;
        v = v * 10 + (c - '0');
    }
    *text += n;
    *out = v;
    return true;
}

static bool literal(const char **text, char c)
{
    if (**text != c)
        return false;
    (*text)++;
    return true;
}

static bool clock_time(const char **p, struct tm *tm)
{
    return digits(p, 2, &tm->tm_hour) && literal(p, ':') && digits(p, 2, &tm->tm_min) &&
           literal(p, ':') && digits(p, 2, &tm->tm_sec);
}

static bool to_seconds(struct tm *tm, int64_t *out)
{
    if (tm->tm_mon < 0 || tm->tm_mon > 11 || tm->tm_mday < 1 || tm->tm_mday > 31 ||
        tm->tm_hour > 23 || tm->tm_min > 59 || tm->tm_sec > 60)
        return false;
    *out = timegm(tm);
    return true;
}

static bool fraction(const char **p, int64_t *ns)
{
    *ns = 0;
    if (!literal(p, '.'))
        return true;
    int64_t unit = NS_PER_S / 10;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        *ns += (**p - '0') * unit;
        unit /= 10;
    }
    return true;
}

static bool offset(const char **p, int64_t *seconds)
{
    *seconds = 0;
    if (literal(p, 'Z'))
        return true;
    int sign = literal(p, '+') ? 1 : literal(p, '-') ? -1 : 0;
    int hours, minutes;
    if (!sign || !digits(p, 2, &hours) || !literal(p, ':') || !digits(p, 2, &minutes))
        return false;
    *seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

bool stamp_parse_iso(const char *text, int64_t *ns)
{
    const char *p = text;
    struct tm tm = {0};
    int64_t seconds, frac, off;
    if (!digits(&p, 4, &tm.tm_year) || !literal(&p, '-') || !digits(&p, 2, &tm.tm_mon) ||
        !literal(&p, '-') || !digits(&p, 2, &tm.tm_mday) || !literal(&p, 'T') ||
        !clock_time(&p, &tm) || !fraction(&p, &frac) || !offset(&p, &off) || *p)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    if (!to_seconds(&tm, &seconds))
        return false;
    seconds -= off;
    /* An int64_t of nanoseconds ends in 2262. */
    if (seconds > INT64_MAX / NS_PER_S - 1 || seconds < INT64_MIN / NS_PER_S + 1)
        return false;
    *ns = seconds * NS_PER_S + frac;
    return true;
}

bool stamp_parse_http(const char *text, int64_t *seconds)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const char *p = strchr(text, ',');
    struct tm tm = {0};
    if (!p || p - text != 3)
        return false;
    p++;
    if (!literal(&p, ' ') || !digits(&p, 2, &tm.tm_mday) || !literal(&p, ' '))
        return false;
    tm.tm_mon = -1;
    for (int i = 0; i < 12; i++)
        if (strncmp(p, months + 3 * i, 3) == 0)
            tm.tm_mon = i;
    if (tm.tm_mon < 0)
        return false;
    p += 3;
    if (!literal(&p, ' ') || !digits(&p, 4, &tm.tm_year) || !literal(&p, ' ') ||
        !clock_time(&p, &tm) || strcmp(p, " GMT") != 0)
        return false;
    tm.tm_year -= 1900;
    return to_seconds(&tm, seconds);
}
