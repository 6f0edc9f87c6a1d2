#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest single element is a meta of 1 MiB, each byte of which may take six in JSON. */
#define BUFFER_MAX (16 * 1024 * 1024)
#define PIECE      (64 * 1024)

void output_init(struct output *out, int fd)
{
    *out = (struct output){.fd = fd, .buf = BUF_INIT(BUFFER_MAX)};
    out->json = JSONW_INIT(&out->buf, &out->err);
}

void output_release(struct output *out)
{
    buf_release(&out->buf);
}

/* Until fd takes at least PIPE_BUF bytes without blocking. A reader that is ready is served even
 * when the op has ended, so that what was done is still told. */
static int wait_writable(struct output *out)
{
    const struct cairn_op *op = out->op;
    struct pollfd p[2] = {
        {.fd = out->fd, .events = POLLOUT},
        {.fd = op && op->cancel ? cairn_cancel_fd(op->cancel) : -1, .events = POLLIN}};
    for (;;) {
        int n = poll(p, 2, op_poll_ms(op));
        if (n < 0 && errno != EINTR)
            return error_sys(&out->err, errno, "poll for standard output");
        if (n >= 0 && p[0].revents)
            return CAIRN_OK;
        int rc = op_check(op, "write standard output", &out->err);
        if (rc)
            return rc;
    }
}

static int write_all(struct output *out, const uint8_t *data, size_t len)
{
    struct stat st;
    /* A file never blocks for long; anything else may have a reader that sleeps. */
    bool file = fstat(out->fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
    while (len) {
        if (!file) {
            int rc = wait_writable(out);
            if (rc)
                return rc;
        }
        ssize_t n = write(out->fd, data, file || len < PIPE_BUF ? len : PIPE_BUF);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return error_sys(&out->err, errno, "write standard output");
        data += n;
        len -= (size_t)n;
    }
    return CAIRN_OK;
}

/* Text that could not be formatted or kept is a failure of the whole output. */
static int settle(struct output *out)
{
    int json = jsonw_end(&out->json);
    if (!out->rc && json)
        out->rc = json;
    return out->rc;
}

static void flush(struct output *out)
{
    if (settle(out))
        return;
    out->rc = write_all(out, out->buf.data, out->buf.len);
    buf_clear(&out->buf);
}

int output_piece(struct output *out)
{
    if (out->buf.len >= PIECE)
        flush(out);
    return settle(out);
}

void output_printf(struct output *out, const char *fmt, ...)
{
    if (settle(out))
        return;
    char *text;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        out->rc = error_oom(&out->err, "standard output");
        return;
    }
    out->rc = buf_add(&out->buf, text, (size_t)n, &out->err);
    free(text);
    output_piece(out);
}

void output_text(struct output *out, const void *text, size_t len, enum text_mode mode)
{
    if (settle(out))
        return;
    out->rc = text_escape(&out->buf, text, len, mode, &out->err);
    output_piece(out);
}

int output_bytes(struct output *out, const void *data, size_t len, struct cairn_error *err)
{
    if (out->buf.len)
        flush(out);
    if (!settle(out))
        out->rc = write_all(out, data, len);
    if (out->rc && err)
        *err = out->err;
    return out->rc;
}

void output_json_end(struct output *out)
{
    out->in_array = false;
    if (!settle(out))
        out->rc = buf_add(&out->buf, "\n", 1, &out->err);
}

int output_end(struct output *out, struct cairn_error *err)
{
    flush(out);
    if (out->rc && err)
        *err = out->err;
    return out->rc;
}
