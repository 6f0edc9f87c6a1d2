/* Removing what the store holds, by the calls that remove a tree of files: see spool_hidden.h.
 *
 *   unlink a file of an export       hidden here
 *   rmdir a folder of an export      hidden here, once all in it is
 *   unlink digest-<gen>              hidden here
 *   rmdir export-<gen>               superseded or uncommitted: its manifest goes. Committed: the
 *                                    record goes, as by rm; its meta.json stays here, as a file of
 *                                    the spool, for whoever goes on removing
 *   rmdir export-<gen> of the spool  its manifest goes, if nobody committed it meanwhile
 *   unlink meta.json                 hidden here
 *   rmdir <id>                       whatever is left goes */
#define FUSE_USE_VERSION 314
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "fuse/committed.h"
#include "fuse/records.h"
#include "fuse/spool.h"
#include "fuse/spool_hidden.h"
#include "fuse/task.h"
#include "store/remove.h"
#include "store/staged.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>

#define RECORD_PATH_MAX (7 + GEN_TEXT + MANIFEST_PATH_MAX + 2)

/* Name of an entry of dir (EXPORT or SUBDIR) as seen from the record's folder. */
static bool record_path(const struct inode *dir, const char *name, char out[RECORD_PATH_MAX])
{
    int n = snprintf(out, RECORD_PATH_MAX, "export-%s/%s%s%s", dir->gen, dir->path ? dir->path : "",
                     dir->path ? "/" : "", name);
    return n > 0 && n < RECORD_PATH_MAX;
}

void spool_remove_committed_file(struct mount *m, struct fuse_req *req, const struct inode *dir,
                                 const char *name)
{
    char path[RECORD_PATH_MAX], gen[GEN_TEXT];
    int e = 0;
    if (dir->kind == INODE_RECORD)
        e = spool_name_of(name, gen) == SPOOL_NAME_OTHER ? ENOENT : 0;
    else if (!record_path(dir, name, path))
        e = ENAMETOOLONG;
    if (!e)
        e = hidden_add(m->spool->hidden, dir->id, dir->kind == INODE_RECORD ? name : path);
    fuse_reply_err(req, e);
}

/* ---- Folders --------------------------------------------------------------------------------- */

struct removal {
    struct inode *dir; /* borrowed from the request; NULL: the record itself */
    char id[ID_MAX + 1], gen[GEN_TEXT];
    char name[256];
};

/* Whether a folder shows nothing here. */
static int check_empty(struct mount *m, const struct cairn_op *op, struct inode *folder,
                       struct cairn_error *err)
{
    struct dirlist list = {0};
    int rc = committed_list(m, op, folder, &list, err);
    if (!rc && list.n)
        rc = error_set(err, CAIRN_INVALID, ENOTEMPTY, "the folder is not empty");
    dirlist_release(&list);
    return rc;
}

/* What is shown of meta.json while the remove that deleted the record goes on. */
static void leave_meta(struct mount *m, const char *id, const struct buf *meta)
{
    CLEANUP_FD int record = -1;
    CLEANUP_FD int fd = -1;
    if (mkdirat(m->spool->tree, id, 0700) == 0 || errno == EEXIST)
        record = openat(m->spool->tree, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (record >= 0)
        fd = openat(record, "meta.json", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    0600);
    if (fd < 0 || util_pwrite_full(fd, meta->data, meta->len, 0) < 0)
        log_line(LOG_LEVEL_NOTICE,
                 "mount: %s was removed; its meta.json is not shown until its "
                 "folder is",
                 id);
}

static int remove_generation(struct mount *m, const struct cairn_op *op, const struct removal *r,
                             struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    struct cairn_error e;
    int rc = store_get_meta(m->store, op, r->id, &meta, gen, &e);
    if (rc && rc != CAIRN_NOT_FOUND && rc != CAIRN_CORRUPT)
        return error_pass(err, &e);
    bool committed = !rc && strcmp(gen, r->gen) == 0, other = false;
    rc = committed ? remove_if_committed(m->store, op, r->id, r->gen, &other, err) : CAIRN_OK;
    /* Somebody may have published another one while this waited for the lock. */
    committed = committed && !other;
    if (!rc && !committed)
        rc = staged_remove_generation(m->store, op, r->id, r->gen, err);
    STEP("mount.removed");
    if (!rc && committed)
        leave_meta(m, r->id, &meta);
    return rc;
}

/* export-<gen> of a record. */
static int remove_export(struct mount *m, const struct cairn_op *op, const struct removal *r,
                         struct inode *folder, struct cairn_error *err)
{
    char digest[32];
    int rc = check_empty(m, op, folder, err);
    if (!rc)
        rc = remove_generation(m, op, r, err);
    records_changed(m, r->id);
    if (rc)
        return rc;
    snprintf(digest, sizeof(digest), "digest-%s", r->gen);
    hidden_drop(m->spool->hidden, r->id, r->name);
    hidden_drop(m->spool->hidden, r->id, digest);
    spool_drop_stamp(m->spool, r->id, r->name);
    spool_drop_stamp(m->spool, r->id, digest);
    return CAIRN_OK;
}

/* A folder in an export. */
static int hide_folder(struct mount *m, const struct cairn_op *op, const struct removal *r,
                       struct inode *folder, struct cairn_error *err)
{
    char path[RECORD_PATH_MAX];
    int rc = check_empty(m, op, folder, err);
    if (rc)
        return rc;
    int e = record_path(r->dir, r->name, path) ? hidden_add(m->spool->hidden, r->id, path)
                                               : ENAMETOOLONG;
    return e ? error_sys(err, e, "removing a folder") : CAIRN_OK;
}

static int remove_folder(struct mount *m, const struct cairn_op *op, const struct removal *r,
                         struct cairn_error *err)
{
    struct inode *folder;
    int rc = committed_find(m, op, r->dir, r->name, &folder, err);
    if (rc)
        return rc;
    if (folder->kind == INODE_EXPORT)
        rc = remove_export(m, op, r, folder, err);
    else if (folder->kind == INODE_SUBDIR)
        rc = hide_folder(m, op, r, folder, err);
    else
        rc = error_set(err, CAIRN_INVALID, ENOTDIR, "%s is no folder", r->name);
    inode_forget(m, folder, 1);
    return rc;
}

static int remove_whole(struct mount *m, const struct cairn_op *op, const struct removal *r,
                        struct cairn_error *err)
{
    struct record_now now;
    struct inode *folder = inode_record(m, r->id);
    if (!folder)
        return error_oom(err, "inode");
    int rc = check_empty(m, op, folder, err);
    inode_forget(m, folder, 1);
    if (!rc)
        rc = records_now(m, op, r->id, &now, err);
    if (!rc && !now.exists && !spool_has_record(m, r->id))
        rc = error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such record: %s", r->id);
    bool other = false;
    if (!rc && now.exists)
        rc = remove_if_committed(m->store, op, r->id, now.gen, &other, err);
    if (!rc && other)
        rc = error_set(err, CAIRN_INVALID, ENOTEMPTY, "somebody has just published %s", r->id);
    records_changed(m, r->id);
    if (rc)
        return rc;
    if (unlinkat(m->spool->tree, r->id, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        int e = errno;
        return error_sys(err, e, "removing the folder of %s", r->id);
    }
    hidden_drop(m->spool->hidden, r->id, "");
    spool_drop_stamps(m->spool, r->id);
    return CAIRN_OK;
}

static void removal_task(struct mount *m, struct fuse_req *req, const struct cairn_op *op,
                         void *arg)
{
    const struct removal *r = arg;
    struct cairn_error err;
    char what[384];
    int rc = r->dir ? remove_folder(m, op, r, &err) : remove_whole(m, op, r, &err);
    snprintf(what, sizeof(what), "removing %s of %s", r->dir ? r->name : "the folder", r->id);
    int e = rc ? task_errno(m, what, &err) : 0;
    fuse_reply_err(req, e);
}

static void unpublish_task(struct mount *m, struct fuse_req *req, const struct cairn_op *op,
                           void *arg)
{
    const struct removal *r = arg;
    struct cairn_error err;
    /* It is gone from here in any case; what stays in the store is the collector's. */
    if (staged_drop(m->store, op, r->id, r->gen, &err))
        log_line(LOG_LEVEL_NOTICE, "mount: left for the collector: %s", err.message);
    records_changed(m, r->id);
    fuse_reply_err(req, 0);
}

static void run_removal(struct mount *m, struct fuse_req *req, task_fn *fn, const struct inode *dir,
                        const char *id, const char *name, const char *gen)
{
    struct removal *r = calloc(1, sizeof(*r));
    if (!r) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    r->dir = (struct inode *)dir;
    memcpy(r->id, id, strlen(id) + 1);
    memcpy(r->gen, gen, strlen(gen) + 1);
    snprintf(r->name, sizeof(r->name), "%s", name);
    (void)task_run(m, LANE_PUBLISH, req, fn, r);
}

void spool_remove_committed_folder(struct mount *m, struct fuse_req *req, const struct inode *dir,
                                   const char *name)
{
    char gen[GEN_TEXT] = "";
    if (dir->kind == INODE_RECORD && spool_name_of(name, gen) != SPOOL_NAME_EXPORT)
        fuse_reply_err(req, ENOENT);
    else
        run_removal(m, req, removal_task, dir, dir->id, name, gen);
}

void spool_remove_record(struct mount *m, struct fuse_req *req, const char *id)
{
    run_removal(m, req, removal_task, NULL, id, "", "");
}

void spool_unpublish(struct mount *m, struct fuse_req *req, const char *id, const char *gen)
{
    prepared_list_drop(m->spool->prepared, id, gen);
    run_removal(m, req, unpublish_task, NULL, id, "", gen);
}
