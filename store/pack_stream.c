#include "store/pack_stream.h"

#include <string.h>

/* A stream under way. Belongs to one thread. */
struct flow {
    struct cairn_store *s;
    struct chunk_ctx *ctx;
    const struct pack_stream *stream;
    size_t i;      /* the chunk that is coming, or comes next */
    uint64_t at;   /* in the pack, of the next byte */
    uint8_t *into; /* its stored bytes; NULL: they are thrown away */
    uint8_t *plain;
};

/* Before the first byte of a chunk. A raw one's go where its plain ones belong. What has a length
 * that it cannot have is passed over. */
static int begin_chunk(struct flow *f, struct cairn_error *err)
{
    const struct fill_want *want = f->stream->wants[f->i];
    const struct chunk_loc *loc = &want->chunk.loc;
    size_t cap = f->s->format.chunk_size;
    f->into = f->plain = NULL;
    if (loc->encoding != CHUNK_RAW) {
        f->into = loc->stored_len <= codec_bound(cap) ? f->ctx->stored : NULL;
        return CAIRN_OK;
    }
    if (loc->stored_len > cap || (want->plain_len && loc->stored_len != want->plain_len))
        return CAIRN_OK;
    int rc = f->stream->room(f->stream->ctx, f->i, &f->plain, err);
    f->into = f->plain;
    return rc;
}

/* After its last byte. */
static int end_chunk(struct flow *f, struct cairn_error *err)
{
    const struct fill_want *want = f->stream->wants[f->i];
    size_t len = want->chunk.loc.stored_len;
    struct cairn_error why;
    int rc = CAIRN_OK;
    if (!f->into)
        return CAIRN_OK;
    if (want->chunk.loc.encoding == CHUNK_RAW) {
        rc = chunk_verify(f->s, &want->chunk, want->xxh, f->plain, len, &why);
    } else {
        rc = f->stream->room(f->stream->ctx, f->i, &f->plain, err);
        if (rc)
            return rc;
        rc = chunk_decode(f->s, f->ctx, &want->chunk, want->xxh, f->into, NULL, 0, f->plain,
                          f->s->format.chunk_size, want->plain_len, &len, &why);
    }
    if (rc == CAIRN_CORRUPT)
        return CAIRN_OK;
    if (rc) {
        if (err)
            *err = why;
        return rc;
    }
    return f->stream->have(f->stream->ctx, f->i, len, err);
}

static int take(void *ctx, const void *data, size_t len, struct cairn_error *err)
{
    struct flow *f = ctx;
    const uint8_t *from = data;
    while (len && f->i < f->stream->n) {
        const struct chunk_loc *loc = &f->stream->wants[f->i]->chunk.loc;
        size_t n;
        int rc = CAIRN_OK;
        if (f->at < loc->offset) {
            n = loc->offset - f->at < len ? (size_t)(loc->offset - f->at) : len;
        } else {
            size_t got = (size_t)(f->at - loc->offset), left = loc->stored_len - got;
            n = left < len ? left : len;
            if (!got)
                rc = begin_chunk(f, err);
            if (!rc && f->into)
                memcpy(f->into + got, from, n);
            if (!rc && n == left) {
                rc = end_chunk(f, err);
                f->i++;
            }
        }
        if (rc)
            return rc;
        f->at += n;
        from += n;
        len -= n;
    }
    return CAIRN_OK;
}

int pack_stream_run(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                    const struct pack_stream *stream, struct cairn_error *err)
{
    const struct chunk_loc *first = &stream->wants[0]->chunk.loc;
    const struct chunk_loc *last = &stream->wants[stream->n - 1]->chunk.loc;
    struct flow f = {.s = s, .ctx = ctx, .stream = stream, .at = first->offset};
    const struct backend_taker to = {.take = take, .ctx = &f};
    char key[KEY_MAX];
    layout_pack(first->pack, key);
    size_t len = (size_t)(last->offset + (uint64_t)last->stored_len - first->offset);
    return backend_stream(s->backend, op, key, first->offset, len, &to, err);
}
