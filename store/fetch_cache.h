/* The part of a fetch that the cache does, where objects are no local files: take what is there,
 * and, where that is worth it, bring there what is not. Private to fetch.c. */
#ifndef CAIRN_STORE_FETCH_CACHE_H
#define CAIRN_STORE_FETCH_CACHE_H

#include "store/chunk_io.h"

#include <stdatomic.h>

/* Where a chunk of the piece is. */
enum fetch_got { FETCH_NOT, FETCH_PLAIN, FETCH_SHARED };

/* Some chunks in a row of one file. */
struct fetch_piece {
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct manifest *m;
    const uint32_t *chunks; /* their numbers in m */
    uint32_t n;
    uint64_t first_no; /* of the file's chunks */
    uint64_t file_size;
    int fd;              /* of the file that is made */
    uint8_t *plain;      /* room for n chunks */
    uint8_t *got;        /* enum fetch_got of each; set here */
    atomic_bool *clones; /* FICLONERANGE has not failed yet */
    _Atomic uint64_t *cloned_bytes;
    bool keeps; /* what is not in the cache is to come there */
};

/* Whether a fetch should leave what it downloads in the cache, although that is written twice then:
 * a record with a parent shares most of its chunks with the parent and its other children, and the
 * next of them finds those here. Not if it would fill the cache to more than half. */
bool fetch_cache_keeps(struct cairn_store *s, const struct manifest_info *info);
/* A folder on the file system of the cache: there is a chance that it can share bytes with it. The
 * same bound. */
bool fetch_cache_is_near(struct cairn_store *s, const struct manifest_info *info, int folder);

/* With keeps: all of the piece is taken, or this fails (errors as chunk_read). Else: what is in the
 * cache is taken. Shared means that the file has it already, plain that it is in plain. */
CAIRN_MUST_CHECK int fetch_cache_take(const struct fetch_piece *p, struct chunk_ctx *ctx,
                                      struct cairn_error *err);

#endif
