/* Entity tags and byte ranges (RFC 9110). Pure functions. */
#ifndef CAIRN_SERVICE_ETAG_H
#define CAIRN_SERVICE_ETAG_H

#include <stdbool.h>
#include <stdint.h>

/* Whether an If-None-Match header (NULL: none) names the tag, given without quotes. */
bool etag_matches(const char *header, const char *tag);
/* Whether an If-Range header (NULL: none, which is true) is exactly the tag, strong. */
bool etag_is(const char *header, const char *tag);

enum range_kind { RANGE_ALL, RANGE_PART, RANGE_OUTSIDE };
/* What a Range header (NULL: none) asks of size bytes: *from and *len for RANGE_PART. Anything but
 * one range of bytes is passed over, as the standard allows: RANGE_ALL. */
enum range_kind range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *len);

#endif
