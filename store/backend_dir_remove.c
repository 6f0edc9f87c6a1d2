#include "base/step.h"
#include "base/util.h"
#include "store/backend_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The folder of the key before: keys of one folder mostly come together. */
struct cursor {
    char parent[PATH_MAX];
    int fd; /* -1: not open */
};

/* 0 when it was unlinked, ENOENT when there was nothing, else errno. */
static int unlink_key(const struct dir_backend *d, struct cursor *c, const char *key)
{
    char parent[PATH_MAX];
    const char *leaf = dir_split(key, parent);
    if (c->fd < 0 || strcmp(parent, c->parent) != 0) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = dir_resolve(d, parent, O_PATH | O_DIRECTORY);
        if (c->fd < 0)
            return errno == ENOTDIR ? ENOENT : errno;
        memcpy(c->parent, parent, strlen(parent) + 1);
    }
    if (unlinkat(c->fd, leaf, 0) == 0) {
        STEP("backend.unlinked");
        return 0;
    }
    /* A folder is no object; which of the two errors tells so depends on the file system. */
    int e = errno;
    struct stat st;
    bool folder = (e == EISDIR || e == EPERM) &&
                  fstatat(c->fd, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    return folder || e == ENOTDIR ? ENOENT : e;
}

static size_t parent_len(const char *key)
{
    const char *slash = strrchr(key, '/');
    return slash ? (size_t)(slash - key) : 0;
}

static int by_parent(const void *pa, const void *pb)
{
    const char *a = **(const char *const *const *)pa, *b = **(const char *const *const *)pb;
    size_t na = parent_len(a), nb = parent_len(b);
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : (na > nb) - (na < nb);
}

/* fsync of path, or of what is left of it when somebody took folders away. */
static int sync_nearest(const struct dir_backend *d, char *path)
{
    for (;;) {
        CLEANUP_FD int fd = dir_resolve(d, path, O_RDONLY | O_DIRECTORY);
        if (fd >= 0)
            return dir_folder_sync(fd) == 0 ? 0 : errno;
        if ((errno != ENOENT && errno != ENOTDIR) || !*path)
            return errno;
        path[parent_len(path)] = 0;
    }
}

struct removal {
    const char *const *keys;
    size_t n, n_failed;
    bool *failed; /* may be NULL */
    struct cairn_error *err;
    int rc;
};

/* True for the first one, whose class and message are the call's. */
static bool is_first_failure(struct removal *r, size_t i)
{
    if (r->failed)
        r->failed[i] = true;
    return r->n_failed++ == 0;
}

static void unlink_all(const struct dir_backend *d, const struct cairn_op *op, struct removal *r,
                       const char *const **gone, size_t *n_gone)
{
    struct cursor c = {.fd = -1};
    struct cairn_error e;
    for (size_t i = 0; i < r->n; i++) {
        int rc = dir_begin(op, "remove", r->keys[i], &e);
        int no = rc ? 0 : unlink_key(d, &c, r->keys[i]);
        if (no == ENOENT && dir_root_check(d, "remove", &e))
            rc = CAIRN_PERMANENT;
        else if (no && no != ENOENT)
            rc = dir_fail(d, no, "remove", r->keys[i], &e);
        if (rc) {
            if (is_first_failure(r, i))
                r->rc = error_pass(r->err, &e);
        } else if (no == 0) {
            gone[(*n_gone)++] = &r->keys[i];
        }
    }
    if (c.fd >= 0)
        close(c.fd);
}

/* Each folder once. Also when the op has ended: a second try would find the keys absent and never
 * make their removal durable. */
static void sync_all(const struct dir_backend *d, struct removal *r, const char *const **gone,
                     size_t n_gone)
{
    qsort(gone, n_gone, sizeof(*gone), by_parent);
    for (size_t i = 0; i < n_gone;) {
        char parent[PATH_MAX];
        dir_split(*gone[i], parent);
        int no = sync_nearest(d, parent);
        STEP("backend.unlinked-synced");
        size_t first = i;
        do {
            if (no && is_first_failure(r, (size_t)(gone[i] - r->keys)))
                r->rc = dir_fail_write(d, no, "remove", *gone[i], r->err);
            i++;
        } while (i < n_gone && by_parent(&gone[i], &gone[first]) == 0);
    }
}

int dir_remove(struct backend *b, const struct cairn_op *op, const char *const *keys, size_t n,
               bool *failed, struct cairn_error *err)
{
    CLEANUP_FREE const char *const **gone = calloc(n ? n : 1, sizeof(*gone));
    if (!gone)
        return error_oom(err, "remove");
    if (failed)
        memset(failed, 0, n * sizeof(*failed));
    struct removal r = {.keys = keys, .n = n, .failed = failed, .err = err};
    size_t n_gone = 0;
    unlink_all(dir_of(b), op, &r, gone, &n_gone);
    sync_all(dir_of(b), &r, gone, n_gone);
    if (r.rc && n > 1)
        error_wrap(err, "%zu of %zu objects not removed", r.n_failed, n);
    return r.rc;
}
