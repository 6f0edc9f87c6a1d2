/* The inside of struct cairn_record: one generation held open for reading. */
#ifndef CAIRN_STORE_RECORD_H
#define CAIRN_STORE_RECORD_H

#include "store/manifest.h"
#include "store/pin_keeper.h"
#include "store/record_ahead.h"

#include <stdatomic.h>

/* Everything is set when it is opened and then constant, but the manifest in force: when a pack is
 * gone the manifest is loaded again, since a collector may have moved chunks. Old ones live as long
 * as the record, because paths are borrowed from them. */
struct cairn_record {
    struct cairn_store *store;
    char id[ID_MAX + 1], gen[GEN_TEXT];
    char digest[72]; /* text, "" without one */
    struct buf meta;
    char **paths;             /* owned, terminated copies */
    struct keeper_hold *hold; /* owned: what is held open for long is pinned */
    _Atomic(struct manifest *) manifest;
    pthread_mutex_t reload_lock;
    struct manifest **old; /* guarded by reload_lock, owned */
    size_t n_old;
    pthread_mutex_t ahead_lock;
    struct record_ahead ahead; /* guarded by ahead_lock */
};

/* Open one generation of a record, committed or not: without its meta. gen is valid. not_found: it
 * has no export. */
CAIRN_MUST_CHECK int record_open_generation(struct cairn_store *store, const struct cairn_op *op,
                                            const char *id, const char *gen,
                                            struct cairn_record **out, struct cairn_error *err);

/* Load the manifest again after a pack that seen names was gone. Nothing to do if another thread
 * did it already. not_found: the generation is gone; corrupt: its manifest still names gone packs.
 */
CAIRN_MUST_CHECK int record_reload(struct cairn_record *r, const struct cairn_op *op,
                                   const struct manifest *seen, struct cairn_error *err);

#endif
