/* Each record of a store with what its manifest's header says, in the order of ids.
 *
 * What is known from an earlier listing (heads.h) is not read again. In a bucket that costs the
 * pages of the listing and nothing else, since those tell the etags of meta.json and of the
 * manifest; in a directory, a look at the time of the record's folder, which changes with every
 * object in it. What is not known costs two reads: meta.json, as only its own bytes say which
 * generation is committed, and the manifest's header. In a bucket many are read at once. */
#ifndef CAIRN_STORE_LISTER_H
#define CAIRN_STORE_LISTER_H

#include "store/heads.h"
#include "store/manifest.h"
#include "store/store.h"

struct lister_entry {
    const char *id;
    int rc; /* why the record cannot be read: err; head is then of no meaning */
    const struct cairn_error *err;
    const struct head *head;
};

/* Non-zero: no more. */
typedef int lister_fn(void *ctx, const struct lister_entry *e);

/* prefix (of ids) and after may be NULL; at most limit records. fn is called by the caller's
 * thread. */
CAIRN_MUST_CHECK int lister_run(struct cairn_store *s, const struct cairn_op *op,
                                const char *prefix, const char *after, uint64_t limit,
                                lister_fn *fn, void *ctx, struct cairn_error *err);

/* One record's, read. gen is "" on return if it was not found out. meta_st: of meta.json as it was
 * read; may be NULL. */
CAIRN_MUST_CHECK int lister_read(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                 char gen[GEN_TEXT], struct manifest_info *info,
                                 struct backend_stat *meta_st, struct cairn_error *err);

#endif
