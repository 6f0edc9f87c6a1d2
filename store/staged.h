/* Publishing in pieces, for a caller that learns of an export, of the name of its generation, of
 * its digest and of its meta.json one after the other (the mount). cairn_publish is what all
 * others use.
 *
 *   staged_prepare   the export's chunks durable in packs, and its manifest at its key: an
 *                    uncommitted root. Invisible; may be done again; may be left (the collector
 *                    takes it after a day).
 *   staged_commit    steps 4 to 8 of docs/protocol.md, all of them: the manifest is written again,
 *                    the packs are checked, meta.json is committed. So nothing rests on how much
 *                    time passed since staged_prepare, nor on what others did meanwhile.
 *
 * Any thread; two calls for one id at a time exclude each other as two publishes do. */
#ifndef CAIRN_STORE_STAGED_H
#define CAIRN_STORE_STAGED_H

#include "store/background.h"
#include "store/manifest.h"
#include "store/store.h"

/* Where an export's bytes are. */
struct staged_export {
    const char *from; /* folder of its files; NULL: nowhere but in the store */
    /* Knows the chunks of some of its files already; may be NULL. Used only if it is of the same
     * store. */
    struct background *background;
};

/* What was prepared: the manifest, and which files it was made of. Constant; any thread. */
struct staged_prepared;

void staged_prepared_free(struct staged_prepared *p); /* NULL is allowed */
void staged_prepared_freep(struct staged_prepared **p);
#define CLEANUP_STAGED_PREPARED __attribute__((cleanup(staged_prepared_freep)))
const struct manifest *staged_prepared_manifest(const struct staged_prepared *p);

/* gen: the name that meta.json will have. *out is owned by the caller. The record committed under
 * id may be this very generation already (result->unchanged): then the export is the same as its
 * export. Errors: as cairn_publish; invalid with EEXIST: gen is committed with another export;
 * invalid with ENOTEMPTY: it lies in the store with another one, superseded or uncommitted. */
CAIRN_MUST_CHECK int staged_prepare(struct cairn_store *s, const struct cairn_op *op,
                                    const char *id, const char *gen,
                                    const struct staged_export *from, struct staged_prepared **out,
                                    struct cairn_publish_result *result, struct cairn_error *err);

struct staged_commit {
    const void *meta;
    size_t meta_len;
    struct staged_export from;
    /* Of staged_prepare, borrowed; NULL: made from from or, without a folder, loaded from the
     * store, where the generation lies uncommitted or superseded (not_found: it does not). If one
     * of the files is not what it was then, it is made again, too. */
    const struct staged_prepared *prepared;
    const uint8_t *digest; /* SHA256_LEN bytes, of the export; NULL: none, or the manifest's own */
};

/* Returns when the record is durable and visible. After an error it is not committed, unless the
 * message says that the commit itself was tried; the same call may be made again in any case.
 * Errors: as cairn_publish. */
CAIRN_MUST_CHECK int staged_commit(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   const struct staged_commit *c,
                                   struct cairn_publish_result *result, struct cairn_error *err);

/* Take one generation away. The one that is committed: it is named in the record's tombstone
 * first, so that cairn_delete or a sweep finishes the removal of the record, which reads as
 * not_found from here on. Any other: its manifest goes. Absent is success. Busy: the record is
 * held (committed generation only), or being published. */
CAIRN_MUST_CHECK int staged_remove_generation(struct cairn_store *s, const struct cairn_op *op,
                                              const char *id, const char *gen,
                                              struct cairn_error *err);

/* Take back what staged_prepare made visible, if it was not committed since. */
CAIRN_MUST_CHECK int staged_drop(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                 const char *gen, struct cairn_error *err);

/* "sha256:" and 64 hex digits, with or without a line feed at the end; false: it is none. */
bool staged_digest_parse(const char *text, size_t len, uint8_t digest[SHA256_LEN]);

#endif
