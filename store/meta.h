/* What Cairn itself writes into, and reads from, a meta.json, which is otherwise the caller's. */
#ifndef CAIRN_STORE_META_H
#define CAIRN_STORE_META_H

#include "base/buf.h"
#include "store/walk.h"

struct cairn_expect;

/* {"id": ID, "created": now}, now in RFC 3339 with nanoseconds. */
CAIRN_MUST_CHECK int meta_default(const char *id, struct buf *out, struct cairn_error *err);

/* Invalid, with file and both sizes, when files lacks one of expect, or one that the member
 * "cairn_expect" of meta (if that is a JSON object with one) names, with exactly that size. */
CAIRN_MUST_CHECK int meta_check_expected(const void *meta, size_t meta_len,
                                         const struct cairn_expect *expect, size_t n_expect,
                                         const struct walk *files, struct cairn_error *err);

#endif
