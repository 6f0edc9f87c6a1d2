#include "base/step.h"
#include "base/util.h"
#include "store/backend_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

/* ---- The commit ---- */

/* The bytes are on their way, and neither they nor the name need be durable yet: nothing was
 * promised to whoever crashes before the commit, which makes sure of both. */
int dir_stage(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
              const void *meta, size_t len, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_staged(id, gen, key);
    int rc = dir_write(dir_of(b), op, "stage", key, meta, len, DIR_STAGE, err);
    if (!rc)
        STEP("backend.staged");
    return rc;
}

static int commit_failed(const struct dir_backend *d, int sys_errno, const char *id,
                         const char *gen, struct cairn_error *err)
{
    if (sys_errno == EEXIST)
        return error_set(err, CAIRN_BUSY, EEXIST, "commit %s: it is published already", id);
    if (sys_errno != ENOENT)
        return dir_fail_write(d, sys_errno, "commit", id, err);
    int rc = dir_root_check(d, "commit", err);
    return rc ? rc
              : error_set(err, CAIRN_BUSY, ENOENT, "commit %s: meta-%s.staged was taken away", id,
                          gen);
}

static int sync_staged(int folder, const char *name)
{
    CLEANUP_FD int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -1 : fsync(fd);
}

int dir_commit(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
               const void *meta, size_t len, enum backend_once once, struct cairn_error *err)
{
    (void)meta;
    (void)len;
    const struct dir_backend *d = dir_of(b);
    char staged[KEY_MAX], parent[PATH_MAX];
    layout_staged(id, gen, staged);
    int rc = dir_begin(op, "commit", staged, err);
    if (rc)
        return rc;
    const char *name = dir_split(staged, parent);
    CLEANUP_FD int folder = dir_folder(d, parent, false);
    if (folder < 0)
        return commit_failed(d, errno, id, gen, err);
    if (sync_staged(folder, name) != 0)
        return commit_failed(d, errno, id, gen, err);
    STEP("backend.commit-begun");
    /* meta.json's time is that of the commit, also when this writer stood still for hours: the
     * grace of what it supersedes counts from it. */
    (void)!utimensat(folder, name, NULL, AT_SYMLINK_NOFOLLOW);
    int bad = once != BACKEND_REPLACE ? dir_rename_once(folder, name, folder, "meta.json")
                                      : renameat(folder, name, folder, "meta.json");
    if (bad)
        return commit_failed(d, errno, id, gen, err);
    STEP("backend.commit-renamed");
    if (dir_folder_settle(d, parent, folder) != 0)
        return dir_fail_write(d, errno, "commit", id, err);
    STEP("backend.commit-synced");
    return CAIRN_OK;
}

void dir_unstage(struct backend *b, const char *id, const char *gen)
{
    char key[KEY_MAX], parent[PATH_MAX];
    layout_staged(id, gen, key);
    const char *name = dir_split(key, parent);
    CLEANUP_FD int folder = dir_resolve(dir_of(b), parent, O_PATH | O_DIRECTORY);
    if (folder >= 0)
        (void)!unlinkat(folder, name, 0);
}

/* ---- The lock ---- */

static void record_folder(const char *id, char path[KEY_MAX])
{
    snprintf(path, KEY_MAX, LAYOUT_RECORDS "%s", id);
}

/* Whether the locked folder is the one that its path leads to: one that an unlock removed between
 * our open and our flock excludes nobody. */
static bool still_there(const struct dir_backend *d, const char *path, int fd)
{
    struct stat mine, now;
    CLEANUP_FD int again = dir_resolve(d, path, O_PATH | O_DIRECTORY);
    return again >= 0 && fstat(fd, &mine) == 0 && fstat(again, &now) == 0 &&
           mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
}

/* The one who had the lock before may have been killed between a commit and its fsync: what the new
 * holder sees as committed, and tells its caller so, is durable. */
static int settle_commit(const struct dir_backend *d, const char *path, int fd)
{
    struct stat st;
    return fstatat(fd, "meta.json", &st, AT_SYMLINK_NOFOLLOW) == 0 ? dir_folder_settle(d, path, fd)
                                                                   : 0;
}

int dir_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
             struct cairn_error *err)
{
    const struct dir_backend *d = dir_of(b);
    char path[KEY_MAX];
    record_folder(id, path);
    for (int i = 0; i < DIR_TRIES; i++) {
        int rc = dir_begin(op, "lock", path, err);
        if (rc)
            return rc;
        CLEANUP_FD int fd = dir_folder(d, path, true);
        if (fd < 0)
            return dir_fail_write(d, errno, "lock", path, err);
        STEP("backend.lock-folder");
        int e = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (e == EWOULDBLOCK)
            return error_set(err, CAIRN_BUSY, EBUSY, "lock %s: another writer holds it", path);
        if (e == EINTR)
            continue;
        /* NFS wants a descriptor open for writing, which no folder's is. */
        if (e == ENOLCK || e == ENOSYS || e == ENOTSUP || e == EINVAL || e == EBADF) {
            *lock = -1;
            return CAIRN_OK;
        }
        if (e)
            return dir_fail_write(d, e, "lock", path, err);
        if (!still_there(d, path, fd))
            continue;
        if (settle_commit(d, path, fd) != 0)
            return dir_fail_write(d, errno, "lock", path, err);
        *lock = util_steal_fd(&fd);
        return CAIRN_OK;
    }
    return error_set(err, CAIRN_BUSY, EBUSY, "lock %s: others keep taking it", path);
}

void dir_unlock(struct backend *b, const char *id, int lock)
{
    const struct dir_backend *d = dir_of(b);
    char path[KEY_MAX], parent[PATH_MAX];
    record_folder(id, path);
    const char *name = dir_split(path, parent);
    CLEANUP_FD int folder = dir_resolve(d, parent, O_PATH | O_DIRECTORY);
    /* Under the lock, or a writer that got it meanwhile would hold a folder without a name. */
    if (folder >= 0 && unlinkat(folder, name, AT_REMOVEDIR) == 0)
        STEP("backend.record-folder-removed");
    if (lock >= 0)
        close(lock);
}
