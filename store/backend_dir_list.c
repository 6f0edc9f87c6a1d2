/* Listing a directory store: a depth-first walk that reads one folder at a time, sorts its names
 * and then yields them. A folder sorts as its name and '/', so that keys come in the order of their
 * bytes. An iterator that failed may be asked again: it stands where it stood. */
#include "base/util.h"
#include "store/backend_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Our keys have three names. A folder deeper than this is listed as if it were an object. */
#define DEPTH_MAX  32
#define NAMES_MAX  ((size_t)1 << 31)
#define DENTS_SIZE ((size_t)64 << 10)

struct frame {
    int fd;
    size_t base;        /* length of the folder's key, with its '/' */
    struct buf arena;   /* the names, each with its NUL; of folders with '/' before */
    const char **names; /* sorted, into the arena */
    size_t n, next;
};

struct dir_iter {
    struct backend_iter base;
    const struct dir_backend *d;
    char *prefix, *after; /* owned */
    char *dents;          /* owned; what getdents64 fills */
    bool folders;         /* these are what is yielded, of the first frame */
    struct frame frames[DEPTH_MAX];
    size_t depth; /* frames in use; 0: complete */
    char key[PATH_MAX + DEPTH_MAX * (NAME_MAX + 1) + 1];
};

static void frame_release(struct frame *f)
{
    if (f->fd >= 0)
        close(f->fd);
    buf_release(&f->arena);
    free(f->names);
    *f = (struct frame){.fd = -1};
}

static bool is_folder(const char *name)
{
    return name[strlen(name) - 1] == '/';
}

/* Whether name (with '/' if a folder) behind the first base bytes of it->key is in the listing, or,
 * for a folder, may lead to what is. */
static bool is_wanted(const struct dir_iter *it, size_t base, const char *name)
{
    const char *prefix = it->prefix + (strlen(it->prefix) > base ? base : strlen(it->prefix));
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    if (base == 0 && strcmp(name, "lost+found/") == 0)
        return false; /* the file system's own, often not even readable */
    int c = strncmp(it->key, it->after, base);
    if (c != 0)
        return c > 0;
    const char *after = it->after + base;
    return is_folder(name) ? strncmp(name, after, strlen(name)) >= 0 : strcmp(name, after) > 0;
}

/* Adds one directory entry to the arena, if it is wanted. */
static int add_name(struct dir_iter *it, struct frame *f, const char *name, unsigned char type,
                    struct cairn_error *err)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return CAIRN_OK;
    bool folder = type == DT_DIR;
    if (type == DT_UNKNOWN) {
        struct stat st;
        if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return errno == ENOENT ? CAIRN_OK : dir_fail(it->d, errno, "list", name, err);
        folder = S_ISDIR(st.st_mode);
    }
    char entry[NAME_MAX + 2];
    int n = snprintf(entry, sizeof(entry), "%s%s", name, folder ? "/" : "");
    if ((size_t)n >= sizeof(entry))
        return error_set(err, CAIRN_PERMANENT, ENAMETOOLONG, "list: a name of %d bytes", n);
    return is_wanted(it, f->base, entry) ? buf_add(&f->arena, entry, (size_t)n + 1, err) : CAIRN_OK;
}

static int read_names(struct dir_iter *it, const struct cairn_op *op, struct frame *f,
                      struct cairn_error *err)
{
    for (;;) {
        int rc = op_check(op, "list", err);
        if (rc)
            return rc;
        ssize_t n = getdents64(f->fd, it->dents, DENTS_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != ENOENT) /* ENOENT: the folder was removed */
            return dir_fail(it->d, errno, "list", it->key, err);
        if (n <= 0)
            return CAIRN_OK;
        for (const char *p = it->dents, *end = p + n; !rc && p < end;) {
            const struct dirent64 *de = (const void *)p;
            rc = add_name(it, f, de->d_name, de->d_type, err);
            p += de->d_reclen;
        }
        if (rc)
            return rc;
    }
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sort_names(struct frame *f, struct cairn_error *err)
{
    size_t n = 0;
    const char *p = (const char *)f->arena.data, *end = p ? p + f->arena.len : p;
    for (; p < end; p += strlen(p) + 1)
        n++;
    f->names = calloc(n ? n : 1, sizeof(*f->names));
    if (!f->names)
        return error_oom(err, "list");
    n = 0;
    for (p = (const char *)f->arena.data; p < end; p += strlen(p) + 1)
        f->names[n++] = p;
    qsort(f->names, n, sizeof(*f->names), by_bytes);
    for (size_t i = 0; i < n; i++)
        if (!f->n || strcmp(f->names[i], f->names[f->n - 1]) != 0)
            f->names[f->n++] = f->names[i];
    return CAIRN_OK;
}

static bool same_time(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The folder fd, whose key is the first base bytes of it->key, becomes the top frame. before: from
 * before fd was opened. fd is the frame's, also after a failure. */
static int push(struct dir_iter *it, const struct cairn_op *op, int fd, size_t base,
                const struct stat *before, struct cairn_error *err)
{
    struct frame *f = &it->frames[it->depth];
    *f = (struct frame){.fd = fd, .base = base, .arena = BUF_INIT(NAMES_MAX)};
    it->key[base] = 0;
    int rc = read_names(it, op, f, err);
    /* Some file systems skip an object that is replaced (renamed over) between opening its folder
     * and reading it. What a second look adds is merged; what is gone is skipped later. */
    struct stat now;
    if (!rc && fstat(fd, &now) == 0 && !same_time(before, &now)) {
        if (lseek(fd, 0, SEEK_SET) < 0)
            rc = dir_fail(it->d, errno, "list", it->key, err);
        else
            rc = read_names(it, op, f, err);
    }
    if (!rc)
        rc = sort_names(f, err);
    if (rc)
        frame_release(f);
    else
        it->depth++;
    return rc;
}

/* The folder that the prefix lies in. One that is not there holds nothing, unless the whole store
 * is gone. */
static int push_first(struct dir_iter *it, const struct cairn_op *op, struct cairn_error *err)
{
    char folder[PATH_MAX];
    dir_split(it->prefix, folder);
    CLEANUP_FD int at = dir_resolve(it->d, folder, O_PATH | O_DIRECTORY);
    struct stat before;
    CLEANUP_FD int fd = -1;
    if (at >= 0 && fstat(at, &before) == 0)
        fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        int rc = dir_fail(it->d, errno, "list", it->prefix, err);
        return rc == CAIRN_NOT_FOUND ? CAIRN_OK : rc;
    }
    size_t base = strlen(folder);
    memcpy(it->key, folder, base);
    if (base)
        it->key[base++] = '/';
    return push(it, op, util_steal_fd(&fd), base, &before, err);
}

static int prefix_check(const char *prefix, struct cairn_error *err)
{
    char folder[PATH_MAX];
    if (strlen(prefix) >= PATH_MAX)
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG, "list: a prefix of %zu bytes",
                         strlen(prefix));
    dir_split(prefix, folder);
    return *folder || *prefix == '/' ? dir_key_check(folder, err) : CAIRN_OK;
}

static int start(struct backend *b, const struct cairn_op *op, const char *prefix,
                 const char *after, bool folders, struct backend_iter **out,
                 struct cairn_error *err)
{
    const struct dir_backend *d = dir_of(b);
    int rc = prefix_check(prefix, err);
    if (!rc)
        rc = dir_op_check(op, "list", prefix, err);
    if (!rc)
        rc = dir_root_check(d, "list", err);
    if (rc)
        return rc;
    struct dir_iter *it = calloc(1, sizeof(*it));
    if (!it)
        return error_oom(err, "list");
    it->base.ops = b->ops;
    it->d = d;
    it->folders = folders;
    it->prefix = strdup(prefix);
    it->after = strdup(after);
    it->dents = malloc(DENTS_SIZE);
    rc = it->prefix && it->after && it->dents ? push_first(it, op, err) : error_oom(err, "list");
    if (rc)
        dir_iter_free(&it->base);
    else
        *out = &it->base;
    return rc;
}

int dir_list(struct backend *b, const struct cairn_op *op, const char *prefix, const char *after,
             struct backend_iter **out, struct cairn_error *err)
{
    return start(b, op, prefix, after, false, out, err);
}

int dir_list_folders(struct backend *b, const struct cairn_op *op, const char *prefix,
                     const char *after, struct backend_iter **out, struct cairn_error *err)
{
    return start(b, op, prefix, after, true, out, err);
}

/* The folder that is the next name of f; out->key stays NULL if it is none any more. */
static int yield_folder(struct dir_iter *it, struct frame *f, struct backend_entry *out,
                        struct cairn_error *err)
{
    char bare[NAME_MAX + 1];
    const char *name = f->names[f->next];
    size_t len = strlen(name);
    struct stat st;
    memcpy(bare, name, len - 1);
    bare[len - 1] = 0;
    if (fstatat(f->fd, bare, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return dir_fail(it->d, errno, "list", it->key, err);
    } else if (S_ISDIR(st.st_mode)) {
        out->key = it->key;
        dir_stat_of(&st, &out->stat);
    }
    f->next++;
    return CAIRN_OK;
}

/* Down into the folder that is the next name of f. One that vanished is passed over. */
static int descend(struct dir_iter *it, const struct cairn_op *op, struct frame *f,
                   struct cairn_error *err)
{
    const char *name = f->names[f->next];
    size_t len = strlen(name);
    char bare[NAME_MAX + 1];
    memcpy(bare, name, len - 1);
    bare[len - 1] = 0;
    struct stat before;
    CLEANUP_FD int fd = -1;
    if (fstatat(f->fd, bare, &before, AT_SYMLINK_NOFOLLOW) == 0)
        fd = dir_step(f->fd, bare, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        f->next++;
        return CAIRN_OK;
    }
    if (fd < 0)
        return dir_fail(it->d, errno, "list", it->key, err);
    int rc = push(it, op, util_steal_fd(&fd), f->base + len, &before, err);
    if (!rc)
        f->next++;
    return rc;
}

/* The object that is the next name of f; out->key stays NULL if it vanished. */
static int yield(struct dir_iter *it, struct frame *f, struct backend_entry *out,
                 struct cairn_error *err)
{
    size_t len = strlen(it->key);
    bool folder = it->key[len - 1] == '/'; /* too deep */
    if (folder)
        it->key[len - 1] = 0;
    struct stat st;
    if (fstatat(f->fd, it->key + f->base, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return dir_fail(it->d, errno, "list", it->key, err);
        f->next++;
        return CAIRN_OK;
    }
    f->next++;
    if (S_ISDIR(st.st_mode) && !folder)
        return CAIRN_OK;
    out->key = it->key;
    dir_stat_of(&st, &out->stat);
    return CAIRN_OK;
}

int dir_iter_next(struct backend_iter *base, const struct cairn_op *op, struct backend_entry *out,
                  struct cairn_error *err)
{
    struct dir_iter *it = (struct dir_iter *)base;
    *out = (struct backend_entry){.key = NULL};
    while (it->depth) {
        struct frame *f = &it->frames[it->depth - 1];
        if (f->next == f->n) {
            frame_release(f);
            it->depth--;
            continue;
        }
        int rc = op_check(op, "list", err);
        if (rc)
            return rc;
        const char *name = f->names[f->next];
        memcpy(it->key + f->base, name, strlen(name) + 1);
        if (it->folders && is_folder(name))
            rc = yield_folder(it, f, out, err);
        else if (it->folders)
            f->next++;
        else if (is_folder(name) && it->depth < DEPTH_MAX)
            rc = descend(it, op, f, err);
        else
            rc = yield(it, f, out, err);
        if (rc || out->key)
            return rc;
    }
    /* A store that vanished meanwhile looked like a few objects that did. */
    return dir_root_check(it->d, "list", err);
}

void dir_iter_free(struct backend_iter *base)
{
    struct dir_iter *it = (struct dir_iter *)base;
    while (it->depth)
        frame_release(&it->frames[--it->depth]);
    free(it->prefix);
    free(it->after);
    free(it->dents);
    free(it);
}
