#include "store/relocate.h"

#include "base/util.h"
#include "store/chunk_io.h"
#include "store/pack_writer.h"

#include <stdlib.h>

static int copy_chunk(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                      struct pack_writer *w, struct chunk *c, const uint8_t *xxh, uint8_t *plain,
                      uint8_t *stored, struct cairn_error *err)
{
    size_t len;
    int rc = chunk_read(s, op, ctx, c, xxh, plain, s->format.chunk_size, 0, &len, err);
    if (!rc)
        rc = chunk_read_stored(s, op, &c->loc, stored, err);
    c->loc.plain_len = (uint32_t)len;
    return rc ? rc : pack_writer_add(w, c, stored, c->loc.stored_len, err);
}

int relocate_chunks(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
                    const struct pack_set *bad, struct manifest **out, struct cairn_error *err)
{
    uint32_t n = manifest_info(m)->n_chunks;
    CLEANUP_FREE struct chunk_loc *locs = calloc(n ? n : 1, sizeof(*locs));
    CLEANUP_FREE uint8_t *plain = malloc(s->format.chunk_size);
    CLEANUP_FREE uint8_t *stored = malloc(codec_bound(s->format.chunk_size));
    CLEANUP_PACK_WRITER struct pack_writer *w = NULL;
    struct chunk_ctx *ctx = NULL;
    if (!locs || !plain || !stored)
        return error_oom(err, "moving chunks");
    int rc = pack_writer_new(s, op, &w, err);
    if (!rc)
        rc = chunk_ctx_get(s, &ctx, err);
    for (uint32_t i = 0; !rc && i < n; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        if (pack_set_has(bad, c.loc.pack))
            rc = copy_chunk(s, op, ctx, w, &c, manifest_chunk_xxh(m, i), plain, stored, err);
        locs[i] = c.loc;
    }
    chunk_ctx_put(s, ctx);
    if (!rc)
        rc = pack_writer_finish(w, err);
    uint8_t *data;
    size_t len;
    if (!rc)
        rc = manifest_relocate(m, locs, &data, &len, err);
    if (!rc)
        rc = manifest_decode(data, len, manifest_info(m)->id, manifest_info(m)->gen, out, err);
    return rc ? error_wrap(err, "moving chunks") : CAIRN_OK;
}
