#define FUSE_USE_VERSION 314
#include "base/util.h"
#include "fuse/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fs.h>
#include <string.h>

/* What a rename means. */
enum meaning {
    MEANS_RENAME, /* within the spool */
    MEANS_EXPORT, /* publishes an export */
    MEANS_META,   /* commits */
};

static enum meaning meaning_of(const struct inode *to_dir, const char *to_name, mode_t mode,
                               char gen[GEN_TEXT])
{
    if (to_dir->kind != INODE_RECORD)
        return MEANS_RENAME;
    enum spool_name n = spool_name_of(to_name, gen);
    if (n == SPOOL_NAME_META)
        return MEANS_META;
    return n == SPOOL_NAME_EXPORT && S_ISDIR(mode) ? MEANS_EXPORT : MEANS_RENAME;
}

/* The source is the spool's, or nobody's to move. */
static int open_source(struct mount *m, const struct inode *dir, const char *name, int *folder,
                       struct stat *st)
{
    if (dir->kind == INODE_ROOT && id_is_valid(name))
        return EPERM; /* a record keeps its id */
    int e = spool_folder(m, dir, false, folder);
    if (!e && fstatat(*folder, name, st, AT_SYMLINK_NOFOLLOW) != 0)
        e = errno;
    return e == ENOENT && dir->kind != INODE_SPOOL && dir->kind != INODE_ROOT ? EROFS : e;
}

static int rename_within(struct mount *m, int folder, const char *name, const struct inode *to_dir,
                         const char *to_name, unsigned flags)
{
    CLEANUP_FD int to = -1;
    struct stat st;
    if (to_dir->kind == INODE_ROOT && id_is_valid(to_name))
        return EPERM;
    int e = spool_folder(m, to_dir, true, &to);
    if (e)
        return e == ENOENT && to_dir->kind != INODE_SPOOL ? EROFS : e;
    /* Where the store has something of that name the spool's hides it, which is what replacing it
     * looks like; but it is not nothing. */
    bool replaces = fstatat(to, to_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    bool replaced = replaces && S_ISREG(st.st_mode) && !(flags & RENAME_EXCHANGE);
    struct inode *known = replaces ? spool_known_node(m, &st) : NULL;
    struct spool_held held = {0};
    int unheld =
        known ? spool_hold(known->spool, &held) : 0; /* it goes on, as in spool_unlink_at */
    (void)unheld;
    e = renameat2(folder, name, to, to_name, flags) == 0 ? 0 : errno;
    spool_unhold(&held);
    if (known)
        inode_forget(m, known, 1);
    if (e)
        return e;
    if (replaced && st.st_nlink == 1)
        background_forget(m->spool->background, &st);
    return 0;
}

void spool_rename(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                  struct inode *to_dir, const char *to_name, unsigned flags)
{
    CLEANUP_FD int folder = -1;
    char gen[GEN_TEXT];
    struct stat st = {0};
    int e = open_source(m, dir, name, &folder, &st);
    enum meaning means = e ? MEANS_RENAME : meaning_of(to_dir, to_name, st.st_mode, gen);
    if (!e && means != MEANS_RENAME && flags & ~(unsigned)RENAME_NOREPLACE)
        e = EINVAL;
    if (!e && flags & RENAME_WHITEOUT) /* which is a device */
        e = EINVAL;
    if (!e && means == MEANS_META && !S_ISREG(st.st_mode))
        e = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    if (!e && means == MEANS_RENAME)
        e = rename_within(m, folder, name, to_dir, to_name, flags);
    if (e || means == MEANS_RENAME)
        fuse_reply_err(req, e);
    else if (means == MEANS_EXPORT)
        spool_publish_export(m, req, util_steal_fd(&folder), name, to_dir->id, gen);
    else
        spool_publish_meta(m, req, util_steal_fd(&folder), name, to_dir->id);
}
