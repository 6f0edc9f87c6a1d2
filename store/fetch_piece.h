/* What the files of the fetch hand to each other. Private to them. */
#ifndef CAIRN_STORE_FETCH_PIECE_H
#define CAIRN_STORE_FETCH_PIECE_H

#include "store/chunk_io.h"

#include <stdatomic.h>

struct fetch_repeats;

/* Where a chunk of a piece is: nowhere yet, on its way to the cache for somebody else, in plain, or
 * where it belongs, in the file (shared: without a copy). */
enum fetch_got { FETCH_NOT, FETCH_AWAY, FETCH_PLAIN, FETCH_SHARED, FETCH_WRITTEN };

/* Some chunks of one file. Everything is borrowed. */
struct fetch_piece {
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct manifest *m;
    const uint32_t *chunks; /* their numbers in m */
    const uint64_t *nos;    /* and in the file, ascending */
    uint32_t n;
    uint64_t file_size;
    const char *path;    /* for messages */
    int fd;              /* of the file that is made */
    uint8_t *plain;      /* room for as many chunks as its user says */
    uint8_t *got;        /* enum fetch_got of each */
    atomic_bool *clones; /* FICLONERANGE has not failed yet */
    _Atomic uint64_t *cloned_bytes;
    bool keeps; /* what is not in the cache is to come there, too */
    struct fetch_repeats *repeats;
};

static inline uint32_t fetch_plain_len(const struct fetch_piece *p, uint32_t i)
{
    uint32_t cs = p->s->format.chunk_size;
    uint64_t left = p->file_size - p->nos[i] * cs;
    return left < cs ? (uint32_t)left : cs;
}

/* Chunks i to i + n - 1 of the piece into the file, from data. Blocks that are all zero stay holes,
 * as finely as file systems keep them. */
CAIRN_MUST_CHECK int fetch_write(const struct fetch_piece *p, uint32_t i, uint32_t n,
                                 const uint8_t *data, struct cairn_error *err);

/* All of a piece into the file, where objects are no local files. p->got is set. room: how many
 * chunks fit into p->plain, at least one. Errors: those of chunk_read, and of writing. */
CAIRN_MUST_CHECK int fetch_far(const struct fetch_piece *p, uint32_t room, struct chunk_ctx *ctx,
                               struct cairn_error *err);

#endif
