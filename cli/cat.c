/* cat. */
#include "base/util.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "store/record_scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE (1024 * 1024)

/* Standard output, in which a hole can be left where it is a file and nothing lies there yet. */
struct sink {
    struct output *out;
    bool sparse;
    off_t old_end; /* of the file as it was */
};

static void sink_init(struct sink *s, struct output *out)
{
    struct stat st;
    int flags = fcntl(out->fd, F_GETFL);
    *s = (struct sink){.out = out};
    if (flags >= 0 && !(flags & O_APPEND) && fstat(out->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        s->sparse = true;
        s->old_end = st.st_size;
    }
}

static int sink_hole(struct sink *s, uint8_t *buf, uint64_t len, struct cairn_error *err)
{
    off_t at = s->sparse ? lseek(s->out->fd, 0, SEEK_CUR) : -1;
    if (at >= 0 && at >= s->old_end) {
        if (lseek(s->out->fd, (off_t)len, SEEK_CUR) < 0)
            return error_sys(err, errno, "seek in standard output");
        return CAIRN_OK;
    }
    memset(buf, 0, len < PIECE ? (size_t)len : PIECE);
    while (len) {
        size_t n = len < PIECE ? (size_t)len : PIECE;
        int rc = op_check(s->out->op, "write standard output", err);
        if (!rc)
            rc = output_bytes(s->out, buf, n, err);
        if (rc)
            return rc;
        len -= n;
    }
    return CAIRN_OK;
}

/* A hole at the end moved the position only. */
static int sink_finish(struct sink *s, struct cairn_error *err)
{
    struct stat st;
    off_t at = s->sparse ? lseek(s->out->fd, 0, SEEK_CUR) : 0;
    if (!s->sparse || (fstat(s->out->fd, &st) == 0 && at <= st.st_size))
        return CAIRN_OK;
    if (ftruncate(s->out->fd, at))
        return error_sys(err, errno, "set the size of standard output");
    return CAIRN_OK;
}

static int copy_data(struct app *app, struct cairn_record *record, uint64_t file, uint64_t at,
                     uint64_t end, uint8_t *buf, struct cairn_error *err)
{
    while (at < end) {
        size_t got, want = end - at < PIECE ? (size_t)(end - at) : PIECE;
        int rc = cairn_record_pread(record, &app->op, file, buf, want, at, &got, err);
        if (!rc && !got)
            rc = error_set(err, CAIRN_INTERNAL, EIO, "the file ends before its size");
        if (!rc)
            rc = output_bytes(&app->out, buf, got, err);
        if (rc)
            return rc;
        at += got;
    }
    return CAIRN_OK;
}

static int copy_file(struct app *app, struct cairn_record *record, uint64_t file, uint64_t size,
                     struct cairn_error *err)
{
    CLEANUP_FREE uint8_t *buf = malloc(PIECE);
    if (!buf)
        return error_oom(err, "buffer");
    struct sink sink;
    sink_init(&sink, &app->out);
    for (uint64_t at = 0; at < size;) {
        uint64_t data = cairn_record_seek(record, file, at, false);
        uint64_t end = data < size ? cairn_record_seek(record, file, data, true) : size;
        int rc = data > at ? sink_hole(&sink, buf, data - at, err) : CAIRN_OK;
        if (!rc)
            rc = copy_data(app, record, file, data, end, buf, err);
        if (rc)
            return rc;
        at = end;
    }
    return sink_finish(&sink, err);
}

/* What comes from a service: holes come as zeros. */
struct remote_sink {
    struct sink sink;
    uint8_t *buf; /* PIECE bytes */
};

static int take_piece(void *ctx, const void *data, size_t len, struct cairn_error *err)
{
    struct remote_sink *r = ctx;
    return util_is_zero(data, len) ? sink_hole(&r->sink, r->buf, len, err)
                                   : output_bytes(r->sink.out, data, len, err);
}

static int cat_remote(struct app *app, struct cairn_error *err)
{
    CLEANUP_FREE uint8_t *buf = malloc(PIECE);
    if (!buf)
        return error_oom(err, "buffer");
    struct remote_sink r = {.buf = buf};
    sink_init(&r.sink, &app->out);
    int rc = remote_cat(app->service, &app->op, app_operand(app, 0), app_operand(app, 1),
                        take_piece, &r, err);
    return rc ? rc : sink_finish(&r.sink, err);
}

int command_cat(struct app *app, struct cairn_error *err)
{
    const char *path = app_operand(app, 1);
    CLEANUP_RECORD struct cairn_record *record = NULL;
    int rc = app_open(app, err);
    if (!rc && app->service)
        return cat_remote(app, err);
    if (!rc)
        rc = cairn_record_open(app->store, &app->op, app_operand(app, 0), &record, err);
    if (rc)
        return rc;
    int64_t i = cairn_record_find(record, path);
    if (i < 0) {
        char shown[256];
        text_escape_cut(shown, sizeof(shown), path, TEXT_NAME);
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "it has no file \"%s\"", shown);
    }
    struct cairn_file file;
    cairn_record_file(record, (uint64_t)i, &file);
    return copy_file(app, record, (uint64_t)i, file.size, err);
}
