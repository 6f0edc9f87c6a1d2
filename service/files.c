/* The bytes of one file of a record, or of a part of it. */
#include "base/clock.h"
#include "base/util.h"
#include "service/core.h"
#include "service/etag.h"
#include "service/route.h"
#include "store/record_scope.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PIECE_NS (60 * NS_PER_S) /* a piece that takes longer is given up */

struct file_source {
    struct body_source base;
    struct cairn_record *record; /* owned */
    uint64_t file, at, end;
};

static int read_piece(struct body_source *s, const struct cairn_op *op, struct buf *piece,
                      struct cairn_error *err)
{
    struct file_source *f = (struct file_source *)s;
    struct cairn_op own = *op;
    int64_t until = clock_add(clock_monotonic(), PIECE_NS);
    if (until < own.deadline_ns)
        own.deadline_ns = until;
    size_t want = f->end - f->at < BODY_PIECE ? (size_t)(f->end - f->at) : BODY_PIECE, got;
    int rc = buf_reserve(piece, want, err);
    if (!rc)
        rc = cairn_record_pread(f->record, &own, f->file, piece->data + piece->len, want, f->at,
                                &got, err);
    if (rc)
        return rc;
    piece->len += got;
    f->at += got;
    return CAIRN_OK;
}

static void free_source(struct body_source *s)
{
    cairn_record_close(((struct file_source *)s)->record);
    free(s);
}

static int outside(struct response *out, uint64_t size, struct cairn_error *err)
{
    struct cairn_error why;
    struct jsonw w = RESPONSE_JSON(out, err);
    error_set(&why, CAIRN_INVALID, EINVAL, "the range lies outside the file's %" PRIu64 " bytes",
              size);
    out->status = 416;
    jsonw_object(&w, NULL);
    jsonw_error(&w, "error", &why);
    jsonw_object_end(&w);
    int rc = response_header(out, err, "Content-Range", "bytes */%" PRIu64, size);
    return rc ? rc : jsonw_end(&w);
}

/* record is transferred on success. */
static int attach(struct response *out, struct cairn_record *record, uint64_t file, uint64_t from,
                  uint64_t len, struct cairn_error *err)
{
    struct file_source *f = malloc(sizeof(*f));
    if (!f)
        return error_oom(err, "answer");
    *f = (struct file_source){
        {.length = len, .read = read_piece, .free = free_source}, record, file, from, from + len};
    out->source = &f->base;
    return CAIRN_OK;
}

static int headers(struct response *out, const char *gen, enum range_kind kind, uint64_t from,
                   uint64_t len, uint64_t size, struct cairn_error *err)
{
    int rc = response_header(out, err, "ETag", "\"%s\"", gen);
    if (!rc)
        rc = response_header(out, err, "Accept-Ranges", "bytes");
    if (!rc && kind == RANGE_PART)
        rc = response_header(out, err, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                             from, from + len - 1, size);
    return rc;
}

int files_get(struct request *r, struct response *out, struct cairn_error *err)
{
    CLEANUP_RECORD struct cairn_record *record = NULL;
    struct cairn_record_info info;
    struct cairn_file file;
    int rc = cairn_record_open(service_store(r->service), &r->op, r->id, &record, err);
    if (rc)
        return rc;
    int64_t i = cairn_record_find(record, r->rest);
    if (i < 0)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s has no such file", r->id);
    cairn_record_info(record, &info);
    cairn_record_file(record, (uint64_t)i, &file);
    uint64_t from = 0, len = file.size;
    bool ranged = r->method == HTTP_GET && etag_is(r->if_range, info.gen);
    enum range_kind kind = range_parse(ranged ? r->range : NULL, file.size, &from, &len);
    if (etag_matches(r->if_none_match, info.gen)) {
        out->status = 304;
        return headers(out, info.gen, RANGE_ALL, 0, 0, 0, err);
    }
    if (kind == RANGE_OUTSIDE)
        return outside(out, file.size, err);
    rc = headers(out, info.gen, kind, from, len, file.size, err);
    out->content_type = "application/octet-stream";
    if (!rc && kind == RANGE_PART)
        out->status = 206;
    if (!rc && len)
        rc = attach(out, record, (uint64_t)i, from, len, err);
    if (!rc && len)
        record = NULL; /* its source's now */
    /* The deadline was for finding the file; each piece has its own. */
    r->op.deadline_ns = CAIRN_NO_DEADLINE;
    return rc;
}
