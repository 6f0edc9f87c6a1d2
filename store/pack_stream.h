/* Chunks of one pack out of one read of it, each decoded and verified as soon as its last byte is
 * there, while the rest is still on its way: nothing is held but the chunk that is coming. */
#ifndef CAIRN_STORE_PACK_STREAM_H
#define CAIRN_STORE_PACK_STREAM_H

#include "store/cache_fill.h"

struct pack_stream {
    /* All of one pack, without bases, at least one, by ascending offset and none twice. The bytes
     * between them are read and thrown away. Borrowed. */
    const struct fill_want *const *wants;
    size_t n;
    /* Called in the order of wants, for each that did not turn out to be damaged: where its plain
     * bytes are to go (*room has a chunk's length), and, next, that they are there, verified. An
     * error ends the stream. */
    int (*room)(void *ctx, size_t i, uint8_t **room, struct cairn_error *err);
    int (*have)(void *ctx, size_t i, size_t len, struct cairn_error *err);
    void *ctx;
};

/* One ranged read, from the first chunk to the last. What `have` was not told of was damaged on its
 * way, or in the pack: read it alone. Errors: those of the backend's read, of room and of have;
 * what was had before stays had. */
CAIRN_MUST_CHECK int pack_stream_run(struct cairn_store *s, const struct cairn_op *op,
                                     struct chunk_ctx *ctx, const struct pack_stream *stream,
                                     struct cairn_error *err);

#endif
