/* The JSON body of a request. */
#ifndef CAIRN_SERVICE_BODY_H
#define CAIRN_SERVICE_BODY_H

#include "base/buf.h"
#include "base/jval.h"

#include <stddef.h>

/* Parse text, which may be changed, into an object; *out is NULL for no bytes or only white space.
 * Numbers too large for their type become the largest there is of it, instead of a syntax error.
 * Errors: invalid (no JSON, no object, nested deeper than 32), internal. */
CAIRN_MUST_CHECK int body_parse(char *text, size_t len, struct jval **out, struct cairn_error *err);

/* Append what stands for the member of that name in the object that text is, as it is written but
 * for white space: numbers keep all their digits. Nothing where there is none, or where its name is
 * written with escapes. Of text that is no JSON anything may come. internal; invalid: out is full.
 */
CAIRN_MUST_CHECK int body_member(const char *text, size_t len, const char *name, struct buf *out,
                                 struct cairn_error *err);

#endif
