/* Clocks and the text form of time. All values are nanoseconds in int64_t. Thread-safe. */
#ifndef CAIRN_BASE_CLOCK_H
#define CAIRN_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000LL

int64_t clock_monotonic(void); /* deadlines */
int64_t clock_boottime(void);  /* bounds that must also count a suspended machine */
int64_t clock_realtime(void);  /* stamps for people; never compared with another clock's */

#define CLOCK_RFC3339_MAX 40

/* "2026-11-29T19:09:19.123456789Z". Years 0 to 9999; anything else is clamped to them. */
void clock_rfc3339(int64_t realtime_ns, char out[CLOCK_RFC3339_MAX]);

/* Nanoseconds of a number of seconds that came from outside: NaN, negative: fallback; too large:
 * the largest that can be added to any clock value. */
int64_t clock_from_seconds(double seconds, int64_t fallback_ns);

/* a + b, saturated. */
int64_t clock_add(int64_t a, int64_t b);

#endif
