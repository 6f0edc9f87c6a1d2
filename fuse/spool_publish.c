/* The two renames that publish: <staging>/export to <id>/export-<gen>, and meta.json.tmp over
 * meta.json. What was published stays in the spool, under its new name, until it is committed: so
 * everything here can be done again by the same call, also by the next mount after a crash. */
#define FUSE_USE_VERSION 314
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "fuse/records.h"
#include "fuse/spool.h"
#include "fuse/spool_hidden.h"
#include "fuse/task.h"
#include "fuse/turns.h"
#include "store/digest.h"
#include "store/staged.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>

#define EXPORT_NAME_MAX (7 + GEN_TEXT)

/* ---- What was prepared and is not committed -------------------------------------------------- */

/* More are forgotten, the oldest first: their commit makes them again. */
#define PREPARED_MAX 64

struct prepared_item {
    char id[ID_MAX + 1], gen[GEN_TEXT];
    struct staged_prepared *prepared; /* owned */
    struct prepared_item *next;
};

struct prepared_list {
    pthread_mutex_t lock;
    struct prepared_item *first; /* newest first; guarded by lock */
    size_t n;
};

int prepared_list_new(struct prepared_list **out, struct cairn_error *err)
{
    struct prepared_list *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "what is being published");
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return CAIRN_OK;
}

static void free_item(struct prepared_item *p)
{
    if (p)
        staged_prepared_free(p->prepared);
    free(p);
}

static void free_itemp(struct prepared_item **p)
{
    free_item(*p);
}

void prepared_list_free(struct prepared_list *l)
{
    if (!l)
        return;
    while (l->first) {
        struct prepared_item *p = l->first;
        l->first = p->next;
        free_item(p);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Out of the list, and the caller's; NULL: there is none. */
static struct prepared_item *take(struct prepared_list *l, const char *id, const char *gen)
{
    pthread_mutex_lock(&l->lock);
    struct prepared_item **at = &l->first;
    while (*at && (strcmp((*at)->id, id) != 0 || strcmp((*at)->gen, gen) != 0))
        at = &(*at)->next;
    struct prepared_item *found = *at;
    if (found) {
        *at = found->next;
        l->n--;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

void prepared_list_drop(struct prepared_list *l, const char *id, const char *gen)
{
    free_item(take(l, id, gen));
}

/* item is transferred. */
static void put(struct prepared_list *l, struct prepared_item *item)
{
    free_item(take(l, item->id, item->gen));
    struct prepared_item *drop = NULL;
    pthread_mutex_lock(&l->lock);
    item->next = l->first;
    l->first = item;
    if (++l->n > PREPARED_MAX) {
        struct prepared_item **at = &l->first;
        while ((*at)->next)
            at = &(*at)->next;
        drop = *at;
        *at = NULL;
        l->n--;
    }
    pthread_mutex_unlock(&l->lock);
    free_item(drop);
}

/* ---- The export ------------------------------------------------------------------------------ */

struct publish {
    int folder; /* of the source, owned */
    char name[256], id[ID_MAX + 1], gen[GEN_TEXT];
};

static struct publish *new_publish(int folder, const char *name, const char *id, const char *gen)
{
    struct publish *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->folder = folder;
    snprintf(p->name, sizeof(p->name), "%s", name);
    memcpy(p->id, id, strlen(id) + 1);
    memcpy(p->gen, gen, strlen(gen) + 1);
    return p;
}

static void export_name(const char *gen, char out[EXPORT_NAME_MAX])
{
    snprintf(out, EXPORT_NAME_MAX, "export-%s", gen);
}

static int open_record(struct spool *s, const char *id, int *fd)
{
    if (mkdirat(s->tree, id, 0700) != 0 && errno != EEXIST)
        return errno;
    *fd = openat(s->tree, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? errno : 0;
}

/* A folder that is there and not empty cannot be replaced by a rename. */
static int check_target(struct mount *m, int record, const char *name)
{
    struct stat st;
    if (fstatat(record, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    /* One without anything in it would do; it has to go to be known as such. */
    return spool_unlink_at(m, record, name, AT_REMOVEDIR);
}

/* What was stored through mappings that are still there lies in the kernel's pages: have it written
 * here. None of its locks for that is one that the caller of a rename holds. */
static void write_back_file(struct mount *m, const struct stat *st)
{
    struct inode *i = spool_known_node(m, st);
    if (!i)
        return;
    if (atomic_load(&i->spool->writers))
        (void)fuse_lowlevel_notify_inval_inode(m->session, inode_node_id(m, i), 0, 0);
    inode_forget(m, i, 1);
}

/* No deeper than the path of any file that can be published: each level is a frame of the stack. */
#define WRITE_BACK_DEPTH (MANIFEST_PATH_MAX / 2)

static void write_back_below(struct mount *m, int folder, unsigned depth)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        util_closep(&fd);
        return;
    }
    for (const struct dirent *d; atomic_load(&m->spool->writers) && (d = readdir(dir));) {
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISREG(st.st_mode))
            write_back_file(m, &st);
        CLEANUP_FD int below =
            S_ISDIR(st.st_mode) && depth < WRITE_BACK_DEPTH
                ? openat(fd, d->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                : -1;
        if (below >= 0)
            write_back_below(m, below, depth + 1);
    }
}

static void write_back(struct mount *m, int folder)
{
    write_back_below(m, folder, 0);
}

static int prepare(struct mount *m, const struct cairn_op *op, const struct publish *p, int source,
                   struct prepared_item *item)
{
    char path[SPOOL_FD_PATH], what[128];
    struct cairn_error err;
    struct cairn_publish_result result;
    struct staged_export from = {.from = spool_fd_path(source, path),
                                 .background = m->spool->background};
    if (!staged_prepare(m->store, op, p->id, p->gen, &from, &item->prepared, &result, &err))
        return 0;
    snprintf(what, sizeof(what), "publishing export-%s of %s", p->gen, p->id);
    return task_errno(m, what, &err);
}

static int publish_export(struct mount *m, const struct cairn_op *op, const struct publish *p)
{
    struct spool *s = m->spool;
    CLEANUP_FD int record = -1;
    char target[EXPORT_NAME_MAX];
    export_name(p->gen, target);
    CLEANUP_FD int source =
        openat(p->folder, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (source < 0)
        return errno;
    int e = open_record(s, p->id, &record);
    if (!e)
        e = check_target(m, record, target);
    if (e)
        return e;
    __attribute__((cleanup(free_itemp))) struct prepared_item *item = calloc(1, sizeof(*item));
    if (!item)
        return ENOMEM;
    memcpy(item->id, p->id, sizeof(item->id));
    memcpy(item->gen, p->gen, sizeof(item->gen));
    write_back(m, source);
    e = prepare(m, op, p, source, item);
    if (!e && renameat2(p->folder, p->name, record, target, RENAME_NOREPLACE) != 0)
        e = errno;
    if (e)
        return e;
    STEP("mount.export-moved");
    put(s->prepared, util_steal(&item));
    hidden_drop(s->hidden, p->id, target);
    spool_drop_stamp(s, p->id, target);
    records_changed(m, p->id);
    return 0;
}

static void export_task(struct mount *m, struct fuse_req *req, const struct cairn_op *op, void *arg)
{
    struct publish *p = arg;
    CLEANUP_FD int folder = p->folder;
    fuse_reply_err(req, publish_export(m, op, p));
}

void spool_publish_export(struct mount *m, struct fuse_req *req, int folder, const char *name,
                          const char *id, const char *gen)
{
    struct publish *p = new_publish(folder, name, id, gen);
    if (!p) {
        close(folder);
        fuse_reply_err(req, ENOMEM);
        return;
    }
    if (!task_run(m, LANE_PUBLISH, req, export_task, p))
        close(folder);
}

/* How long a look at what was committed may take when the store did not answer. */
#define LOOK_SECONDS 3.0

/* ---- meta.json ------------------------------------------------------------------------------- */

/* A whole small file of the spool; *st is from before it was read. Errno; EFBIG: it has more than
 * max bytes. */
static int read_small(int folder, const char *name, size_t max, struct buf *out, struct stat *st)
{
    struct cairn_error ignored;
    CLEANUP_FD int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) != 0)
        return errno;
    if (!S_ISREG(st->st_mode))
        return EINVAL;
    if ((uint64_t)st->st_size > max)
        return EFBIG;
    CLEANUP_FREE char *data = malloc((size_t)st->st_size + 1);
    if (!data)
        return ENOMEM;
    ssize_t n = util_pread_full(fd, data, (size_t)st->st_size, 0);
    if (n < 0)
        return errno;
    return buf_add(out, data, (size_t)n, &ignored) ? ENOMEM : 0;
}

/* The digest that was written beside the export; *has: there is one. */
static int read_digest(const struct publish *p, int record, uint8_t digest[SHA256_LEN], bool *has)
{
    char name[EXPORT_NAME_MAX];
    struct stat st;
    CLEANUP_BUF struct buf text = BUF_INIT(DIGEST_TEXT);
    snprintf(name, sizeof(name), "digest-%s", p->gen);
    *has = false;
    int e = record < 0 ? ENOENT : read_small(record, name, DIGEST_TEXT, &text, &st);
    if (e == ENOENT)
        return 0;
    if (!e && !staged_digest_parse((const char *)text.data, text.len, digest))
        e = EINVAL;
    if (e)
        log_line(LOG_LEVEL_WARNING, "mount: publishing %s: %s is no digest", p->id, name);
    *has = !e;
    return e;
}

/* After a failure that may be one of the answer only: then what was asked for is done, and who
 * asked is not told otherwise. A committed meta.json alone does not say that it is this export
 * which was committed, nor that its manifest is still there: the same commit once more does. */
static bool was_committed(struct mount *m, const struct publish *p, const struct staged_commit *c)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    struct cairn_publish_result result;
    struct cairn_error ignored;
    struct cairn_op op;
    char gen[GEN_TEXT];
    cairn_op_init(&op, LOOK_SECONDS, NULL);
    return store_get_meta(m->store, &op, p->id, &meta, gen, &ignored) == CAIRN_OK &&
           strcmp(gen, p->gen) == 0 &&
           staged_commit(m->store, &op, p->id, c, &result, &ignored) == CAIRN_OK;
}

static bool may_be_committed(int rc)
{
    return rc == CAIRN_TIMEOUT || rc == CAIRN_CANCELLED || rc == CAIRN_TRANSIENT;
}

static int commit(struct mount *m, const struct cairn_op *op, const struct publish *p,
                  const struct buf *meta, int export, const uint8_t *digest)
{
    char path[SPOOL_FD_PATH], what[128];
    struct cairn_error err;
    struct cairn_publish_result result;
    struct prepared_list *l = m->spool->prepared;
    struct prepared_item *item = take(l, p->id, p->gen);
    struct staged_commit c = {
        .meta = meta->data,
        .meta_len = meta->len,
        .from = {.from = export < 0 ? NULL : spool_fd_path(export, path),
                 .background = m->spool->background},
        .prepared = item ? item->prepared : NULL,
        .digest = digest,
    };
    int rc = staged_commit(m->store, op, p->id, &c, &result, &err);
    if (!rc || (may_be_committed(rc) && was_committed(m, p, &c))) {
        free_item(item);
        return 0;
    }
    if (item)
        put(l, item);
    snprintf(what, sizeof(what), "committing meta.json of %s", p->id);
    int e = task_errno(m, what, &err);
    /* To whoever renames, ENOENT is the source's. */
    return rc == CAIRN_NOT_FOUND ? EINVAL : e;
}

/* The caller may be gone, and somebody else may have put another one in its place. */
static void remove_meta(struct mount *m, const struct publish *p, const struct stat *committed)
{
    struct stat st;
    if (fstatat(p->folder, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        background_same_file(&st, committed))
        (void)spool_unlink_at(m, p->folder, p->name, 0);
}

/* It is the store's from here on: nothing of it is needed in the spool any more. */
static void clean(struct mount *m, const struct publish *p, const struct stat *meta, int record)
{
    struct spool *s = m->spool;
    char name[EXPORT_NAME_MAX];
    hidden_drop(s->hidden, p->id, "");
    export_name(p->gen, name);
    spool_drop_stamp(s, p->id, name); /* of a time when it was superseded */
    snprintf(name, sizeof(name), "digest-%s", p->gen);
    spool_drop_stamp(s, p->id, name);
    records_changed(m, p->id);
    remove_meta(m, p, meta);
    if (record < 0)
        return;
    (void)spool_unlink_at(m, record, "meta.json", 0); /* of a removal that was not finished */
    snprintf(name, sizeof(name), "digest-%s", p->gen);
    (void)spool_unlink_at(m, record, name, 0);
    export_name(p->gen, name);
    int e = spool_discard(s, record, name);
    if (e && e != ENOENT)
        log_line(LOG_LEVEL_WARNING, "mount: %s of %s stays in the spool: %s", name, p->id,
                 strerror(e));
    (void)unlinkat(s->tree, p->id, AT_REMOVEDIR);
}

static int publish_read_meta(struct mount *m, const struct cairn_op *op, const struct publish *p,
                             const struct buf *meta, const struct stat *st)
{
    CLEANUP_FD int record = -1;
    CLEANUP_FD int export = -1;
    char name[EXPORT_NAME_MAX];
    uint8_t digest[SHA256_LEN];
    bool has_digest;
    export_name(p->gen, name);
    record = openat(m->spool->tree, p->id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (record >= 0)
        export = openat(record, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if ((record < 0 || export < 0) && errno != ENOENT)
        return errno;
    if (export >= 0)
        write_back(m, export);
    int e = read_digest(p, record, digest, &has_digest);
    if (!e)
        e = commit(m, op, p, meta, export, has_digest ? digest : NULL);
    STEP("mount.committed");
    if (!e)
        clean(m, p, st, record);
    STEP("mount.cleaned");
    return e;
}

/* It is read before its turn comes: who renamed it once more while the first rename was still at
 * work means these bytes, which are gone when that one is done. */
static int publish_meta(struct mount *m, const struct cairn_op *op, struct publish *p)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    struct cairn_error err;
    struct turn turn;
    struct stat st;
    int e = read_small(p->folder, p->name, META_MAX, &meta, &st);
    if (e)
        return e;
    if (gen_of_meta(meta.data, meta.len, p->gen, &err))
        return cairn_error_errno(&err);
    if (turns_take(m->spool->commits, op, p->id, &turn, &err))
        return task_errno(m, p->id, &err);
    e = publish_read_meta(m, op, p, &meta, &st);
    turns_give(m->spool->commits, &turn);
    return e;
}

static int meta_task(struct mount *m, const struct cairn_op *op, void *arg)
{
    struct publish *p = arg;
    CLEANUP_FD int folder = p->folder;
    int e = publish_meta(m, op, p);
    if (!e)
        spool_after_commit(m->spool->after, p->id, p->gen);
    return e;
}

void spool_publish_meta(struct mount *m, struct fuse_req *req, int folder, const char *name,
                        const char *id)
{
    struct publish *p = new_publish(folder, name, id, "");
    if (!p) {
        close(folder);
        fuse_reply_err(req, ENOMEM);
        return;
    }
    /* What may be committed already is not given up because nobody waits for it. */
    if (!task_run_to_end(m, LANE_PUBLISH, req, meta_task, p))
        close(folder);
}
