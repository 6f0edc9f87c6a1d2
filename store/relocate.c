#include "store/relocate.h"

#include "base/util.h"
#include "store/chunk_io.h"
#include "store/pack_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where a chunk lay and where it lies now. */
struct moved {
    uint8_t pack[PACK_ID_LEN];
    uint32_t offset;
    bool used; /* the slot is taken */
    struct chunk_loc to;
};

struct mover {
    struct cairn_store *store;
    const struct cairn_op *op;
    const struct pack_set *from;
    struct pack_writer *writer;
    struct chunk_ctx *ctx;
    uint8_t *plain;
    struct moved *slots; /* open addressing, cap is a power of two */
    size_t n, cap;
    uint64_t bytes;
};

int mover_new(struct cairn_store *s, const struct cairn_op *op, const struct pack_set *from,
              struct mover **out, struct cairn_error *err)
{
    CLEANUP_MOVER struct mover *mv = calloc(1, sizeof(*mv));
    if (!mv)
        return error_oom(err, "moving chunks");
    mv->store = s;
    mv->op = op;
    mv->from = from;
    mv->cap = 256;
    mv->slots = calloc(mv->cap, sizeof(*mv->slots));
    mv->plain = malloc(s->format.chunk_size);
    if (!mv->slots || !mv->plain)
        return error_oom(err, "moving chunks");
    int rc = pack_writer_new(s, op, &mv->writer, err);
    if (!rc)
        rc = chunk_ctx_get(s, &mv->ctx, err);
    if (!rc)
        *out = util_steal(&mv);
    return rc;
}

void mover_free(struct mover *mv)
{
    if (!mv)
        return;
    pack_writer_free(mv->writer);
    chunk_ctx_put(mv->store, mv->ctx);
    free(mv->slots);
    free(mv->plain);
    free(mv);
}

void mover_freep(struct mover **mv)
{
    mover_free(*mv);
}

/* The slot of that place, or the free one where it belongs. Pack names are random. */
static struct moved *slot(struct moved *slots, size_t cap, const uint8_t pack[PACK_ID_LEN],
                          uint32_t offset)
{
    uint64_t h = (get_le64(pack) ^ offset) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (cap - 1);
    while (slots[i].used &&
           (slots[i].offset != offset || memcmp(slots[i].pack, pack, PACK_ID_LEN) != 0))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static int grow(struct mover *mv, struct cairn_error *err)
{
    size_t cap = 2 * mv->cap;
    struct moved *slots = calloc(cap, sizeof(*slots));
    if (!slots)
        return error_oom(err, "moving chunks");
    for (size_t i = 0; i < mv->cap; i++)
        if (mv->slots[i].used)
            *slot(slots, cap, mv->slots[i].pack, mv->slots[i].offset) = mv->slots[i];
    free(mv->slots);
    mv->slots = slots;
    mv->cap = cap;
    return CAIRN_OK;
}

static int copy_chunk(struct mover *mv, struct chunk *c, const uint8_t *xxh,
                      struct cairn_error *err)
{
    struct cairn_store *s = mv->store;
    if (2 * (mv->n + 1) > mv->cap) {
        int rc = grow(mv, err);
        if (rc)
            return rc;
    }
    struct moved *to = slot(mv->slots, mv->cap, c->loc.pack, c->loc.offset);
    if (to->used)
        return CAIRN_OK;
    struct moved m = {.offset = c->loc.offset, .used = true};
    memcpy(m.pack, c->loc.pack, PACK_ID_LEN);
    size_t len;
    int rc = chunk_read(s, mv->op, mv->ctx, c, xxh, mv->plain, s->format.chunk_size, 0, &len, err);
    if (rc)
        return rc;
    c->loc.plain_len = (uint32_t)len;
    /* The very bytes that were verified: those of another read need not be the same. */
    const uint8_t *stored = c->loc.encoding == CHUNK_RAW ? mv->plain : mv->ctx->stored;
    rc = pack_writer_add(mv->writer, c, stored, c->loc.stored_len, err);
    if (rc)
        return rc;
    m.to = c->loc;
    *to = m;
    mv->n++;
    mv->bytes += c->loc.stored_len;
    return CAIRN_OK;
}

int mover_add(struct mover *mv, const struct manifest *m, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        if (!pack_set_has(mv->from, c.loc.pack))
            continue;
        rc = op_check(mv->op, "moving chunks", err);
        if (!rc)
            rc = copy_chunk(mv, &c, manifest_chunk_xxh(m, i), err);
    }
    return rc;
}

int mover_finish(struct mover *mv, struct cairn_error *err)
{
    return pack_writer_finish(mv->writer, err);
}

uint64_t mover_bytes(const struct mover *mv)
{
    return mv->bytes;
}

int mover_apply(const struct mover *mv, const struct manifest *m, struct manifest **out,
                struct cairn_error *err)
{
    uint32_t n = manifest_info(m)->n_chunks;
    CLEANUP_FREE struct chunk_loc *locs = calloc(n ? n : 1, sizeof(*locs));
    if (!locs)
        return error_oom(err, "moving chunks");
    for (uint32_t i = 0; i < n; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        locs[i] = c.loc;
        if (!pack_set_has(mv->from, c.loc.pack))
            continue;
        const struct moved *to = slot(mv->slots, mv->cap, c.loc.pack, c.loc.offset);
        if (!to->used)
            return error_set(err, CAIRN_TRANSIENT, EAGAIN,
                             "the manifest changed while its chunks were moved");
        locs[i] = to->to;
    }
    uint8_t *data;
    size_t len;
    int rc = manifest_relocate(m, locs, &data, &len, err);
    if (!rc)
        rc = manifest_decode(data, len, manifest_info(m)->id, manifest_info(m)->gen, out, err);
    return rc;
}

int relocate_chunks(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
                    const struct pack_set *bad, struct manifest **out, struct cairn_error *err)
{
    CLEANUP_MOVER struct mover *mv = NULL;
    int rc = mover_new(s, op, bad, &mv, err);
    if (!rc)
        rc = mover_add(mv, m, err);
    if (!rc)
        rc = mover_finish(mv, err);
    if (!rc)
        rc = mover_apply(mv, m, out, err);
    return rc ? error_wrap(err, "moving chunks") : CAIRN_OK;
}
