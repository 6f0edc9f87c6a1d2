#include "tests/mount/daemon.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/util.h"
#include "store/digest.h"
#include "store/ids.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

static struct cairn_error err;

void daemon_gen(const char *meta, char gen[GEN_NAME_MAX])
{
    ck_ok(gen_of_meta(meta, strlen(meta), gen, &err));
}

const char *in(const char *root, const char *id, const char *name)
{
    static _Thread_local char texts[16][1024];
    static _Thread_local unsigned next;
    char *out = texts[next++ % 16];
    text(out, sizeof(texts[0]), "%s/%s%s%s", root, id, name ? "/" : "", name ? name : "");
    return out;
}

const char *gen_path(const char *root, const char *id, const char *what, const char *meta)
{
    char gen[GEN_NAME_MAX], name[64];
    daemon_gen(meta, gen);
    text(name, sizeof(name), "%s-%s", what, gen);
    return in(root, id, name);
}

/* ---- The image ------------------------------------------------------------------------------- */

#define RUN ((uint64_t)128 * 1024)

/* Of every three runs of memory the first is data. */
static bool is_data(uint64_t off)
{
    return off / RUN % 3 == 0;
}

void image_memory(const struct image *im, uint64_t off, size_t len, uint8_t *out)
{
    while (len) {
        uint64_t block = off / 4096;
        size_t at = (size_t)(off % 4096), n = 4096 - at < len ? 4096 - at : len;
        uint8_t data[4096] = {0};
        if (is_data(off))
            testing_fill(data, sizeof(data), im->seed * 1000003 + block);
        memcpy(out, data + at, n);
        out += n;
        off += n;
        len -= n;
    }
}

static size_t small_text(const struct image *im, const char *name, char out[256])
{
    text(out, 256, "{\"name\":\"%s\",\"seed\":%llu}\n", name, (unsigned long long)im->seed);
    return strlen(out);
}

/* ---- 1, 16: start ---------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *end)
{
    size_t a = strlen(name), b = strlen(end);
    return a >= b && strcmp(name + a - b, end) == 0;
}

struct names {
    char (*names)[256];
    size_t n;
};

/* A whole listing; getdents in batches of 1024 names, as os.ReadDir does. Errno. */
static int read_names(const char *path, struct names *out)
{
    *out = (struct names){0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return errno;
    int e = 0;
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d) {
            e = errno;
            break;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        ck_assert_int_ne(d->d_type, DT_UNKNOWN);
        out->names = reallocarray(out->names, out->n + 1, 256);
        ck_assert_ptr_nonnull(out->names);
        text(out->names[out->n++], 256, "%s", d->d_name);
    }
    closedir(dir);
    return e;
}

void daemon_start(const char *root)
{
    struct stat st;
    struct names names;
    ck_sys(stat(root, &st));
    ck_assert(S_ISDIR(st.st_mode));
    ck_sys(stat(in(root, "..", NULL), &st));
    ck_errno(mkdirat(AT_FDCWD, root, 0750), EEXIST);
    ck_assert_int_eq(read_names(root, &names), 0);
    for (size_t i = 0; i < names.n; i++)
        if (ends_in(names.names[i], ".tmp"))
            ck_assert_int_eq(daemon_remove_all(in(root, names.names[i], NULL)), 0);
    free(names.names);
}

/* ---- 2: stage -------------------------------------------------------------------------------- */

int daemon_stage(const char *root, const char *id, char stage[512])
{
    static _Atomic unsigned number = 1;
    for (;;) {
        text(stage, 512, "%s/%s-%u.tmp", root, id, number++ * 2654435761u);
        if (mkdirat(AT_FDCWD, stage, 0700) == 0)
            return 0;
        if (errno != EEXIST)
            return errno;
    }
}

/* ---- 3: the VM tool -------------------------------------------------------------------------- */

/* FICLONE from another file system is refused in one of two ways. */
static int try_clone(int fd)
{
    CLEANUP_FD int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(other, 0);
    ck_assert_int_eq(ioctl(fd, FICLONE, other), -1);
    ck_assert_msg(errno == EXDEV || errno == EOPNOTSUPP, "FICLONE: %s", strerror(errno));
    return 0;
}

static int create_for(const char *path, uint64_t size)
{
    struct statfs sf;
    if (statfs(path, &sf) == 0)
        return -EEXIST;
    CLEANUP_FD int first = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (first < 0)
        return -errno;
    try_clone(first);
    close(util_steal_fd(&first));
    if (unlink(path) != 0)
        return -errno;
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        return -errno;
    return util_steal_fd(&fd);
}

static int finish_file(int fd)
{
    if (fsync(fd) != 0)
        return errno;
    return close(fd) == 0 ? 0 : errno;
}

static int write_memory(const char *export, const struct image *im)
{
    char path[1024];
    text(path, sizeof(path), "%s/memory-ranges", export);
    int fd = create_for(path, im->memory), e = 0;
    if (fd < 0)
        return -fd;
    CLEANUP_FREE uint8_t *run = malloc(RUN);
    for (uint64_t off = 0; !e && off < im->memory; off += RUN) {
        size_t n = im->memory - off < RUN ? (size_t)(im->memory - off) : RUN;
        if (!is_data(off))
            continue;
        image_memory(im, off, n, run);
        if (util_pwrite_full(fd, run, n, off) < 0)
            e = errno;
    }
    int last = finish_file(fd);
    return e ? e : last;
}

/* Its two blocks of data come by copy_file_range, from a file beside it. */
static int write_disk(const char *export, const struct image *im)
{
    char path[1024], from[1024];
    uint8_t data[8192];
    text(path, sizeof(path), "%s/cow.raw", export);
    text(from, sizeof(from), "%s/.from", export);
    testing_fill(data, sizeof(data), im->seed + 77);
    int fd = create_for(path, im->disk), e = 0;
    if (fd < 0)
        return -fd;
    CLEANUP_FD int src = open(from, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (src < 0 || util_pwrite_full(src, data, sizeof(data), 0) < 0)
        e = errno;
    for (int i = 0; !e && i < 2; i++) {
        off_t at = i * 4096, to = i ? (off_t)(im->disk - 4096) : 1 << 20;
        if (copy_file_range(src, &at, fd, &to, 4096, 0) != 4096)
            e = errno ? errno : EIO;
    }
    if (unlink(from) != 0 && !e)
        e = errno;
    int last = finish_file(fd);
    return e ? e : last;
}

static int write_text(const char *dir, const char *name, const struct image *im)
{
    char path[1024], line[256];
    size_t n = small_text(im, name, line);
    text(path, sizeof(path), "%s/%s", dir, name);
    int fd = create_for(path, n);
    if (fd < 0)
        return -fd;
    int e = util_pwrite_full(fd, line, n, 0) < 0 ? errno : 0, last = finish_file(fd);
    return e ? e : last;
}

struct writer {
    pthread_t thread;
    const char *export;
    const struct image *im;
    int which, e;
};

static void *write_one(void *arg)
{
    struct writer *w = arg;
    char nested[1024];
    text(nested, sizeof(nested), "%s/data", w->export);
    w->e = w->which == 0              ? write_memory(w->export, w->im)
           : w->which == 1            ? write_disk(w->export, w->im)
           : w->which == 2            ? write_text(w->export, "config.json", w->im)
           : w->which == 3            ? write_text(w->export, "state.json", w->im)
           : !w->im->nested           ? 0
           : mkdir(nested, 0755) != 0 ? errno
                                      : write_text(nested, "extra", w->im);
    return NULL;
}

static int write_snapshot(const char *export, const struct image *im)
{
    char tmp[1024], path[1024], line[256];
    size_t n = small_text(im, "snapshot.json", line);
    text(tmp, sizeof(tmp), "%s/.tmp-%u", export, (unsigned)im->seed);
    text(path, sizeof(path), "%s/snapshot.json", export);
    CLEANUP_FD int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, n) != (ssize_t)n || fsync(fd) != 0 || fchmod(fd, 0644) != 0 ||
        renameat(AT_FDCWD, tmp, AT_FDCWD, path) != 0)
        return errno;
    CLEANUP_FD int dir = open(export, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return errno;
    if (fsync(dir) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF)
        return errno;
    return 0;
}

int tool_export(const char *stage, const struct image *im)
{
    char export[1024];
    struct names names;
    struct statfs sf;
    text(export, sizeof(export), "%s/export", stage);
    if (mkdirat(AT_FDCWD, export, 0755) != 0)
        return errno;
    int e = read_names(export, &names);
    free(names.names);
    if (e)
        return e;
    ck_assert_uint_eq(names.n, 0);
    if (statfs(export, &sf) != 0)
        return errno;
    ck_assert_uint_gt(sf.f_blocks, 0);
    struct writer w[5];
    for (int i = 0; i < 5; i++) {
        w[i] = (struct writer){.export = export, .im = im, .which = i};
        ck_assert_int_eq(pthread_create(&w[i].thread, NULL, write_one, &w[i]), 0);
    }
    for (int i = 0; i < 5; i++) {
        pthread_join(w[i].thread, NULL);
        e = e ? e : w[i].e;
    }
    return e ? e : write_snapshot(export, im);
}

/* ---- 4, 5: meta and digest ------------------------------------------------------------------- */

static int write_file(const char *path, const char *bytes)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, strlen(bytes)) != (ssize_t)strlen(bytes))
        return errno;
    return close(util_steal_fd(&fd)) == 0 ? 0 : errno;
}

int daemon_stage_meta(const char *stage, const char *meta)
{
    return write_file(in(stage, "meta.json", NULL), meta);
}

struct digest_file {
    char path[512];
    uint64_t size;
};

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct digest_file *)a)->path, ((const struct digest_file *)b)->path);
}

static int find_files(const char *top, const char *below, struct digest_file *files, size_t *n)
{
    struct names names;
    char dir[1024];
    text(dir, sizeof(dir), "%s%s%s", top, *below ? "/" : "", below);
    int e = read_names(dir, &names);
    for (size_t i = 0; !e && i < names.n; i++) {
        struct stat st;
        char path[512], full[2048];
        text(path, sizeof(path), "%.200s%s%s", below, *below ? "/" : "", names.names[i]);
        text(full, sizeof(full), "%s/%s", top, path);
        if (lstat(full, &st) != 0)
            e = errno;
        else if (S_ISDIR(st.st_mode))
            e = find_files(top, path, files, n);
        else {
            ck_assert_uint_lt(*n, 32);
            text(files[*n].path, sizeof(files[0].path), "%s", path);
            files[(*n)++].size = (uint64_t)st.st_size;
        }
    }
    free(names.names);
    return e;
}

/* Each piece of 16 MiB by an open of its own, in reads of 128 KiB. */
static int digest_pieces(struct digest *d, const char *path, uint64_t size)
{
    static uint8_t buf[128 * 1024];
    for (uint64_t off = 0; off < size;) {
        CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return errno;
        for (uint64_t end = off + DIGEST_PIECE; off < end && off < size;) {
            ssize_t n = pread(fd, buf, sizeof(buf), (off_t)off);
            if (n <= 0)
                return n < 0 ? errno : EIO;
            ck_ok(digest_data(d, buf, (size_t)n, &err));
            off += (uint64_t)n;
        }
    }
    return 0;
}

int daemon_digest(const char *stage, char digest[72])
{
    struct digest_file files[32];
    size_t n = 0;
    char export[1024];
    uint8_t sha[SHA256_LEN];
    text(export, sizeof(export), "%s/export", stage);
    int e = find_files(export, "", files, &n);
    qsort(files, n, sizeof(files[0]), by_path);
    struct digest *d;
    ck_ok(digest_new(&d, &err));
    for (size_t i = 0; !e && i < n; i++) {
        ck_ok(digest_file(d, files[i].path, strlen(files[i].path), files[i].size, &err));
        e = digest_pieces(d, in(export, files[i].path, NULL), files[i].size);
    }
    if (!e) {
        ck_ok(digest_final(d, sha, &err));
        digest_text(sha, digest);
    }
    digest_free(d);
    return e;
}

/* ---- 6 to 9: publish ------------------------------------------------------------------------- */

static int read_file(const char *path, char *out, size_t cap, int *keep)
{
    struct stat st;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return errno;
    ssize_t n = util_pread_full(fd, out, cap - 1, 0);
    if (n < 0)
        return errno;
    out[n] = 0;
    ck_assert_int_eq(n, st.st_size);
    if (keep)
        *keep = util_steal_fd(&fd);
    return 0;
}

static int touch_now(const char *path)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct timespec times[2] = {now, now};
    return utimensat(AT_FDCWD, path, times, 0) == 0 ? 0 : errno;
}

static int old_enough(const struct stat *st)
{
    return clock_realtime() / NS_PER_S - st->st_mtim.tv_sec >= 3600;
}

static int publish_export(const char *root, const char *id, const char *stage, const char *meta)
{
    struct stat st;
    char committed[4096];
    const char *target = gen_path(root, id, "export", meta), *export = in(stage, "export", NULL);
    if (stat(target, &st) == 0) {
        if (!read_file(in(root, id, "meta.json"), committed, sizeof(committed), NULL) &&
            strcmp(committed, meta) == 0)
            return -1; /* done already */
        return old_enough(&st) ? EEXIST : 0;
    }
    if (errno != ENOENT)
        return errno;
    int e = touch_now(export);
    if (e)
        return e;
    if (lstat(target, &st) == 0)
        return EEXIST;
    return renameat(AT_FDCWD, export, AT_FDCWD, target) == 0 ? 0 : errno;
}

static int unlink_both(const char *path)
{
    if (unlinkat(AT_FDCWD, path, 0) == 0)
        return 0;
    int e = errno;
    if (unlinkat(AT_FDCWD, path, AT_REMOVEDIR) == 0)
        return 0;
    return errno == ENOENT || errno == ENOTDIR ? (e == ENOENT ? 0 : e) : errno;
}

static int publish_digest(const char *root, const char *id, const char *meta, const char *digest)
{
    struct stat st;
    char path[1024], tmp[1024];
    text(path, sizeof(path), "%s", gen_path(root, id, "digest", meta));
    text(tmp, sizeof(tmp), "%.1000s.tmp", path);
    if (!digest) {
        int e = unlink_both(path);
        return e ? e : unlink_both(tmp);
    }
    int e = write_file(tmp, digest);
    if (e)
        return e;
    if (lstat(path, &st) != 0 && errno != ENOENT)
        return errno;
    return renameat(AT_FDCWD, tmp, AT_FDCWD, path) == 0 ? 0 : errno;
}

/* What the new meta supersedes ages from now on. */
static int touch_old(const char *root, const char *id, const char *meta)
{
    char old[4096];
    int e = read_file(in(root, id, "meta.json"), old, sizeof(old), NULL);
    if (e == ENOENT || strcmp(old, meta) == 0)
        return 0;
    if (!e)
        e = touch_now(gen_path(root, id, "export", old));
    if (e == ENOENT)
        e = 0;
    int f = touch_now(gen_path(root, id, "digest", old));
    return e ? e : f == ENOENT ? 0 : f;
}

int daemon_publish(const char *root, const char *id, const char *stage, const char *digest)
{
    struct stat st;
    char meta[4096];
    int e = read_file(in(stage, "meta.json", NULL), meta, sizeof(meta), NULL);
    if (e)
        return e;
    if (mkdirat(AT_FDCWD, in(root, id, NULL), 0750) != 0 && errno != EEXIST)
        return errno;
    e = publish_export(root, id, stage, meta);
    if (e)
        return e < 0 ? 0 : e;
    e = publish_digest(root, id, meta, digest);
    if (!e)
        e = touch_old(root, id, meta);
    if (!e)
        e = write_file(in(root, id, "meta.json.tmp"), meta);
    if (e)
        return e;
    if (lstat(in(root, id, "meta.json"), &st) != 0 && errno != ENOENT)
        return errno;
    return renameat(AT_FDCWD, in(root, id, "meta.json.tmp"), AT_FDCWD, in(root, id, "meta.json")) ==
                   0
               ? 0
               : errno;
}

int daemon_save(const char *root, const char *id, const struct image *im, const char *meta,
                bool digest)
{
    char stage[512], sum[72];
    int e = daemon_stage(root, id, stage);
    if (!e)
        e = tool_export(stage, im);
    if (!e)
        e = daemon_stage_meta(stage, meta);
    if (!e && digest)
        e = daemon_digest(stage, sum);
    if (!e)
        e = daemon_publish(root, id, stage, digest ? sum : NULL);
    int f = daemon_remove_all(stage);
    return e ? e : f;
}

/* ---- 10, 11: sweep and remove ---------------------------------------------------------------- */

int daemon_sweep(const char *root, const char *id)
{
    struct names names;
    struct stat st;
    char meta[4096], keep_export[64], keep_digest[64], gen[GEN_NAME_MAX];
    CLEANUP_FD int fd = -1;
    int e = read_file(in(root, id, "meta.json"), meta, sizeof(meta), &fd);
    if (e)
        return e;
    daemon_gen(meta, gen);
    text(keep_export, sizeof(keep_export), "export-%s", gen);
    text(keep_digest, sizeof(keep_digest), "digest-%s", gen);
    e = read_names(in(root, id, NULL), &names);
    for (size_t i = 0; !e && i < names.n; i++) {
        const char *name = names.names[i];
        if (strcmp(name, "meta.json") == 0 || strcmp(name, keep_export) == 0 ||
            strcmp(name, keep_digest) == 0)
            continue;
        if (lstat(in(root, id, name), &st) != 0)
            e = errno == ENOENT ? 0 : errno;
        else if (old_enough(&st))
            e = daemon_remove_all(in(root, id, name));
    }
    free(names.names);
    return e;
}

static int remove_in(int parent, const char *name);

/* Names in batches of 1024, the listing begun anew after each. */
static int remove_children(int parent, const char *name)
{
    for (;;) {
        CLEANUP_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return errno == ENOENT ? 0 : errno;
        static _Thread_local _Alignas(struct dirent64) char buf[1 << 16];
        CLEANUP_FREE char(*names)[256] = malloc(1024 * sizeof(*names));
        size_t n = 0, tried = 0;
        ck_assert_ptr_nonnull(names);
        for (;;) {
            long got = syscall(SYS_getdents64, fd, buf, sizeof(buf));
            if (got < 0)
                return errno;
            for (long at = 0; at < got && n < 1024;) {
                const struct dirent64 *d = (const void *)(buf + at);
                at += d->d_reclen;
                if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
                    text(names[n++], 256, "%s", d->d_name);
            }
            if (!got || n == 1024)
                break;
        }
        int e = 0;
        for (size_t i = 0; i < n; i++) {
            int one = remove_in(fd, names[i]);
            tried += one == 0;
            e = e ? e : one;
        }
        if (n < 1024 || !tried)
            return e;
    }
}

static int remove_in(int parent, const char *name)
{
    struct stat st;
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM && errno != EACCES)
        return errno;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISDIR(st.st_mode))
        return EPERM;
    int e = remove_children(parent, name);
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return e ? e : errno;
}

int daemon_remove_all(const char *path)
{
    char parent[1024];
    text(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    *slash = 0;
    if (unlinkat(AT_FDCWD, path, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return errno;
    if (unlinkat(AT_FDCWD, path, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY)
        return errno;
    CLEANUP_FD int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? errno : remove_in(fd, slash + 1);
}

/* ---- 12 to 15: fetch, restore, list, delete -------------------------------------------------- */

int daemon_fetch(const char *root, const char *id, char meta[4096], char digest[80],
                 char export[1024])
{
    struct stat st;
    int e = read_file(in(root, id, "meta.json"), meta, 4096, NULL);
    if (e)
        return e;
    text(export, 1024, "%s", gen_path(root, id, "export", meta));
    if (stat(export, &st) != 0)
        return errno;
    digest[0] = 0;
    e = read_file(gen_path(root, id, "digest", meta), digest, 80, NULL);
    return e == ENOENT ? 0 : e;
}

static void check_text(const char *dir, const char *name, const struct image *im)
{
    char line[256], got[512], path[1024];
    small_text(im, name, line);
    text(path, sizeof(path), "%s/%s", dir, name);
    ck_assert_int_eq(read_file(path, got, sizeof(got), NULL), 0);
    ck_assert_str_eq(got, line);
}

void image_same(const char *export, const struct image *im)
{
    struct stat st;
    uint8_t data[8192], got[8192];
    check_text(export, "config.json", im);
    check_text(export, "state.json", im);
    check_text(export, "snapshot.json", im);
    if (im->nested)
        check_text(in(export, "data", NULL), "extra", im);
    CLEANUP_FREE uint8_t *want = malloc(RUN), *have = malloc(RUN);
    CLEANUP_FD int memory = ck_sys(open(in(export, "memory-ranges", NULL), O_RDONLY | O_CLOEXEC));
    ck_sys(fstat(memory, &st));
    ck_assert_uint_eq((uint64_t)st.st_size, im->memory);
    ck_assert_uint_le((uint64_t)st.st_blocks * 512, im->memory / 3 + 2 * RUN);
    for (uint64_t off = 0; off < im->memory; off += RUN) {
        size_t n = im->memory - off < RUN ? (size_t)(im->memory - off) : RUN;
        image_memory(im, off, n, want);
        ck_assert_int_eq(util_pread_full(memory, have, n, off), (ssize_t)n);
        ck_assert_msg(memcmp(want, have, n) == 0, "memory-ranges differs in the run at %llu",
                      (unsigned long long)off);
    }
    CLEANUP_FD int disk = ck_sys(open(in(export, "cow.raw", NULL), O_RDONLY | O_CLOEXEC));
    ck_sys(fstat(disk, &st));
    ck_assert_uint_eq((uint64_t)st.st_size, im->disk);
    testing_fill(data, sizeof(data), im->seed + 77);
    ck_assert_int_eq(util_pread_full(disk, got, 4096, 1 << 20), 4096);
    ck_assert_int_eq(util_pread_full(disk, got + 4096, 4096, im->disk - 4096), 4096);
    ck_assert_mem_eq(got, data, sizeof(data));
    ck_assert_int_eq(lseek(disk, 0, SEEK_DATA), 1 << 20);
    off_t hole = lseek(disk, 1 << 20, SEEK_HOLE);
    ck_assert_int_gt(hole, 1 << 20);
    ck_assert_int_le(hole, (1 << 20) + (1 << 17));
}

/* As cp does it where it cannot clone. */
static void copy_disk(const char *export, const char *outside)
{
    CLEANUP_FD int from = ck_sys(open(in(export, "cow.raw", NULL), O_RDONLY | O_CLOEXEC));
    CLEANUP_FD int to =
        ck_sys(open(in(outside, "cow.raw", NULL), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    uint8_t buf[65536];
    struct stat st;
    ck_assert_int_eq(ioctl(to, FICLONE, from), -1);
    ck_assert(errno == EXDEV || errno == EOPNOTSUPP);
    ck_sys(fstat(from, &st));
    ck_sys(ftruncate(to, st.st_size));
    for (off_t at = 0; at < st.st_size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        ck_assert_int_ge(data, 0);
        off_t hole = ck_sys(lseek(from, data, SEEK_HOLE));
        for (at = data; at < hole;) {
            size_t n = (size_t)(hole - at) < sizeof(buf) ? (size_t)(hole - at) : sizeof(buf);
            ck_assert_int_eq(util_pread_full(from, buf, n, (uint64_t)at), (ssize_t)n);
            ck_assert_int_eq(util_pwrite_full(to, buf, n, (uint64_t)at), (ssize_t)n);
            at += (off_t)n;
        }
    }
}

void tool_restore(const char *export, const char *outside, const struct image *im)
{
    struct names names;
    struct stat st;
    char path[1024];
    check_text(export, "snapshot.json", im);
    ck_sys(stat(in(export, "cow.raw", NULL), &st));
    ck_assert_uint_eq((uint64_t)st.st_size, im->disk);
    ck_assert_int_eq(read_names(export, &names), 0);
    ck_assert_uint_eq(names.n, 5 + im->nested);
    free(names.names);
    text(path, sizeof(path), "%s/memory-ranges", outside);
    ck_errno(link(in(export, "memory-ranges", NULL), path), EXDEV);
    ck_sys(symlink(in(export, "memory-ranges", NULL), path));
    copy_disk(export, outside);
    image_same(export, im);
    ck_sys(unlink(path));
    ck_sys(unlink(in(outside, "cow.raw", NULL)));
}

int daemon_list(const char *root, const char *prefix, size_t *n)
{
    struct names names;
    char meta[4096];
    *n = 0;
    int e = read_names(root, &names);
    for (size_t i = 0; !e && i < names.n; i++) {
        if (strncmp(names.names[i], prefix, strlen(prefix)) != 0 || ends_in(names.names[i], ".tmp"))
            continue;
        int one = read_file(in(root, names.names[i], "meta.json"), meta, sizeof(meta), NULL);
        *n += !one;
        if (one != ENOENT)
            e = one;
    }
    free(names.names);
    return e;
}

int daemon_delete(const char *root, const char *id)
{
    struct names names;
    int e = read_names(in(root, id, NULL), &names);
    for (size_t i = 0; !e && i < names.n; i++)
        if (strcmp(names.names[i], "meta.json") != 0)
            e = daemon_remove_all(in(root, id, names.names[i]));
    free(names.names);
    return e ? e : daemon_remove_all(in(root, id, NULL));
}
