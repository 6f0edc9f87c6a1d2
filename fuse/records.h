/* What is known of each record, and since when: its meta.json and what generations it has. It is
 * asked again of the store when it is older than MOUNT_RECORD_FRESH_NS, by a look at whether
 * meta.json is still the same object. Thread-safe. */
#ifndef CAIRN_FUSE_RECORDS_H
#define CAIRN_FUSE_RECORDS_H

#include "fuse/mount_private.h"

struct record_now {
    bool exists;           /* the store has something under the id */
    bool committed;        /* it has a meta.json whose manifest is there */
    bool unreadable;       /* it has a meta.json that is none (too large) */
    char gen[GEN_TEXT];    /* of meta.json; "" without one */
    int64_t meta_mtime_ns; /* the store's clock; 0 without one */
    uint64_t meta_size;
};

CAIRN_MUST_CHECK int records_new(struct records **out, struct cairn_error *err);
void records_free(struct records *r); /* NULL is allowed */

/* At most MOUNT_RECORD_FRESH_NS old. A record that is not there is no error. */
CAIRN_MUST_CHECK int records_now(struct mount *m, const struct cairn_op *op, const char *id,
                                 struct record_now *out, struct cairn_error *err);
/* A listing has just shown meta.json of id as this object: if that is what is known, it is fresh.
 */
void records_seen(struct mount *m, const char *id, const struct backend_stat *stat,
                  int64_t listed_ns);
/* The bytes of meta.json (appended). gen: in: the generation that records_now named; out: the one
 * that these bytes name, which may be a newer one. */
CAIRN_MUST_CHECK int records_bytes(struct mount *m, const struct cairn_op *op, const char *id,
                                   char gen[GEN_TEXT], struct buf *out, struct cairn_error *err);
/* Something of the record was changed here (published, committed, deleted, digest added): the next
 * look asks the store, and reads its manifests again. */
void records_changed(struct mount *m, const char *id);

#endif
