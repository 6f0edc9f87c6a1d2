#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_monotonic(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_boottime(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

int64_t clock_realtime(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_rfc3339(int64_t realtime_ns, char out[CLOCK_RFC3339_MAX])
{
    int64_t ns = realtime_ns % NS_PER_S;
    time_t s = realtime_ns / NS_PER_S;
    if (ns < 0) {
        ns += NS_PER_S;
        s--;
    }
    struct tm tm;
    gmtime_r(&s, &tm);
    /* An int64_t of nanoseconds spans the years 1677 to 2262: four digits always suffice. */
    snprintf(out, CLOCK_RFC3339_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ",
             (tm.tm_year + 1900) % 10000, (tm.tm_mon + 1) % 100, tm.tm_mday % 100, tm.tm_hour % 100,
             tm.tm_min % 100, tm.tm_sec % 100, (int)ns);
}

int64_t clock_from_seconds(double seconds, int64_t fallback_ns)
{
    if (!(seconds >= 0))
        return fallback_ns;
    if (seconds >= (double)(INT64_MAX / NS_PER_S))
        return INT64_MAX;
    return (int64_t)(seconds * (double)NS_PER_S);
}

int64_t clock_add(int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return b > 0 ? INT64_MAX : INT64_MIN;
    return sum;
}
