/* The three text forms of time that S3 uses. All values are seconds or nanoseconds since 1970, UTC;
 * no function looks at the locale or the time zone. Pure functions, thread-safe. */
#ifndef CAIRN_S3_STAMP_H
#define CAIRN_S3_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#define STAMP_AMZ_TEXT 17 /* "20130524T000000Z" and a NUL */

/* The form that a signature carries. Years outside 0 to 9999 are clamped. */
void stamp_amz(int64_t seconds, char out[STAMP_AMZ_TEXT]);

/* "2026-11-29T19:33:17.893Z", with or without fraction, "Z" or an offset ("+01:00"). The fraction
 * is kept to the nanosecond. False for anything else. */
bool stamp_parse_iso(const char *text, int64_t *ns);

/* "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, IMF-fixdate). False for anything else. */
bool stamp_parse_http(const char *text, int64_t *seconds);

#endif
