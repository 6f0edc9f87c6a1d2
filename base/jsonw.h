/* Writing JSON as a stream into a buffer: nothing but the buffer grows with the output, so lists of
 * any length can be sent in pieces (clear the buffer between two elements).
 *
 * Errors are sticky: once memory ran out or the buffer's maximum was met, further calls do nothing;
 * look once, with jsonw_end. Names are given with the value: NULL inside an array or at the top.
 * Strings that are no UTF-8 have each bad byte replaced by U+FFFD; a NUL is one, which many readers
 * of JSON refuse. Not thread-safe. */
#ifndef CAIRN_BASE_JSONW_H
#define CAIRN_BASE_JSONW_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct jsonw {
    struct buf *out; /* borrowed */
    struct cairn_error *err;
    int rc;
    bool comma; /* a value precedes on this level */
};

#define JSONW_INIT(buffer, error) ((struct jsonw){.out = (buffer), .err = (error)})

void jsonw_object(struct jsonw *w, const char *name);
void jsonw_object_end(struct jsonw *w);
void jsonw_array(struct jsonw *w, const char *name);
void jsonw_array_end(struct jsonw *w);
void jsonw_str(struct jsonw *w, const char *name, const char *text);
void jsonw_strn(struct jsonw *w, const char *name, const void *text, size_t len);
/* Bytes that may be any, as name; where they are no UTF-8 without NUL, in hex as name_hex as well.
 */
void jsonw_bytes(struct jsonw *w, const char *name, const void *data, size_t len);
void jsonw_u64(struct jsonw *w, const char *name, uint64_t value);
void jsonw_i64(struct jsonw *w, const char *name, int64_t value);
void jsonw_real(struct jsonw *w, const char *name, double value); /* 6 decimals; NaN, inf: null */
void jsonw_bool(struct jsonw *w, const char *name, bool value);
void jsonw_null(struct jsonw *w, const char *name);
/* RFC 3339 with nanoseconds, as clock_rfc3339 */
void jsonw_time(struct jsonw *w, const char *name, int64_t realtime_ns);
/* An object of class, message and errno. */
void jsonw_error(struct jsonw *w, const char *name, const struct cairn_error *err);
/* text is JSON already */
void jsonw_raw(struct jsonw *w, const char *name, const void *text, size_t len);

/* The first failure, which is in the error given to JSONW_INIT, or CAIRN_OK. */
CAIRN_MUST_CHECK int jsonw_end(struct jsonw *w);

#endif
