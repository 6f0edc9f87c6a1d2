/* The inside of struct cairn_store, for the files of store/ and the folders above it. */
#ifndef CAIRN_STORE_STORE_H
#define CAIRN_STORE_STORE_H

#include "base/pool.h"
#include "store/backend.h"
#include "store/cairn.h"
#include "store/format.h"
#include "store/index.h"

#include <pthread.h>
#include <stdatomic.h>

struct budget;
struct cache;
struct chunk_ctx;
struct copies;
struct fetch_claims;
struct fills;
struct gens;
struct heads;
struct lease_table;
struct pack_files;
struct pin_keeper;
struct shared_fetch;

/* Threads that wait for the disk: an fsync of a pack must not keep a core from hashing. */
#define STORE_IO_THREADS 4

/* Everything but free_ctx, n_free_ctx and what synchronises itself is set before the store is
 * shared and does not change. */
struct cairn_store {
    struct backend *backend; /* owned */
    struct store_format format;
    char *state;                 /* owned; private folder of this store's; NULL: none is kept */
    struct index *index;         /* owned; NULL: none is kept */
    struct pool *pool;           /* owned; computes */
    struct pool *io;             /* owned; waits for the disk (seals packs) */
    struct pack_files *packs;    /* owned; open packs of a local backend */
    struct budget *budget;       /* owned; NULL, as the next one, where nothing can be kept here */
    struct cache *cache;         /* owned; chunks */
    struct copies *copies;       /* owned; whole files; NULL as the budget */
    struct fills *fills;         /* owned; NULL, as the next one, where objects are local files */
    struct fetch_claims *claims; /* owned */
    atomic_uint prefetches;      /* that run: they share what may be read at a time */
    struct heads *heads;         /* owned; what listings remember; NULL: nothing */
    struct pin_keeper *keeper;   /* owned */
    struct gens *gens;           /* owned; materialised generations; NULL, as the next two, where */
    struct lease_table *leases;  /* owned    there is no state folder, or it cannot be used */
    struct shared_fetch *shared; /* owned */
    pthread_mutex_t ctx_lock;
    struct chunk_ctx *free_ctx; /* guarded by ctx_lock, as is their number */
    unsigned n_free_ctx;
};

/* Compose a store on a backend. backend is transferred, also when this fails. */
CAIRN_MUST_CHECK int store_new(struct backend *backend, const struct cairn_config *config,
                               const struct cairn_op *op, struct cairn_store **out,
                               struct cairn_error *err);

/* Make an empty store in a directory, as cairn_init says. */
CAIRN_MUST_CHECK int store_init_dir(const char *path, const struct cairn_init_options *options,
                                    const struct cairn_op *op, struct cairn_error *err);

/* mkdir -p. The folders made are private; the ones that exist keep their modes. */
CAIRN_MUST_CHECK int store_make_folders(const char *path, struct cairn_error *err);
/* The same for what a crash of the machine may take away: waits for no disk. */
CAIRN_MUST_CHECK int store_make_cache_folders(const char *path, struct cairn_error *err);

/* Write format.json of a new store on a backend (borrowed). Busy: there is one. */
CAIRN_MUST_CHECK int store_format_init(struct backend *backend,
                                       const struct cairn_init_options *options,
                                       const struct cairn_op *op, struct cairn_error *err);

/* permanent: the store's format forbids programs of this version to write to it. */
CAIRN_MUST_CHECK int store_check_writer(const struct cairn_store *s, struct cairn_error *err);

/* The bytes of meta.json and the generation that they name. not_found: no such record. */
CAIRN_MUST_CHECK int store_get_meta(struct cairn_store *s, const struct cairn_op *op,
                                    const char *id, struct buf *meta, char gen[GEN_TEXT],
                                    struct cairn_error *err);

struct jval;

/* The JSON that an object is, at most max bytes of it; of what is none: corrupt. *out is the
 * caller's; stat may be NULL. */
CAIRN_MUST_CHECK int store_get_json(struct cairn_store *s, const struct cairn_op *op,
                                    const char *key, size_t max, struct jval **out,
                                    struct backend_stat *stat, struct cairn_error *err);

struct manifest;

/* The manifest of one generation. not_found: it has none. */
CAIRN_MUST_CHECK int store_load_manifest(struct cairn_store *s, const struct cairn_op *op,
                                         const char *id, const char *gen, struct manifest **out,
                                         struct cairn_error *err);

/* The committed generation: meta (appended), gen and manifest. not_found: no such record, or a meta
 * without its export. */
CAIRN_MUST_CHECK int store_load(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                struct buf *meta, char gen[GEN_TEXT], struct manifest **out,
                                struct cairn_error *err);

#endif
