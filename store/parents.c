#include "store/parents.h"

#include "base/buf.h"
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FOLDER     "parents"
#define NAME_LEN   80
#define STALE_TEMP 3600 /* seconds: a temporary file of a process that died */

/* The folder, -1: there is none (and none is made). */
static int open_folder(const struct cairn_store *s, bool make)
{
    if (!s->state || s->backend->ops->open_fd)
        return -1;
    CLEANUP_FD int state = open(s->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0 || (make && mkdirat(state, FOLDER, 0700) != 0 && errno != EEXIST))
        return -1;
    return openat(state, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

static DIR *entries(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

static bool is_newer(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec > b->st_mtim.tv_sec
                                                  : a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
}

/* Take away the oldest while there are too many. */
static void prune(int folder)
{
    for (;;) {
        CLEANUP_DIR DIR *dir = entries(folder);
        char oldest[NAME_LEN] = "";
        struct stat at = {0}, st;
        size_t n = 0;
        const struct dirent *d;
        while (dir && (d = readdir(dir))) {
            if (d->d_name[0] == '.' || strlen(d->d_name) >= NAME_LEN ||
                fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
                continue;
            n++;
            if (oldest[0] && is_newer(&st, &at))
                continue;
            memcpy(oldest, d->d_name, strlen(d->d_name) + 1);
            at = st;
        }
        if (n <= PARENTS_MAX || unlinkat(folder, oldest, 0) != 0)
            return;
    }
}

/* Temporary files begin in '.' and are not counted above. */
static void tidy(int folder)
{
    CLEANUP_DIR DIR *dir = entries(folder);
    const struct dirent *d;
    struct stat st;
    while (dir && (d = readdir(dir)))
        if (strncmp(d->d_name, ".new-", 5) == 0 &&
            fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - st.st_mtim.tv_sec > STALE_TEMP)
            (void)unlinkat(folder, d->d_name, 0);
}

/* The name of id's file in the folder. */
static bool find_name(int folder, const char *id, char name[NAME_LEN])
{
    CLEANUP_DIR DIR *dir = entries(folder);
    const struct dirent *d;
    size_t n = strlen(id);
    while (dir && (d = readdir(dir)))
        if (strncmp(d->d_name, id, n) == 0 && d->d_name[n] == '-' &&
            gen_is_valid(d->d_name + n + 1) && strlen(d->d_name) < NAME_LEN) {
            memcpy(name, d->d_name, strlen(d->d_name) + 1);
            return true;
        }
    return false;
}

void parents_keep(struct cairn_store *s, const struct manifest *m)
{
    const struct manifest_info *info = manifest_info(m);
    if (id_is_template(info->id))
        return;
    CLEANUP_FD int folder = open_folder(s, true);
    uint64_t nonce;
    char name[NAME_LEN], temp[NAME_LEN];
    if (folder < 0 || !util_random(&nonce, sizeof(nonce)))
        return;
    tidy(folder);
    if (find_name(folder, info->id, name)) /* of an earlier life of the id */
        (void)unlinkat(folder, name, 0);
    snprintf(name, sizeof(name), "%s-%s", info->id, info->gen);
    snprintf(temp, sizeof(temp), ".new-%016llx", (unsigned long long)nonce);
    CLEANUP_FD int fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    size_t len;
    const uint8_t *data = manifest_bytes(m, &len);
    /* Not fsynced: what a crash cuts fails its checksum. */
    if (fd < 0)
        return;
    if (util_pwrite_full(fd, data, len, 0) < 0 || renameat(folder, temp, folder, name) != 0)
        (void)unlinkat(folder, temp, 0);
    prune(folder);
}

struct manifest *parents_find(struct cairn_store *s, const char *id)
{
    CLEANUP_FD int folder = open_folder(s, false);
    char name[NAME_LEN];
    struct stat st;
    struct manifest *m = NULL;
    struct cairn_error ignored;
    if (folder < 0 || id_is_template(id) || !find_name(folder, id, name))
        return NULL;
    CLEANUP_FD int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size <= 0 || (uint64_t)st.st_size > MANIFEST_MAX)
        return NULL;
    uint8_t *data = malloc((size_t)st.st_size);
    if (!data)
        return NULL;
    if (util_pread_full(fd, data, (size_t)st.st_size, 0) != (ssize_t)st.st_size) {
        free(data);
        return NULL;
    }
    /* data is transferred. */
    if (manifest_decode(data, (size_t)st.st_size, id, name + strlen(id) + 1, &m, &ignored))
        return NULL;
    if (manifest_info(m)->chunk_size == s->format.chunk_size)
        return m;
    manifest_free(m);
    return NULL;
}

void parents_drop(struct cairn_store *s, const char *id)
{
    CLEANUP_FD int folder = open_folder(s, false);
    char name[NAME_LEN];
    if (folder >= 0 && find_name(folder, id, name))
        (void)unlinkat(folder, name, 0);
}
