/* What a node's sweeps remember from one to the next: a local SQLite file, <state>/<store id>/
 * sweep.db. A hint and nothing more: without it a sweep reads every manifest again, keeps
 * superseded generations longer, and cannot tell that a record vanished. It never makes a sweep
 * decide something else, since what it remembers of an object is bound to the object's size, time
 * and etag by a checksum of its own.
 *
 * A file that is damaged, of another version or of another store is replaced by an empty one. An
 * error later (a full disk) is logged once, after which the sweep goes on without memory: no call
 * here fails but for open. One process uses it at a time (gc/lock.h), from one thread. A db that is
 * NULL remembers nothing. */
#ifndef CAIRN_STORE_SWEEP_DB_H
#define CAIRN_STORE_SWEEP_DB_H

#include "store/backend.h"
#include "store/store.h"
#include "store/tomb.h"

struct sweep_db;

/* Errors: internal; and those of the disk. */
CAIRN_MUST_CHECK int sweep_db_open(const struct cairn_store *s, struct sweep_db **out,
                                   struct cairn_error *err);
/* Keeps what was remembered so far. NULL is allowed. */
void sweep_db_close(struct sweep_db *db);

/* A pack is looked at in windows: fine ones at its beginning, for small packs, coarser ones behind.
 */
#define SWEEP_WINDOWS 512

/* A pack that a manifest names, and the bytes that its chunks take there. */
struct sweep_use {
    uint8_t pack[PACK_ID_LEN];
    uint64_t live;
    uint64_t windows[SWEEP_WINDOWS / 64]; /* the parts of the pack that they touch */
};

/* What is kept of a manifest. */
struct sweep_manifest {
    uint8_t trailer[SHA256_LEN]; /* the last bytes of the object */
    struct sweep_use *uses;      /* owned */
    uint32_t n_uses;
};
void sweep_manifest_release(struct sweep_manifest *m);

/* Whether the object at key, as a listing or stat showed it, was read before. */
bool sweep_db_find_manifest(struct sweep_db *db, const char *key, const struct backend_stat *st,
                            struct sweep_manifest *out);
void sweep_db_put_manifest(struct sweep_db *db, const char *key, const struct backend_stat *st,
                           const struct sweep_manifest *m);
/* The same of a meta.json and the generation that it names. */
bool sweep_db_find_meta(struct sweep_db *db, const char *key, const struct backend_stat *st,
                        char gen[GEN_TEXT]);
void sweep_db_put_meta(struct sweep_db *db, const char *key, const struct backend_stat *st,
                       const char gen[GEN_TEXT]);

/* The same of a tombstone; out is owned by the caller. Only where objects have etags: on others two
 * puts within one tick of the clock could not be told apart. */
bool sweep_db_find_tomb(struct sweep_db *db, const char *key, const struct backend_stat *st,
                        struct tomb *out);
void sweep_db_put_tomb(struct sweep_db *db, const char *key, const struct backend_stat *st,
                       const struct tomb *t);

/* Why the chunks of this very manifest (by its size and time) could not be moved, if that was less
 * than SWEEP_STUCK_NS before now, in store time. */
#define SWEEP_STUCK_NS ((int64_t)24 * 3600 * 1000000000)
bool sweep_db_find_stuck(struct sweep_db *db, const char *key, const struct backend_stat *st,
                         int64_t now_ns, struct cairn_error *why);
void sweep_db_put_stuck(struct sweep_db *db, const char *key, const struct backend_stat *st,
                        int64_t now_ns, const struct cairn_error *why);

/* Store time at which this manifest (by its mtime) was first seen superseded; now if never. */
int64_t sweep_db_superseded(struct sweep_db *db, const char *id, const char *gen, int64_t mtime_ns,
                            int64_t now_ns);

/* Store time of the last complete sweep; false: none is remembered. */
bool sweep_db_last(struct sweep_db *db, int64_t *when_ns);
/* Whether a sweep since then missed a record, which sweep_db_doubt notes. */
bool sweep_db_in_doubt(struct sweep_db *db);
void sweep_db_doubt(struct sweep_db *db);
/* Call fn for each record that the last complete sweep knew and this one has not met, until it
 * returns non-zero; returns that. */
int sweep_db_each_missing(struct sweep_db *db, int (*fn)(void *ctx, const char *id), void *ctx);
/* Bracket of a scan: what is found or put in between is of this sweep. complete: the scan met no
 * doubt: rows it did not meet are forgotten and the records it met become the known ones. */
void sweep_db_begin(struct sweep_db *db);
void sweep_db_record(struct sweep_db *db, const char *id);
void sweep_db_complete(struct sweep_db *db, int64_t now_ns);
void sweep_db_abandon(struct sweep_db *db);

#endif
