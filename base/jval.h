/* Reading JSON, by jansson, behind a small face so that its header stays in one file.
 *
 * The root that jval_parse gives is owned by the caller; everything reached from it is borrowed and
 * lives as long as the root. Not thread-safe while being parsed; reading is. */
#ifndef CAIRN_BASE_JVAL_H
#define CAIRN_BASE_JVAL_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct jval;

/* Duplicate keys, trailing bytes, NUL in a string and bad UTF-8 are refused; depth is bounded by
 * jansson (2048). Errors: invalid, with line and column; internal when memory ran out. */
CAIRN_MUST_CHECK int jval_parse(const void *text, size_t len, struct jval **out,
                                struct cairn_error *err);
/* Whether jval_parse would take it, but for integers, which may be of any size up to that of a
 * double: for text that is only passed on. */
bool jval_is_json(const void *text, size_t len);
void jval_free(struct jval *v);
void jval_freep(struct jval **v);
#define CLEANUP_JVAL __attribute__((cleanup(jval_freep)))

bool jval_is_object(const struct jval *v);
bool jval_is_array(const struct jval *v);
/* A member; NULL where v is no object or has no such member. */
const struct jval *jval_get(const struct jval *v, const char *name);
/* NULL / false where v is NULL or of another type. */
const char *jval_str(const struct jval *v);
bool jval_int(const struct jval *v, int64_t *out);
bool jval_real(const struct jval *v, double *out); /* of any number */
bool jval_bool(const struct jval *v, bool *out);
/* Array: number of elements (0 for another type), and the i-th. */
size_t jval_len(const struct jval *v);
const struct jval *jval_at(const struct jval *v, size_t i);

/* Call fn for every member of an object, in order, until it returns non-zero; returns that. */
int jval_each(const struct jval *v,
              int (*fn)(void *ctx, const char *name, const struct jval *value), void *ctx);

#endif
