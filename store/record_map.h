/* A record's bytes where they lie on the local disk, verified: for whoever can do better than copy
 * them (reply from a descriptor, mmap, clone).
 *
 * Raw chunks of a directory store are mapped onto the pack itself, everything else onto the cache,
 * which they enter on the way (store/cache.h). Where the cache cannot take them (its disk is full,
 * everything in it is pinned, there is no state directory) they come as memory. Every byte was
 * verified by this process, once: what a span points at is not read again by this module. */
#ifndef CAIRN_STORE_RECORD_MAP_H
#define CAIRN_STORE_RECORD_MAP_H

#include "store/record.h"

/* Some bytes of a file, in one place. The place stays readable, with the same bytes, until
 * record_spans_release, whatever the collector or the cache do meanwhile. */
struct record_span {
    uint64_t len;     /* 1 or more */
    int fd;           /* borrowed; -1: memory, or a hole */
    uint64_t offset;  /* with fd: where they lie in it */
    const void *data; /* without fd: len bytes, borrowed; NULL: a hole, all zero */
    void *ref;        /* private */
    int ref_kind;     /* private */
};

/* Bytes [offset, offset + len) of file i as at most max spans in order, each as long as can be.
 * *n of them; together they are shorter than len only at the end of the file, or when max did not
 * suffice (call again behind them). What is not here is fetched first: concurrent calls for one
 * chunk share its download, each leaves when its own op says so. Reading on in order reads ahead.
 * On failure there is nothing to release. Without any allocation when all is in place.
 *
 * Thread-safe. Spans must be released before the store is closed; the record may be closed before.
 * Errors: as cairn_record_pread. */
CAIRN_MUST_CHECK int record_map(struct cairn_record *r, const struct cairn_op *op, uint64_t i,
                                uint64_t offset, uint64_t len, struct record_span *spans,
                                size_t max, size_t *n, struct cairn_error *err);
/* The same, but what lies before a chunk that cannot be had is mapped on failure, too, and to be
 * released. */
CAIRN_MUST_CHECK int record_map_part(struct cairn_record *r, const struct cairn_op *op, uint64_t i,
                                     uint64_t offset, uint64_t len, struct record_span *spans,
                                     size_t max, size_t *n, struct cairn_error *err);
/* The same, but only what is here: verified in the cache, or a hole. Waits for no download; false:
 * not all of it is (there is nothing to release). */
bool record_map_here(struct cairn_record *r, uint64_t i, uint64_t offset, uint64_t len,
                     struct record_span *spans, size_t max, size_t *n);
void record_spans_release(struct cairn_store *s, struct record_span *spans, size_t n);

/* Reading from the span's descriptor failed, or ended early: its file is looked at anew, and what
 * it has verified again, before it is handed out any more. The span is to be released as any. */
void record_span_doubt(struct cairn_store *s, const struct record_span *span);

#endif
