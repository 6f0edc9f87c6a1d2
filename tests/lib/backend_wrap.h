/* What wrappers around a backend rest on: a table that passes every call on to what is wrapped, in
 * which a wrapper puts its own functions in place of those it changes. It has the kind of what it
 * wraps, an open_fd only if that has one, and no list_folders. */
#ifndef CAIRN_TESTS_BACKEND_WRAP_H
#define CAIRN_TESTS_BACKEND_WRAP_H

#include "store/backend.h"

/* The first member of every wrapper. */
struct wrap {
    struct backend base;
    struct backend_ops ops;
    struct backend *inner; /* owned; freed by the wrapper's own free, which has no default */
};

struct wrap_iter {
    struct backend_iter base;
    struct backend *backend; /* the wrapper */
    struct backend_iter *inner;
};

struct wrap_upload {
    struct backend_upload base; /* its fd is the inner one's, its backend the wrapper */
    struct backend_upload *inner;
};

/* inner is transferred. */
void wrap_init(struct wrap *w, struct backend *inner);
struct backend *wrap_inner(struct backend *b);

/* Of the table, for wrappers that do something before or after. */
CAIRN_MUST_CHECK int wrap_list(struct backend *b, const struct cairn_op *op, const char *prefix,
                               const char *after, struct backend_iter **out,
                               struct cairn_error *err);
CAIRN_MUST_CHECK int wrap_iter_next(struct backend_iter *it, const struct cairn_op *op,
                                    struct backend_entry *out, struct cairn_error *err);
CAIRN_MUST_CHECK int wrap_upload_new(struct backend *b, const struct cairn_op *op,
                                     struct backend_upload **out, struct cairn_error *err);
CAIRN_MUST_CHECK int wrap_upload_commit(struct backend_upload *up, const struct cairn_op *op,
                                        const char *key, uint64_t size, struct cairn_error *err);

#endif
