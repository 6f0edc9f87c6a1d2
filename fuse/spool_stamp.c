/* Mtimes that were set on what the store holds: an empty file each, which has that very mtime. */
#include "base/util.h"
#include "fuse/spool.h"
#include "store/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STAMP_NAME_MAX (ID_MAX + 1 + 32)

static bool stamp_name(const char *id, const char *name, char out[STAMP_NAME_MAX])
{
    int n = snprintf(out, STAMP_NAME_MAX, "%s:%s", id, name);
    return n < STAMP_NAME_MAX;
}

bool spool_stamp(struct mount *m, const char *id, const char *name, struct timespec *mtime)
{
    char file[STAMP_NAME_MAX];
    struct stat st;
    if (!stamp_name(id, name, file) || fstatat(m->spool->times, file, &st, 0) != 0)
        return false;
    *mtime = st.st_mtim;
    return true;
}

int spool_set_stamp(struct spool *s, const char *id, const char *name, const struct timespec *mtime)
{
    char file[STAMP_NAME_MAX];
    if (!stamp_name(id, name, file))
        return ENAMETOOLONG;
    CLEANUP_FD int fd = openat(s->times, file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};
    return futimens(fd, times) == 0 ? 0 : errno;
}

void spool_drop_stamp(struct spool *s, const char *id, const char *name)
{
    char file[STAMP_NAME_MAX];
    if (stamp_name(id, name, file))
        (void)unlinkat(s->times, file, 0);
}

/* Call fn for each stamp of id. */
static void each_stamp(struct spool *s, const char *id, void (*fn)(void *ctx, const char *name),
                       void *ctx)
{
    int fd = openat(s->times, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t len = strlen(id);
    if (!dir) {
        util_closep(&fd);
        return;
    }
    for (const struct dirent *d; (d = readdir(dir));)
        if (strncmp(d->d_name, id, len) == 0 && d->d_name[len] == ':')
            fn(ctx, d->d_name + len + 1);
}

struct stamps {
    struct mount *m;
    struct spool *s;
    const struct cairn_op *op;
    const char *id;
};

static void drop_one(void *ctx, const char *name)
{
    const struct stamps *p = ctx;
    spool_drop_stamp(p->s, p->id, name);
}

void spool_drop_stamps(struct spool *s, const char *id)
{
    each_stamp(s, id, drop_one, &(struct stamps){.s = s, .id = id});
}

static void prune_one(void *ctx, const char *name)
{
    const struct stamps *p = ctx;
    char gen[GEN_TEXT], key[KEY_MAX];
    struct cairn_error ignored;
    bool exists;
    if (spool_name_of(name, gen) == SPOOL_NAME_OTHER)
        return;
    layout_export(p->id, gen, key);
    if (!backend_exists(p->m->store->backend, p->op, key, &exists, &ignored) && !exists)
        spool_drop_stamp(p->s, p->id, name);
}

void spool_prune_stamps(struct mount *m, const struct cairn_op *op, const char *id)
{
    each_stamp(m->spool, id, prune_one,
               &(struct stamps){.m = m, .s = m->spool, .op = op, .id = id});
}
