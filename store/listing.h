/* A listing with its keys told apart: what every loop over the objects of a store is written with.
 *
 *     CLEANUP_LISTING struct listing l;
 *     int rc = listing_open(&l, backend, op, LAYOUT_RECORDS, "", err);
 *     while (listing_next(&l, &rc, err))
 *         if (l.key.kind == LAYOUT_KIND_META)
 *             rc = …;
 *
 * Ends at the end, at a failure of the listing or of the body; the body may break at any time. One
 * thread uses it. Blocks as its backend does; the classes are those of the backend. */
#ifndef CAIRN_STORE_LISTING_H
#define CAIRN_STORE_LISTING_H

#include "store/backend.h"

struct listing {
    struct backend_iter *it;   /* owned; NULL: not open */
    const struct cairn_op *op; /* borrowed */
    struct backend_entry
        entry;             /* the object that is looked at; its key is borrowed until the next */
    struct layout_key key; /* what entry.key is */
};

#define CLEANUP_LISTING __attribute__((cleanup(listing_close)))
void listing_close(struct listing *l);

/* prefix and after: as of backend's list. After a failure there is nothing to close. */
CAIRN_MUST_CHECK int listing_open(struct listing *l, struct backend *b, const struct cairn_op *op,
                                  const char *prefix, const char *after, struct cairn_error *err);

/* The next object. False: *rc was a failure already, there is no more, or the listing failed, which
 * then sets *rc and *err. */
CAIRN_MUST_CHECK bool listing_next(struct listing *l, int *rc, struct cairn_error *err);

#endif
