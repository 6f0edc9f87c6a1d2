/* Trees that are out of the way and are deleted when there is time. */
#include "base/log.h"
#include "base/util.h"
#include "fuse/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

int spool_discard(struct spool *s, int folder, const char *name)
{
    char to[32];
    for (int tries = 0; tries < 1000; tries++) {
        snprintf(to, sizeof(to), "%u", atomic_fetch_add(&s->trash_no, 1));
        if (renameat2(folder, name, s->trash, to, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return errno;
    }
    return EEXIST;
}

/* Depth is bounded by the longest path that could be made: each level has a descriptor open. */
static int delete_tree(struct mount *m, struct spool *s, int folder, const char *name)
{
    struct stat st;
    int e = spool_unlink_at(m, folder, name, 0);
    if (e != EISDIR && e != EPERM)
        return e == ENOENT ? 0 : e;
    e = 0;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        e = errno;
        util_closep(&fd);
        return e;
    }
    for (const struct dirent *d; !e && (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            background_forget(s->background, &st);
        e = delete_tree(m, s, fd, d->d_name);
    }
    return e ? e : spool_unlink_at(m, folder, name, AT_REMOVEDIR);
}

#define ROOM_PAUSE_MS 10
#define ROOM_TRIES    100

bool spool_wait_for_room(struct spool *s)
{
    bool waited = false, busy = true;
    for (int i = 0; busy && i < ROOM_TRIES; i++) {
        struct background_counts c;
        background_counts(s->background, &c);
        busy = c.ending || atomic_load(&s->freeing);
        waited |= busy;
        /* Once more when it ended: the kernel lets go of its inodes a moment later. */
        if (waited)
            poll(NULL, 0, ROOM_PAUSE_MS);
    }
    return waited;
}

void spool_empty_trash(struct mount *m, struct spool *s)
{
    int fd = openat(s->trash, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *d; (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        int e = delete_tree(m, s, s->trash, d->d_name);
        if (e && e != ENOENT && e != ENOTEMPTY)
            log_line(LOG_LEVEL_WARNING, "mount: deleting what was published from the spool: %s",
                     strerror(e));
    }
}
