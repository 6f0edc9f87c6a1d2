/* The chunk index: a local SQLite file (WAL) that says where chunks of a store lie. It is a hint
 * and nothing more: whatever it says is checked before a commit, whatever it forgot costs space
 * only, and it can be rebuilt from the packs. Several processes may have it open.
 *
 * A file that is no database, damaged, of another version or of another store is replaced by a new
 * one, also where the damage shows later, within the call that meets it; that is logged, and
 * index_is_new then tells that it wants rebuilding. Beside it lie PATH-wal, PATH-shm and PATH.lock.
 * Thread-safe; a call waits at most some seconds for other processes, then it is transient. */
#ifndef CAIRN_STORE_INDEX_H
#define CAIRN_STORE_INDEX_H

#include "base/op.h"
#include "store/pack.h"

struct index;

/* path: the file (its folder exists). store_id: 32 hex digits. The file is opened by the first call
 * that needs it, as most commands ask an index for nothing; that call's errors are also permanent,
 * no_space and transient from opening; a damaged file is none. Errors: invalid (store_id),
 * internal. */
CAIRN_MUST_CHECK int index_new(const char *path, const char *store_id, struct index **out,
                               struct cairn_error *err);
void index_close(struct index *x); /* NULL is allowed */

/* Made just now, or never completely built: lookups will miss. */
bool index_is_new(struct index *x);
CAIRN_MUST_CHECK int index_set_built(struct index *x, struct cairn_error *err);

/* Where a chunk lies, with its base. not_found: not known, or its base is not. Any other error
 * means the same to a publisher: store the chunk again. */
CAIRN_MUST_CHECK int index_lookup(struct index *x, const uint8_t sha[SHA256_LEN], struct chunk *out,
                                  struct cairn_error *err);

/* Look up many chunks at once, which costs less than one after the other: the answers are of one
 * moment. chunk.sha is what is asked for. An error: none is found. */
struct index_query {
    struct chunk chunk;
    bool found;
};
CAIRN_MUST_CHECK int index_lookup_many(struct index *x, struct index_query *queries, size_t n,
                                       struct cairn_error *err);

/* One transaction. A chunk that is known elsewhere already is left where it was. */
CAIRN_MUST_CHECK int index_add_pack(struct index *x, const uint8_t pack[PACK_ID_LEN],
                                    const struct pack_entry *entries, uint32_t n,
                                    struct cairn_error *err);
/* Forget a pack and its chunks. Absent is success. */
CAIRN_MUST_CHECK int index_drop_pack(struct index *x, const uint8_t pack[PACK_ID_LEN],
                                     struct cairn_error *err);
/* Whether the pack's chunks are in it. */
CAIRN_MUST_CHECK int index_has_pack(struct index *x, const uint8_t pack[PACK_ID_LEN], bool *has,
                                    struct cairn_error *err);
/* Forget everything; it is then new. */
CAIRN_MUST_CHECK int index_clear(struct index *x, struct cairn_error *err);

struct index_stats {
    uint64_t packs, chunks, bytes; /* bytes: of the database file and its WAL */
};
CAIRN_MUST_CHECK int index_stats(struct index *x, struct index_stats *out, struct cairn_error *err);

#endif
