#include "store/copies.h"

#include "base/clock.h"
#include "base/step.h"
#include "base/util.h"
#include "store/record_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NAME_TEXT (2 * MANIFEST_CONTENT_LEN + 1 + 20 + 1)
#define TMP       ".tmp-"
#define TMP_TEXT  (sizeof(TMP) + 32)
#define PIECE     ((size_t)1024 * 1024)
/* Worth a listing of what is kept. */
#define LARGE ((uint64_t)64 * 1024 * 1024)
/* Mapped at a time. */
#define STEP_LEN  ((uint64_t)4 * 1024 * 1024)
#define SPANS_MAX 64

struct copies {
    int folder; /* owned */
    struct budget *budget;
};

static void name_of(const struct copies_key *key, char out[NAME_TEXT])
{
    util_hex(key->content, sizeof(key->content), out);
    snprintf(out + 2 * MANIFEST_CONTENT_LEN, NAME_TEXT - 2 * MANIFEST_CONTENT_LEN, "-%llu",
             (unsigned long long)key->size);
}

static bool is_copy(const char *name)
{
    char text[2 * MANIFEST_CONTENT_LEN + 1];
    uint8_t content[MANIFEST_CONTENT_LEN];
    size_t len = strlen(name);
    if (len < sizeof(text) + 1 || len >= NAME_TEXT || name[sizeof(text) - 1] != '-')
        return false;
    memcpy(text, name, sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    const char *size = name + sizeof(text);
    return util_unhex(text, content, sizeof(content)) && strspn(size, "0123456789") == strlen(size);
}

/* ---- What the budget asks -------------------------------------------------------------------- */

/* In use: somebody holds a lock on it. */
static bool is_in_use(const struct copies *c, const char *name)
{
    CLEANUP_FD int fd = openat(c->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

static DIR *open_folder(const struct copies *c)
{
    CLEANUP_FD int fd = openat(c->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        (void)util_steal_fd(&fd);
    return d;
}

static int scan(void *ctx, budget_emit *emit, void *to, struct cairn_error *err)
{
    const struct copies *c = ctx;
    CLEANUP_DIR DIR *d = open_folder(c);
    if (!d)
        return error_sys(err, errno, "listing copies of files");
    const struct dirent *e;
    int rc = CAIRN_OK;
    while (!rc && (e = readdir(d))) {
        struct stat st;
        struct budget_item item = {0};
        if (!is_copy(e->d_name) && strncmp(e->d_name, TMP, strlen(TMP)) != 0)
            continue;
        if (fstatat(c->folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (snprintf(item.name, sizeof(item.name), "%s", e->d_name) >= (int)sizeof(item.name))
            continue;
        item.bytes = (uint64_t)st.st_blocks * 512;
        item.used_ns = (int64_t)st.st_atim.tv_sec * NS_PER_S + st.st_atim.tv_nsec;
        item.in_use = is_in_use(c, e->d_name);
        rc = emit(to, &item, err);
    }
    return rc;
}

static int evict(void *ctx, const struct budget_item *item, struct cairn_error *err)
{
    const struct copies *c = ctx;
    CLEANUP_FD int fd = openat(c->folder, item->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? CAIRN_OK : error_sys(err, errno, "opening copy %s", item->name);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, CAIRN_BUSY, EBUSY, "copy %s is in use", item->name);
    if (unlinkat(c->folder, item->name, 0) && errno != ENOENT)
        return error_sys(err, errno, "removing copy %s", item->name);
    return CAIRN_OK;
}

/* ---- Its life -------------------------------------------------------------------------------- */

static void clear_left_overs(const struct copies *c)
{
    CLEANUP_DIR DIR *d = open_folder(c);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, TMP, strlen(TMP)) == 0 && !is_in_use(c, e->d_name))
            (void)unlinkat(c->folder, e->d_name, 0);
}

int copies_new(const char *folder, struct budget *budget, struct copies **out,
               struct cairn_error *err)
{
    int rc = store_make_cache_folders(folder, err);
    if (rc)
        return rc;
    struct copies *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "copies of files");
    c->budget = budget;
    c->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->folder < 0) {
        rc = error_sys(err, errno, "opening %s", folder);
        free(c);
        return rc;
    }
    clear_left_overs(c);
    budget_add_source(
        budget,
        &(struct budget_source){.what = "copies of files", .ctx = c, .scan = scan, .evict = evict});
    *out = c;
    return CAIRN_OK;
}

void copies_free(struct copies *c)
{
    if (!c)
        return;
    close(c->folder);
    free(c);
}

/* ---- Using ----------------------------------------------------------------------------------- */

bool copies_has(const struct copies *c, const struct copies_key *key)
{
    char name[NAME_TEXT];
    name_of(key, name);
    return faccessat(c->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool lock_shared(int fd)
{
    while (flock(fd, LOCK_SH) != 0)
        if (errno != EINTR)
            return false;
    return true;
}

int copies_open(struct copies *c, const struct copies_key *key)
{
    char name[NAME_TEXT];
    struct stat st;
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    name_of(key, name);
    CLEANUP_FD int fd = openat(c->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    /* With the lock it stays; without a name it was taken away just before. Others hold it for a
     * moment only: whoever lists or removes, and the maker at his end. */
    if (fd < 0 || !lock_shared(fd) || fstat(fd, &st) || !st.st_nlink || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != key->size)
        return -1;
    (void)futimens(fd, now);
    return util_steal_fd(&fd);
}

int copies_probe(const struct copies *c)
{
    return openat(c->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* ---- Making ---------------------------------------------------------------------------------- */

/* Where they share blocks, file systems do so here. False: not between these two files. */
static bool copy_in_kernel(const struct record_span *span, int fd, uint64_t to)
{
    off_t from = (off_t)span->offset, at = (off_t)to;
    uint64_t left = span->len;
    while (left) {
        ssize_t n = copy_file_range(span->fd, &from, fd, &at, left, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        left -= (uint64_t)n;
    }
    return true;
}

static int copy_span(struct cairn_store *s, const struct record_span *span, int fd, uint64_t to,
                     uint8_t *buf, struct cairn_error *err)
{
    if (span->fd >= 0 && copy_in_kernel(span, fd, to))
        return CAIRN_OK;
    for (uint64_t done = 0, n; done < span->len && (span->fd >= 0 || span->data); done += n) {
        const uint8_t *bytes = (const uint8_t *)span->data + done;
        n = span->len - done < PIECE ? span->len - done : PIECE;
        if (span->fd >= 0) {
            ssize_t got = util_pread_full(span->fd, buf, n, span->offset + done);
            int e = errno;
            if (got < 0)
                return error_sys(err, e, "reading what a file is copied from");
            if ((uint64_t)got < n) {
                record_span_doubt(s, span);
                return error_set(err, CAIRN_TRANSIENT, EIO, "a local copy was cut");
            }
            bytes = buf;
        }
        if (!util_is_zero(bytes, n) && util_pwrite_full(fd, bytes, n, to + done) < 0) {
            int e = errno;
            return error_sys(err, e, "writing the copy of a file");
        }
    }
    return CAIRN_OK;
}

static int fill(struct cairn_record *r, uint32_t i, uint64_t size, int fd,
                const struct cairn_op *op, struct cairn_error *err)
{
    struct record_span spans[SPANS_MAX];
    CLEANUP_FREE uint8_t *buf = malloc(PIECE);
    if (!buf)
        return error_oom(err, "copying a file");
    if (ftruncate(fd, (off_t)size)) {
        int e = errno;
        return error_sys(err, e, "copying a file");
    }
    for (uint64_t at = cairn_record_seek(r, i, 0, false); at < size;) {
        size_t n;
        uint64_t len = size - at < STEP_LEN ? size - at : STEP_LEN;
        int rc = record_map(r, op, i, at, len, spans, SPANS_MAX, &n, err);
        if (rc)
            return rc;
        for (size_t k = 0; !rc && k < n; k++) {
            rc = copy_span(r->store, &spans[k], fd, at, buf, err);
            at += spans[k].len;
        }
        record_spans_release(r->store, spans, n);
        if (!rc && !n)
            rc = error_set(err, CAIRN_CORRUPT, EIO, "a file ends before its size");
        if (rc)
            return rc;
        at = cairn_record_seek(r, i, at, false);
    }
    if (fdatasync(fd)) {
        int e = errno;
        return error_sys(err, e, "syncing the copy of a file");
    }
    return CAIRN_OK;
}

/* A lock that others meet keeps the budget from the file; it is let go with the descriptor. */
static int begin(struct copies *c, char tmp[TMP_TEXT], int *fd, struct cairn_error *err)
{
    uint8_t nonce[12];
    if (!util_random(nonce, sizeof(nonce)))
        return error_sys(err, errno, "name of a copy");
    memcpy(tmp, TMP, sizeof(TMP));
    util_hex(nonce, sizeof(nonce), tmp + strlen(TMP));
    *fd = openat(c->folder, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    if (*fd < 0)
        return error_sys(err, errno, "making the copy of a file");
    if (flock(*fd, LOCK_EX | LOCK_NB)) {
        int e = errno;
        (void)unlinkat(c->folder, tmp, 0);
        return error_sys(err, e, "locking the copy of a file");
    }
    return CAIRN_OK;
}

int copies_make(struct copies *c, struct cairn_record *r, uint32_t i, const struct cairn_op *op,
                struct cairn_error *err)
{
    struct manifest_file mf;
    struct copies_key key;
    char name[NAME_TEXT], tmp[TMP_TEXT];
    CLEANUP_FD int fd = -1;
    manifest_file(atomic_load(&r->manifest), i, &mf);
    memcpy(key.content, mf.content, sizeof(key.content));
    key.size = mf.size;
    if (copies_has(c, &key))
        return CAIRN_OK;
    int rc = budget_charge_wait(c->budget, op, mf.data_bytes, err);
    if (rc)
        return error_wrap(err, "copying %s of %s", r->paths[i], r->id);
    name_of(&key, name);
    rc = begin(c, tmp, &fd, err);
    if (!rc) {
        rc = fill(r, i, mf.size, fd, op, err);
        STEP("copies.filled");
        if (!rc && renameat(c->folder, tmp, c->folder, name))
            rc = error_sys(err, errno, "naming the copy of a file");
        if (rc)
            (void)unlinkat(c->folder, tmp, 0);
    }
    /* A listing meanwhile has counted what was there by then, and forgot the rest of the charge. */
    if (mf.data_bytes >= LARGE)
        budget_look(c->budget);
    else if (rc)
        budget_credit(c->budget, mf.data_bytes);
    return rc ? error_wrap(err, "copying %s of %s", r->paths[i], r->id) : CAIRN_OK;
}
