/* libcairn: a checkpoint store for virtual machines.
 *
 * A *record* is an id, the bytes of its meta.json and its *export*, a tree of regular files. Each
 * publish of a record is a new *generation*, named by its meta. See docs/architecture.md.
 *
 * Conventions. A function returns a class of enum cairn_class, 0 for success, and fills *err (which
 * may be NULL) only when it fails. op bounds every wait (NULL: no bound). Text and byte arguments
 * are borrowed for the call. A struct cairn_store may be used by any number of threads at once; so
 * may a struct cairn_record for reading. Nothing here prints, exits, or touches signals. The ids
 * are "ck_" + 16 (checkpoint, published once) or "tp_" + 32 (template) lower-case hex digits. */
#ifndef CAIRN_H
#define CAIRN_H

#include "base/error.h"
#include "base/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_GEN_TEXT    17 /* 16 hex digits and a NUL */
#define CAIRN_DIGEST_TEXT 72 /* "sha256:" + 64 hex digits and a NUL */
#define CAIRN_META_MAX    (1024 * 1024)

/* ---- Stores ---------------------------------------------------------------------------------- */

struct cairn_store;

/* How to reach a bucket. Credentials come from the usual chain only: environment, shared files,
 * container endpoint, instance metadata. */
struct cairn_s3_config {
    const char *endpoint; /* "https://host[:port]"; NULL: AWS in the region */
    const char *region;   /* NULL: the environment's or the profile's, else found out */
    const char *profile;  /* NULL: AWS_PROFILE, else "default" */
    const char *ca_file;  /* certificates to trust instead of the system's; NULL: AWS_CA_BUNDLE */
    bool force_path_style;
    bool signature_v2;     /* for servers that know nothing newer */
    unsigned max_requests; /* in flight in this process; 0: 16 */
};

struct cairn_config {
    const char *store; /* a directory, or s3://bucket/prefix */
    /* Private state directory, made (0700) if absent: index, and what waits to be sent to a bucket.
     * NULL: none is kept, which a bucket does not allow. */
    const char *state;
    unsigned workers;                 /* 0: as many as there are cores, at most 8 */
    const struct cairn_s3_config *s3; /* NULL: all defaults */
    double fetch_budget_seconds;      /* of a shared fetch's download; 0 or less: 1800 */
    /* The grace that the collectors of this store leave: pins are written after half of it, and
     * must not be later than theirs. 0 or less: 3600 */
    double generation_grace_seconds;
    /* Bound of what is kept under state because it may be needed again. 0: 10 GiB, but at most half
     * of the free space. Negative: as 0, but no chunks are kept, only whole generations. */
    int64_t cache_bytes;
};

enum cairn_compression { CAIRN_COMPRESSION_ZSTD = 0, CAIRN_COMPRESSION_NONE = 1 };

struct cairn_init_options {
    uint32_t chunk_size; /* power of two, 4 KiB to 1 MiB; 0: 64 KiB */
    enum cairn_compression compression;
};

/* Make an empty store. A directory is made if absent and must else be empty; a bucket must be
 * there. Busy: it is a store already; invalid: it holds something else. options may be NULL. */
CAIRN_API CAIRN_MUST_CHECK int cairn_init(const struct cairn_config *config,
                                          const struct cairn_init_options *options,
                                          const struct cairn_op *op, struct cairn_error *err);

/* not_found: no store there. corrupt: format.json is damaged or of a version not known. The caller
 * owns *out until cairn_close. */
CAIRN_API CAIRN_MUST_CHECK int cairn_open(const struct cairn_config *config,
                                          const struct cairn_op *op, struct cairn_store **out,
                                          struct cairn_error *err);
/* No call may be running on the store, no record of it open. NULL is allowed. */
CAIRN_API void cairn_close(struct cairn_store *store);

struct cairn_store_info {
    char store_id[33];
    uint32_t format, chunk_size;
    enum cairn_compression compression;
};
CAIRN_API void cairn_store_info(const struct cairn_store *store, struct cairn_store_info *out);

/* ---- Progress -------------------------------------------------------------------------------- */

/* Called from the thread that made the call, at most some times a second, without locks held. */
struct cairn_progress {
    void (*report)(void *ctx, uint64_t done, uint64_t total); /* NULL: none; bytes */
    void *ctx;
};

/* ---- Publishing ------------------------------------------------------------------------------ */

/* A file of the export that must be there with this size, or the publish is refused (invalid). */
struct cairn_expect {
    const char *path;
    uint64_t size;
};

struct cairn_publish_options {
    const char *from;   /* folder of the export's files */
    const void *meta;   /* NULL: {"id": ID, "created": now} */
    size_t meta_len;    /* at most CAIRN_META_MAX */
    const char *parent; /* a record most chunks of which are unchanged; NULL: none */
    bool digest;        /* compute the digest as well: a second hash over all data */
    const struct cairn_expect *expect;
    size_t n_expect;
    struct cairn_progress progress;
    bool owned; /* every file must belong to owner: for whoever publishes on behalf of another */
    uint32_t owner; /* a numeric user; one file of somebody else's: permanent, with EACCES */
};

struct cairn_publish_result {
    char gen[CAIRN_GEN_TEXT];
    char digest[CAIRN_DIGEST_TEXT]; /* "" when not asked for */
    uint64_t logical_bytes;         /* sum of the files' sizes */
    uint64_t data_bytes;            /* of them outside holes and zeros */
    uint64_t new_bytes;             /* of them not in the store before */
    uint64_t stored_bytes;          /* what the new ones took, encoded */
    uint64_t chunks, new_chunks;
    uint64_t empty_dirs; /* folders without files, which are not kept */
    bool unchanged;      /* this very generation was committed already */
    double seconds;
};

/* Publish the files under options->from as the next generation of id. Nothing is visible before
 * success, and the folder is only read: a failed publish can be tried again. A meta that is a JSON
 * object with a member "cairn_expect": {"path": size, …} adds to options->expect; one with
 * that member that cannot be read (a name twice, too large a number) is refused.
 *
 * invalid: bad id or meta, something other than regular files and folders, an unmet expectation,
 *   or a meta that is committed already with another export;
 * busy: a checkpoint that is published already, another writer (one that ends within two seconds is
 *   waited for, here and below), a file that changes meanwhile;
 * not_found: no such folder, no such parent. */
CAIRN_API CAIRN_MUST_CHECK int cairn_publish(struct cairn_store *store, const struct cairn_op *op,
                                             const char *id,
                                             const struct cairn_publish_options *options,
                                             struct cairn_publish_result *result,
                                             struct cairn_error *err);

/* Publish the export of id again as new_id, under another meta (NULL: as in publish). No chunk is
 * read. Busy: new_id is taken (checkpoint). */
CAIRN_API CAIRN_MUST_CHECK int cairn_fork(struct cairn_store *store, const struct cairn_op *op,
                                          const char *id, const char *new_id, const void *meta,
                                          size_t meta_len, char gen[CAIRN_GEN_TEXT],
                                          struct cairn_error *err);

/* ---- Reading --------------------------------------------------------------------------------- */

/* One generation, held open. Its bytes never change. */
struct cairn_record;

/* The committed generation of id. not_found: no such record, or a meta without its export. The
 * caller owns *out until cairn_record_close. */
CAIRN_API CAIRN_MUST_CHECK int cairn_record_open(struct cairn_store *store,
                                                 const struct cairn_op *op, const char *id,
                                                 struct cairn_record **out,
                                                 struct cairn_error *err);
CAIRN_API void cairn_record_close(struct cairn_record *record); /* NULL is allowed */

struct cairn_record_info {
    const char *id, *gen;               /* borrowed from the record, as all text below */
    const char *parent_id, *parent_gen; /* "" without a parent */
    const char *digest;                 /* "" when it was not computed */
    const void *meta;
    size_t meta_len;
    int64_t created_ns; /* since 1970, by the publisher's clock */
    uint64_t logical_bytes, data_bytes, stored_bytes, files, chunks;
};
CAIRN_API void cairn_record_info(const struct cairn_record *record, struct cairn_record_info *out);

struct cairn_file {
    const char *path; /* borrowed from the record, terminated; any bytes, '/' between components */
    uint64_t size, data_bytes;
};
/* i < files; files are in the order of their paths' bytes. */
CAIRN_API void cairn_record_file(const struct cairn_record *record, uint64_t i,
                                 struct cairn_file *out);
/* Index of a file, or -1. */
CAIRN_API int64_t cairn_record_find(const struct cairn_record *record, const char *path);

/* Read up to len bytes of file i from offset; *got is less than len only at the end of the file.
 * Every byte is verified before it is handed out. corrupt: a chunk is damaged. */
CAIRN_API CAIRN_MUST_CHECK int cairn_record_pread(struct cairn_record *record,
                                                  const struct cairn_op *op, uint64_t i, void *buf,
                                                  size_t len, uint64_t offset, size_t *got,
                                                  struct cairn_error *err);
/* Start of the next data (hole = false) or hole at or after offset; the file's size if there is
 * none. As lseek(2) with SEEK_DATA and SEEK_HOLE, in units of chunks. */
CAIRN_API uint64_t cairn_record_seek(const struct cairn_record *record, uint64_t i, uint64_t offset,
                                     bool hole);

struct cairn_fetch_result {
    uint64_t logical_bytes, data_bytes;
    uint64_t cloned_bytes; /* shared with the store by reflink */
    double seconds;
};

/* Make the export's files under the new folder target (which may exist if it is empty). They are
 * built in a folder beside it and renamed into place: target is complete or absent. A memory image
 * is nobody else's business: a new target has mode 0700, one that was there keeps its own; the
 * files in it follow the umask. Busy: target is there and not empty. */
CAIRN_API CAIRN_MUST_CHECK int cairn_record_fetch(struct cairn_record *record,
                                                  const struct cairn_op *op, const char *target,
                                                  const struct cairn_progress *progress,
                                                  struct cairn_fetch_result *result,
                                                  struct cairn_error *err);

/* ---- Shared fetches and leases --------------------------------------------------------------- */

#define CAIRN_LEASE_TEXT 33 /* 128 random bits in hex and a NUL */

struct cairn_fetch_shared_options {
    double lease_seconds; /* 0 or less: 3600; at most 30 days */
};

/* One shared fetch. Texts and bytes are owned by the struct, until
 * cairn_fetch_shared_result_release, which leaves the lease alone. */
struct cairn_fetch_shared_result {
    char lease[CAIRN_LEASE_TEXT];
    char gen[CAIRN_GEN_TEXT];
    char digest[CAIRN_DIGEST_TEXT]; /* "" when it was not computed */
    char *path; /* of the folder with the export's files; absolute if the state directory's is */
    void *meta;
    size_t meta_len;
    uint64_t logical_bytes, data_bytes;
    double lease_seconds; /* until it expires */
    bool ready;           /* nothing had to be downloaded */
};

/* The committed generation of id as a folder of local files in the state directory, shared by all
 * who ask for it, with a lease that keeps it there. Exactly one download (a *flight*) runs for a
 * generation however many calls want it. It has a thread and a time of its own
 * (fetch_budget_seconds) and belongs to no caller: each waits as long as its op allows and leaves
 * at once then; the flight goes on, also when nobody waits any more. A failed one is not
 * remembered: the next call begins anew.
 *
 * The files are read-only (0400, folders 0700) and must stay as they are: one whose size or time
 * was changed makes the folder be fetched again. Holes stay holes.
 *
 * What a call that waits is told about the record is at most two seconds older than the call; what
 * this process published or deleted before, it knows.
 *
 * timeout, cancelled: the caller's own op; a spent one sends nothing. not_found: no such record.
 * transient: it was deleted or replaced meanwhile, the flight's time is over (ETIMEDOUT), or as the
 * backend says. no_space: the state directory's disk is full, also without what nobody leases.
 * invalid: the store was opened without a state directory. options may be NULL. */
CAIRN_API CAIRN_MUST_CHECK int cairn_fetch_shared(struct cairn_store *store,
                                                  const struct cairn_op *op, const char *id,
                                                  const struct cairn_fetch_shared_options *options,
                                                  struct cairn_fetch_shared_result *result,
                                                  struct cairn_error *err);
CAIRN_API void cairn_fetch_shared_result_release(struct cairn_fetch_shared_result *result);

/* Since the store was opened. */
struct cairn_fetch_shared_stats {
    uint64_t running;            /* downloads, now */
    uint64_t downloaded, failed; /* downloads that ended */
    uint64_t downloaded_bytes;   /* of those that succeeded, outside holes */
    uint64_t ready;              /* calls for which nothing had to be downloaded */
};
CAIRN_API void cairn_fetch_shared_stats(struct cairn_store *store,
                                        struct cairn_fetch_shared_stats *out);

/* A lease pins its generation: the files stay where they are, and the store keeps what they were
 * made of, also when the record is deleted or published again, until the lease is released, expires
 * or the store is closed. It lives in the process that took it. */
struct cairn_lease {
    char lease[CAIRN_LEASE_TEXT];
    char id[48];
    char gen[CAIRN_GEN_TEXT];
    char path[4096];
    double seconds_left; /* until it expires */
};

/* From now on for seconds (as in the options). *out may be NULL. not_found: there is none, or it
 * has expired. */
CAIRN_API CAIRN_MUST_CHECK int cairn_lease_renew(struct cairn_store *store, const char *lease,
                                                 double seconds, struct cairn_lease *out,
                                                 struct cairn_error *err);
CAIRN_API CAIRN_MUST_CHECK int cairn_lease_find(struct cairn_store *store, const char *lease,
                                                struct cairn_lease *out, struct cairn_error *err);
/* not_found: there is none, or it has expired. Never waits for the store. */
CAIRN_API CAIRN_MUST_CHECK int cairn_lease_release(struct cairn_store *store, const char *lease,
                                                   struct cairn_error *err);
/* Call fn for each lease, oldest first, until it returns non-zero, which is no error. fn may call
 * anything here. */
CAIRN_API CAIRN_MUST_CHECK int cairn_lease_list(struct cairn_store *store,
                                                int (*fn)(void *ctx, const struct cairn_lease *l),
                                                void *ctx, struct cairn_error *err);
/* Take the expired ones away; their number. Any other call on leases does so too, and a thread of
 * the store from time to time. *next_seconds (may be NULL): until the next one expires; negative:
 * there is none. */
CAIRN_API size_t cairn_lease_expire(struct cairn_store *store, double *next_seconds);

/* ---- Keeping house --------------------------------------------------------------------------- */

struct cairn_list_options {
    const char *prefix; /* of ids; NULL: all */
    const char *after;  /* only ids greater than this; NULL: from the start */
    uint64_t limit;     /* 0: no limit */
};

struct cairn_list_entry {
    const char *id;
    /* CAIRN_OK, or why this one record cannot be read (the fields below are then 0 or ""). */
    int error_class;
    const char *error_message;
    const char *gen, *digest;
    int64_t created_ns;
    uint64_t logical_bytes, stored_bytes, files;
    bool held;
};

/* Call fn for each record in the order of ids until it returns non-zero, which is no error. */
CAIRN_API CAIRN_MUST_CHECK int cairn_list(
    struct cairn_store *store, const struct cairn_op *op, const struct cairn_list_options *options,
    int (*fn)(void *ctx, const struct cairn_list_entry *entry), void *ctx, struct cairn_error *err);

/* Delete a record. Absent is success; busy: it is held, or being published. */
CAIRN_API CAIRN_MUST_CHECK int cairn_delete(struct cairn_store *store, const struct cairn_op *op,
                                            const char *id, struct cairn_error *err);

/* A held record is kept from cairn_delete and from retention. Both are idempotent. hold of a record
 * that is not there: not_found; of one that is being published or removed: busy. */
CAIRN_API CAIRN_MUST_CHECK int cairn_hold(struct cairn_store *store, const struct cairn_op *op,
                                          const char *id, struct cairn_error *err);
CAIRN_API CAIRN_MUST_CHECK int cairn_release(struct cairn_store *store, const struct cairn_op *op,
                                             const char *id, struct cairn_error *err);

struct cairn_stats {
    uint64_t records, generations, packs, chunks; /* chunks: that the packs hold */
    uint64_t logical_bytes;                       /* of the committed generations */
    uint64_t stored_bytes;                        /* of all packs */
    uint64_t index_bytes;
    uint64_t manifest_bytes; /* of all generations: what records cost beside the packs */
    uint64_t unreadable;     /* records of which logical_bytes knows nothing: see cairn_list */
};
CAIRN_API CAIRN_MUST_CHECK int cairn_stats(struct cairn_store *store, const struct cairn_op *op,
                                           struct cairn_stats *out, struct cairn_error *err);

struct cairn_verify_options {
    const char *const *ids; /* only these records and their chunks */
    size_t n_ids;           /* 0: everything, packs without references too */
    bool repair_index;      /* build the local index anew from the packs */
    struct cairn_progress progress;
    /* Called, from the thread that made the call, for each fault, and with error_class CAIRN_OK for
     * a key that is not Cairn's. The text is borrowed for the call. */
    void (*found)(void *ctx, int error_class, const char *object, const char *message);
    void *ctx;
};
struct cairn_verify_result {
    uint64_t checked_records, checked_packs, checked_chunks, checked_bytes, errors, unknown_keys;
};
/* options may be NULL: everything, without reports. CAIRN_OK also when faults were found: look at
 * result->errors. Any other class: the check could
 * not be completed. */
CAIRN_API CAIRN_MUST_CHECK int cairn_verify(struct cairn_store *store, const struct cairn_op *op,
                                            const struct cairn_verify_options *options,
                                            struct cairn_verify_result *result,
                                            struct cairn_error *err);

/* ---- Collecting ------------------------------------------------------------------------------ */

/* Times in nanoseconds; negative: the default. cairn_gc_config_init sets all to it. */
struct cairn_gc_config {
    int64_t grace_ns;       /* a superseded generation is kept for so long (1 h) */
    int64_t visibility_ns;  /* until what one writes is seen by all (directory: 0, else 15 min) */
    int64_t young_ns;       /* what nobody refers to is left alone for so long (24 h) */
    int64_t dead_margin_ns; /* a dead pack is deleted after grace and this (30 min) */
    int64_t ttl_ns;         /* records are deleted when older than this; 0, the default: never */
    bool no_repack;         /* leave packs alone that are mostly, not wholly, garbage */
};
CAIRN_API void cairn_gc_config_init(struct cairn_gc_config *config);
/* What config (may be NULL) means for this store, with every default in its place. */
CAIRN_API void cairn_gc_settings(const struct cairn_store *store,
                                 const struct cairn_gc_config *config, struct cairn_gc_config *out);

struct cairn_gc_result {
    bool aborted;      /* before any change, because something was in doubt: err says what */
    const char *phase; /* what the sweep was last at; a constant text */
    uint64_t records;
    uint64_t generations_deleted, records_expired;
    uint64_t packs_scanned, packs_closed, packs_dead, packs_deleted, packs_repacked;
    uint64_t bytes_freed;
    uint64_t waiting_closed, waiting_dead; /* packs that wait for their time */
    int64_t next_ns;         /* until the first of them is due, from now; -1: none waits, or only
                              * for others to let go */
    uint64_t young;          /* packs that nobody refers to, left alone until they are old enough */
    int64_t young_ns;        /* until the first of them is, from now; -1: there are none */
    uint64_t failed;         /* actions that failed and will be tried again by the next sweep */
    uint64_t objects, bytes; /* looked at and handled so far */
    double seconds;
};

struct cairn_gc_options {
    bool dry_run; /* change nothing; the result and the actions are what would be done */
    bool wait;    /* while another process of this state folder sweeps; else that is busy */
    /* Both from the thread that made the call, without locks held; may be NULL. progress: often. */
    void (*progress)(void *ctx, const struct cairn_gc_result *so_far);
    void (*action)(void *ctx, const char *verb, const char *object, const char *reason);
    void *ctx;
};

/* One sweep: deletes what nobody needs any more and whose time has come, safely beside every
 * writer, reader and other sweep. What needs another wait is left to a later call. config and
 * options may be NULL.
 *
 * Errors before anything was changed (result->aborted): corrupt: a manifest, pin or tombstone
 * cannot be read, or a record vanished; transient and others: a root could not be read; busy:
 * another process sweeps. Errors of single actions do not end a sweep: the first one's class comes
 * back at the end. *result is filled in any case. */
CAIRN_API CAIRN_MUST_CHECK int cairn_gc(struct cairn_store *store, const struct cairn_op *op,
                                        const struct cairn_gc_config *config,
                                        const struct cairn_gc_options *options,
                                        struct cairn_gc_result *result, struct cairn_error *err);

CAIRN_API const char *cairn_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#endif
