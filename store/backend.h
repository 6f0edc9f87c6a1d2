/* What Cairn needs of a place that keeps objects: the one seam between the store and a directory, a
 * bucket, or the fakes of the tests.
 *
 * An object is a byte string under a key (layout.h). Every operation is idempotent, may run
 * concurrently with every other on the same backend, takes an op that bounds every wait, and
 * returns an error class. What the classes mean here, on every backend:
 *
 *   not_found  the object is not there (the store's own root missing is permanent, never this)
 *   transient  throttled, reset, short: safe to try the same call again
 *   permanent  refused or broken: EACCES, EROFS, EIO, 403, no such bucket
 *   no_space   nothing of the object was left behind
 *   timeout, cancelled   from the op
 *
 * Legal order: everything between open and free. free is called once nobody uses the backend any
 * more; uploads and iterators are finished before.
 *
 * Visibility: after put, upload_commit or commit returned, every later get, stat and new listing by
 * any node sees the object, durable (directory: file and folder are fsynced). A concurrent reader
 * sees the old object or the new one, whole. remove is durable in the same way. */
#ifndef CAIRN_STORE_BACKEND_H
#define CAIRN_STORE_BACKEND_H

#include "base/buf.h"
#include "base/op.h"
#include "store/layout.h"

#include <stdbool.h>
#include <stdint.h>

#define BACKEND_ETAG_MAX 72

struct backend_stat {
    uint64_t size;
    int64_t mtime_ns; /* the store's clock: compare only with another of the same store */
    char etag[BACKEND_ETAG_MAX]; /* changes when the object does; directory: "" */
};

/* One object of a listing. key is borrowed until the next call on the iterator. */
struct backend_entry {
    const char *key; /* NULL: the listing is complete */
    struct backend_stat stat;
};

/* A pack being written. Write to fd at any offset with pwrite, from any one thread at a time; the
 * object appears whole at upload_commit or never. */
struct backend_upload {
    struct backend *backend;
    int fd;                 /* owned by the upload */
    char tmp_name[KEY_MAX]; /* the backend's own */
};

struct backend_iter {
    const struct backend_ops *ops;
};

/* Where the bytes of a stream go: all of them, each once, in order, on the caller's thread. The
 * connection is held while take runs: it makes no call on the backend. What it returns but 0, an
 * error class with *err, ends the stream with that error. */
struct backend_taker {
    int (*take)(void *ctx, const void *data, size_t len, struct cairn_error *err);
    void *ctx;
};

struct backend {
    const struct backend_ops *ops;
};

/* What a commit does where there is a meta.json already. */
enum backend_once {
    BACKEND_REPLACE,     /* replaces it */
    BACKEND_ONCE,        /* fails */
    BACKEND_ONCE_LOOKED, /* fails; the caller has just seen that there is none */
};

struct backend_ops {
    const char *kind; /* "dir", "s3", "mem" */
    /* commit's once is a look and then a write, which only some servers make one step. */
    bool looks_first;

    void (*free)(struct backend *b);

    /* The whole object, appended to out, at most max bytes (more: corrupt). stat may be NULL. */
    int (*get)(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
               struct buf *out, struct backend_stat *stat, struct cairn_error *err);
    /* Exactly len bytes from off. An object that ends before: corrupt. */
    int (*read)(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                void *dst, size_t len, struct cairn_error *err);
    /* As read, but the bytes are handed on as they arrive (backend_taker). One that breaks off is
     * taken up where it stopped. NULL in the table where nothing is gained by it: backend_stream
     * does without. */
    int (*stream)(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                  size_t len, const struct backend_taker *to, struct cairn_error *err);
    int (*stat)(struct backend *b, const struct cairn_op *op, const char *key,
                struct backend_stat *out, struct cairn_error *err);
    /* Create or replace, atomically. */
    int (*put)(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
               size_t len, struct cairn_error *err);
    /* Absent is success. Every key is tried, in order; the error is the first one's, and says how
     * many failed. failed (may be NULL) has n flags, set for each key that is still there. */
    int (*remove)(struct backend *b, const struct cairn_op *op, const char *const *keys, size_t n,
                  bool *failed, struct cairn_error *err);

    /* Objects whose key starts with prefix and is greater than after ("" = all), in the order of
     * the keys' bytes. prefix ends in '/' or is "" or a whole key's beginning. Objects that come or
     * go meanwhile may be seen or not; all others are, once. A page that cannot be had is an error,
     * never an early end. */
    int (*list)(struct backend *b, const struct cairn_op *op, const char *prefix, const char *after,
                struct backend_iter **out, struct cairn_error *err);
    /* As list, of what lies directly below prefix's last '/' in folders: their keys, with a '/' at
     * the end, and as stat.mtime_ns when an object directly in them last came, was replaced or
     * went. NULL in the table where there are no folders. */
    int (*list_folders)(struct backend *b, const struct cairn_op *op, const char *prefix,
                        const char *after, struct backend_iter **out, struct cairn_error *err);
    int (*iter_next)(struct backend_iter *it, const struct cairn_op *op, struct backend_entry *out,
                     struct cairn_error *err);
    void (*iter_free)(struct backend_iter *it);

    /* A large immutable object under a name never used before. */
    int (*upload_new)(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                      struct cairn_error *err);
    /* size: the length of the object. The upload is freed, whatever the outcome. */
    int (*upload_commit)(struct backend_upload *up, const struct cairn_op *op, const char *key,
                         uint64_t size, struct cairn_error *err);
    void (*upload_abort)(struct backend_upload *up);

    /* The commit of a record in two halves. stage keeps meta beside the record, not visible as its
     * meta.json (directory: meta-<gen>.staged, durable, bytes and name, by the commit; S3:
     * nothing to do). commit makes it meta.json in one step; once: only if there is no meta.json
     * yet, else busy with errno EEXIST (S3 looks first, and asks the server to refuse).
     * busy with errno ENOENT: the staged meta is gone, a collector fenced this writer off: start
     * again. unstage takes it away after a failure and never fails. */
    int (*stage)(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                 const void *meta, size_t len, struct cairn_error *err);
    int (*commit)(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                  const void *meta, size_t len, enum backend_once once, struct cairn_error *err);
    void (*unstage)(struct backend *b, const char *id, const char *gen);

    /* One writer of a record at a time among those that can see each other (directory:
     * flock on the record's folder, made if need be). Busy if another holds it. *lock is passed to
     * unlock; -1 where the backend has no locks, which is success: writers and the collector
     * then check more (docs/protocol.md).
     * unlock also takes away a record folder that is empty by then. */
    int (*lock)(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
                struct cairn_error *err);
    void (*unlock)(struct backend *b, const char *id, int lock);

    /* A read-only descriptor of the object, owned by the caller, for in-kernel copies and mmap.
     * NULL in the table where objects are no local files. */
    int (*open_fd)(struct backend *b, const struct cairn_op *op, const char *key, int *fd,
                   struct cairn_error *err);

    /* Bytes free and total where the store keeps its objects; UINT64_MAX where that has no meaning.
     */
    int (*space)(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err);
};

/* A store in a directory. path must exist and be one (else permanent, with ENOENT or ENOTDIR). The
 * backend owns a descriptor of it and resolves every key beneath it, without following links: what
 * lies behind one is permanent with ELOOP. Listings yield links, devices and the like as keys of
 * size 0. Keys with empty, "." or ".." names are invalid. */
CAIRN_MUST_CHECK int backend_dir_open(const char *path, struct backend **out,
                                      struct cairn_error *err);

/* Short forms. */
#define CLEANUP_BACKEND_ITER __attribute__((cleanup(backend_iter_freep)))
void backend_iter_freep(struct backend_iter **it);
void backend_free(struct backend *b); /* NULL is allowed */
CAIRN_MUST_CHECK int backend_remove_one(struct backend *b, const struct cairn_op *op,
                                        const char *key, struct cairn_error *err);
/* ops->stream; where there is none, one read of all of it. */
CAIRN_MUST_CHECK int backend_stream(struct backend *b, const struct cairn_op *op, const char *key,
                                    uint64_t off, size_t len, const struct backend_taker *to,
                                    struct cairn_error *err);
/* Whether the object is there; every error but not_found is passed on. */
CAIRN_MUST_CHECK int backend_exists(struct backend *b, const struct cairn_op *op, const char *key,
                                    bool *exists, struct cairn_error *err);

#endif
