/* Whole files on the local disk, by content: plain, so that a kernel can read, map or pass them
 * through without anybody in between. <state>/cache/files:
 *
 *   <content>-<size>   a complete copy; size in decimal digits
 *   .tmp-<nonce>       one being made, flocked (exclusive) while its maker lives
 *
 * A copy is made of verified bytes, its holes are holes, and it is synced before it gets its name:
 * what has a name is complete, also after a crash. Whoever uses one holds a shared flock on it,
 * which dies with the process; the budget takes away only what nobody uses. Several processes may
 * share the folder. Thread-safe. */
#ifndef CAIRN_STORE_COPIES_H
#define CAIRN_STORE_COPIES_H

#include "store/budget.h"
#include "store/manifest.h"

struct cairn_record;
struct copies;

struct copies_key {
    uint8_t content[MANIFEST_CONTENT_LEN];
    uint64_t size;
};

/* folder: made, with those above it, if absent; what killed makers left in it is removed. budget is
 * borrowed until copies_free; the copies make themselves a source of it. */
CAIRN_MUST_CHECK int copies_new(const char *folder, struct budget *budget, struct copies **out,
                                struct cairn_error *err);
void copies_free(struct copies *c); /* NULL is allowed */

bool copies_has(const struct copies *c, const struct copies_key *key);
/* The copy, open for reading and in use until it is closed (owned by the caller); -1: none. */
int copies_open(struct copies *c, const struct copies_key *key);
/* Make the copy of file i of r unless it is there. no_space: the budget or the disk has no room.
 * Other errors: as cairn_record_pread. */
CAIRN_MUST_CHECK int copies_make(struct copies *c, struct cairn_record *r, uint32_t i,
                                 const struct cairn_op *op, struct cairn_error *err);
/* An empty regular file without a name in the folder, open for reading; -1 with errno. */
int copies_probe(const struct copies *c);

#endif
