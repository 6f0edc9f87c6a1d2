#include "store/record_map.h"

#include "base/util.h"
#include "store/chunk_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Directory stores: straight from the packs ----------------------------------------------- */

/* Part of one chunk: its bytes [skip, skip + len) into out. room has one chunk's length. */
static int read_part(struct cairn_record *r, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct manifest *m, uint32_t index, size_t plain_len, size_t skip,
                     size_t len, uint8_t *room, uint8_t *out, struct cairn_error *err)
{
    struct chunk c;
    manifest_chunk(m, index, &c);
    bool whole = skip == 0 && len == plain_len;
    size_t got;
    int rc = chunk_read(r->store, op, ctx, &c, manifest_chunk_xxh(m, index), whole ? out : room,
                        plain_len, plain_len, &got, err);
    if (!rc && !whole)
        memcpy(out, room + skip, len);
    return rc;
}

/* As far as the manifest m goes. *done: bytes read, also on failure. */
static int read_range(struct cairn_record *r, const struct cairn_op *op, const struct manifest *m,
                      const struct manifest_file *f, uint8_t *buf, size_t len, uint64_t offset,
                      size_t *done, struct cairn_error *err)
{
    uint32_t cs = r->store->format.chunk_size;
    CLEANUP_FREE uint8_t *room = malloc(cs);
    struct chunk_ctx *ctx = NULL;
    if (!room)
        return error_oom(err, "reading");
    int rc = chunk_ctx_get(r->store, &ctx, err);
    while (!rc && *done < len) {
        uint64_t at = offset + *done, no = at / cs, run;
        uint32_t index;
        size_t skip = (size_t)(at - no * cs), n;
        if (!manifest_lookup(m, f, no, &index, &run)) {
            uint64_t hole = run > UINT64_MAX / cs ? UINT64_MAX : run * cs;
            n = hole - skip < len - *done ? (size_t)(hole - skip) : len - *done;
            memset(buf + *done, 0, n);
        } else {
            size_t plain = f->size - no * cs < cs ? (size_t)(f->size - no * cs) : cs;
            n = plain - skip < len - *done ? plain - skip : len - *done;
            rc = op_check(op, "reading", err);
            uint64_t wanted = (skip + (len - *done) + cs - 1) / cs;
            uint32_t ahead = (uint32_t)(run < wanted ? run : wanted);
            if (!rc)
                chunk_read_ahead(r->store, op, ctx, chunk_at_manifest, m, index, index + ahead);
            if (!rc)
                rc = read_part(r, op, ctx, m, index, plain, skip, n, room, buf + *done, err);
        }
        if (!rc)
            *done += n;
    }
    chunk_ctx_put(r->store, ctx);
    return rc;
}

/* ---- Everything else: out of the cache ------------------------------------------------------- */

/* Of one part of a call. What was fetched for it is held until all of it was copied, so that a call
 * of some megabytes has its chunks once, also where no cache takes them. */
#define SPANS_MAX 256

static int copy_span(struct cairn_store *s, const struct record_span *span, uint8_t *out)
{
    if (span->fd >= 0) {
        if (util_pread_full(span->fd, out, span->len, span->offset) == (ssize_t)span->len)
            return 0;
        record_span_doubt(s, span);
        return -1;
    }
    if (span->data)
        memcpy(out, span->data, span->len);
    else
        memset(out, 0, span->len);
    return 0;
}

/* *good is false if the cache could not be read. */
static int read_mapped(struct cairn_record *r, const struct cairn_op *op, uint64_t i, uint8_t *buf,
                       size_t len, uint64_t offset, size_t *got, bool *good,
                       struct cairn_error *err)
{
    *good = true;
    while (*good && *got < len) {
        struct record_span spans[SPANS_MAX];
        size_t n;
        int rc = record_map_part(r, op, i, offset + *got, len - *got, spans, SPANS_MAX, &n, err);
        for (size_t k = 0; *good && k < n; k++) {
            *good = copy_span(r->store, &spans[k], buf + *got) == 0;
            *got += *good ? spans[k].len : 0;
        }
        record_spans_release(r->store, spans, n);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int cairn_record_pread(struct cairn_record *r, const struct cairn_op *op, uint64_t i, void *buf,
                       size_t len, uint64_t offset, size_t *got, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct manifest_file f;
    *got = 0;
    const struct manifest *m = atomic_load(&r->manifest);
    if (i >= manifest_info(m)->n_files)
        return error_set(err, CAIRN_INVALID, EINVAL, "%s has no file %llu", r->id,
                         (unsigned long long)i);
    int rc = op_check(op, "reading", err);
    manifest_file(m, (uint32_t)i, &f);
    if (rc || offset >= f.size)
        return rc;
    if (len > f.size - offset)
        len = (size_t)(f.size - offset);
    if (r->store->fills) {
        bool good;
        rc = read_mapped(r, op, i, buf, len, offset, got, &good, err);
        if (rc || good)
            return rc;
    }
    rc = read_range(r, op, m, &f, buf, len, offset, got, err);
    if (rc == CAIRN_NOT_FOUND) {
        rc = record_reload(r, op, m, err);
        if (!rc) {
            m = atomic_load(&r->manifest);
            manifest_file(m, (uint32_t)i, &f);
            rc = read_range(r, op, m, &f, buf, len, offset, got, err);
        }
    }
    return rc ? error_wrap(err, "reading %s, generation %s", r->id, r->gen) : CAIRN_OK;
}
