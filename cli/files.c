#include "cli/files.h"

#include "base/util.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SHOWN_MAX 256

static int file_error(struct cairn_error *err, int e, const char *what, const char *path)
{
    char shown[SHOWN_MAX];
    text_escape_cut(shown, sizeof(shown), path, TEXT_NAME);
    return error_sys(err, e, "%s %s", what, shown);
}

/* Until fd has something to read (or room for something to write), the op ends, or its token fires.
 */
static int wait_for(int fd, short events, const struct cairn_op *op, const char *what,
                    struct cairn_error *err)
{
    struct pollfd p[2] = {
        {.fd = fd, .events = events},
        {.fd = op && op->cancel ? cairn_cancel_fd(op->cancel) : -1, .events = POLLIN}};
    for (;;) {
        int rc = op_check(op, what, err);
        if (rc)
            return rc;
        int n = poll(p, 2, op_poll_ms(op));
        if (n < 0 && errno != EINTR)
            return error_sys(err, errno, "poll for %s", what);
        if (n > 0 && p[0].revents)
            return CAIRN_OK;
    }
}

static int read_all(int fd, const char *path, const struct cairn_op *op, const char *what,
                    struct buf *out, struct cairn_error *err)
{
    for (;;) {
        uint8_t piece[16384];
        int rc = wait_for(fd, POLLIN, op, what, err);
        if (rc)
            return rc;
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return file_error(err, errno, what, path);
        if (n == 0)
            return CAIRN_OK;
        if ((size_t)n > out->max - out->len) {
            char shown[SHOWN_MAX];
            text_escape_cut(shown, sizeof(shown), path, TEXT_NAME);
            return error_set(err, CAIRN_INVALID, EFBIG, "%s %s: more than the %zu bytes allowed",
                             what, shown, out->max);
        }
        rc = buf_add(out, piece, (size_t)n, err);
        if (rc)
            return rc;
    }
}

int files_read(const char *path, const struct cairn_op *op, const char *what, struct buf *out,
               struct cairn_error *err)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "from standard input", op, what, out, err);
    /* A FIFO without a writer is waited for by poll, which the op can end, and not in open. */
    CLEANUP_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return file_error(err, errno, what, path);
    return read_all(fd, path, op, what, out, err);
}

/* A FIFO that nobody reads yet would be waited for in open, which no op can end. */
static int open_special(const char *path, bool fifo, const struct cairn_op *op, int *fd,
                        struct cairn_error *err)
{
    while ((*fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)) < 0) {
        if (errno != EINTR && !(fifo && errno == ENXIO))
            return file_error(err, errno, "write", path);
        int rc = op_check(op, "waiting for a reader of the FIFO", err);
        if (rc)
            return rc;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return CAIRN_OK;
}

int files_stage(struct staged_file *s, const char *path, const void *data, size_t len,
                const struct cairn_op *op, struct cairn_error *err)
{
    *s = (struct staged_file){.fd = -1, .data = data, .len = len, .op = op};
    s->path = strdup(path);
    if (!s->path)
        return error_oom(err, "file name");
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return file_error(err, EISDIR, "write", path);
        if (!S_ISREG(st.st_mode))
            return open_special(path, S_ISFIFO(st.st_mode), op, &s->fd, err);
    }
    if (asprintf(&s->tmp, "%s.XXXXXX", path) < 0) {
        s->tmp = NULL;
        return error_oom(err, "file name");
    }
    s->fd = mkostemp(s->tmp, O_CLOEXEC);
    if (s->fd < 0) {
        int e = errno;
        free(s->tmp);
        s->tmp = NULL;
        return file_error(err, e, "write", path);
    }
    mode_t mask = umask(0);
    umask(mask);
    if (util_pwrite_full(s->fd, data, len, 0) < 0 || fchmod(s->fd, 0666 & ~mask) || fsync(s->fd))
        return file_error(err, errno, "write", path);
    return CAIRN_OK;
}

static int write_through(struct staged_file *s, struct cairn_error *err)
{
    for (size_t done = 0; done < s->len;) {
        int rc = wait_for(s->fd, POLLOUT, s->op, "write", err);
        if (rc)
            return rc;
        ssize_t n = write(s->fd, (const char *)s->data + done, s->len - done);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return file_error(err, errno, "write", s->path);
        done += n > 0 ? (size_t)n : 0;
    }
    return CAIRN_OK;
}

int files_commit(struct staged_file *s, struct cairn_error *err)
{
    if (!s->tmp)
        return write_through(s, err);
    if (rename(s->tmp, s->path))
        return file_error(err, errno, "rename into", s->path);
    free(s->tmp);
    s->tmp = NULL;
    return CAIRN_OK;
}

void files_abort(struct staged_file *s)
{
    if (s->tmp)
        unlink(s->tmp);
    if (s->path && s->fd >= 0)
        close(s->fd);
    free(s->tmp);
    free(s->path);
    *s = (struct staged_file){.fd = -1};
}

int files_make_dirs(const char *path, unsigned mode, struct cairn_error *err)
{
    CLEANUP_FREE char *p = strdup(path);
    if (!p)
        return error_oom(err, "path");
    for (char *at = p + 1;; at++) {
        char c = *at;
        if (c && c != '/')
            continue;
        *at = 0;
        struct stat st;
        if (mkdir(p, mode) && errno != EEXIST)
            return file_error(err, errno, "make folder", p);
        if (stat(p, &st))
            return file_error(err, errno, "make folder", p);
        if (!S_ISDIR(st.st_mode))
            return file_error(err, ENOTDIR, "make folder", p);
        if (!c)
            return CAIRN_OK;
        *at = c;
    }
}

/* Append the components of rest to base, taking "." and ".." literally. */
static char *append_literally(char *base, const char *rest)
{
    char *out = malloc(strlen(base) + strlen(rest) + 2);
    if (!out)
        return NULL;
    size_t len = strlen(base);
    memcpy(out, base, len + 1);
    if (len == 1)
        len = 0; /* the root is "" here, so that every component brings its slash */
    while (*rest) {
        size_t n = strcspn(rest, "/");
        if (n == 2 && rest[0] == '.' && rest[1] == '.') {
            while (len && out[len - 1] != '/')
                len--;
            len -= len > 0;
        } else if (n && !(n == 1 && rest[0] == '.')) {
            out[len++] = '/';
            memcpy(out + len, rest, n);
            len += n;
        }
        rest += n;
        rest += strspn(rest, "/");
    }
    if (!len)
        out[len++] = '/';
    out[len] = 0;
    return out;
}

int files_canonical(const char *path, char **out, struct cairn_error *err)
{
    CLEANUP_FREE char *cwd = *path == '/' ? NULL : getcwd(NULL, 0);
    if (*path != '/' && !cwd)
        return error_sys(err, errno, "current folder");
    CLEANUP_FREE char *full = NULL;
    if (asprintf(&full, "%s/%s", cwd ? cwd : "", path) < 0) {
        full = NULL;
        return error_oom(err, "path");
    }
    /* The longest beginning that exists, then the rest as it is written. */
    size_t end = strlen(full);
    for (;;) {
        char c = full[end];
        full[end] = 0;
        CLEANUP_FREE char *real = realpath(end ? full : "/", NULL);
        int e = errno;
        full[end] = c;
        if (real) {
            *out = append_literally(real, full + end);
            return *out ? CAIRN_OK : error_oom(err, "path");
        }
        if (e == ENOMEM)
            return error_oom(err, "path");
        if (!end)
            return file_error(err, e, "resolve", path);
        do
            end--;
        while (end && full[end] != '/');
    }
}

bool files_is_inside(const char *inner, const char *outer)
{
    size_t n = strlen(outer);
    if (n == 1)
        return true;
    return strncmp(inner, outer, n) == 0 && (inner[n] == 0 || inner[n] == '/');
}
