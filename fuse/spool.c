#include "fuse/spool.h"

#include "base/util.h"
#include "fuse/records.h"
#include "fuse/spool_hidden.h"
#include "fuse/task.h"
#include "fuse/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

/* ---- Its life -------------------------------------------------------------------------------- */

static int open_part(int top, const char *name, int *fd, struct cairn_error *err)
{
    if (mkdirat(top, name, 0700) != 0 && errno != EEXIST) {
        int e = errno;
        return error_sys(err, e, "spool: making %s", name);
    }
    *fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) {
        int e = errno;
        return error_sys(err, e, "spool: opening %s", name);
    }
    return CAIRN_OK;
}

static int take_lock(struct spool *s, int top, struct cairn_error *err)
{
    s->lock = openat(top, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock < 0) {
        int e = errno;
        return error_sys(err, e, "spool: opening its lock");
    }
    if (flock(s->lock, LOCK_EX | LOCK_NB) == 0)
        return CAIRN_OK;
    int e = errno;
    if (e == EWOULDBLOCK)
        return error_set(err, CAIRN_BUSY, EBUSY,
                         "spool: another mount with this state directory is running");
    return error_sys(err, e, "spool: locking it");
}

/* How the kernel shows paths below the tree. */
static int find_path(struct spool *s, struct cairn_error *err)
{
    char link[SPOOL_FD_PATH], path[4096];
    ssize_t n = readlink(spool_fd_path(s->tree, link), path, sizeof(path) - 1);
    if (n < 0) {
        int e = errno;
        return error_sys(err, e, "spool: finding its path");
    }
    path[n] = 0;
    s->tree_path = strdup(path);
    s->tree_len = (size_t)n;
    return s->tree_path ? CAIRN_OK : error_oom(err, "spool");
}

static int open_parts(struct spool *s, const char *state, struct cairn_error *err)
{
    CLEANUP_FD int dir = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int top = -1;
    if (dir < 0) {
        int e = errno;
        return error_sys(err, e, "spool: opening %s", state);
    }
    int rc = open_part(dir, "mount", &top, err);
    if (!rc)
        rc = take_lock(s, top, err);
    if (!rc)
        rc = open_part(top, "tree", &s->tree, err);
    if (!rc)
        rc = open_part(top, "times", &s->times, err);
    if (!rc)
        rc = open_part(top, "trash", &s->trash, err);
    return rc ? rc : find_path(s, err);
}

void spool_opened_add(struct spool *s, struct spool_opened **list, struct spool_opened *o)
{
    pthread_mutex_lock(&s->opened_lock);
    o->next = *list;
    o->link = list;
    if (o->next)
        o->next->link = &o->next;
    *list = o;
    pthread_mutex_unlock(&s->opened_lock);
}

void spool_opened_remove(struct spool *s, struct spool_opened *o)
{
    pthread_mutex_lock(&s->opened_lock);
    *o->link = o->next;
    if (o->next)
        o->next->link = o->link;
    pthread_mutex_unlock(&s->opened_lock);
}

/* Of a mount that was cut off: nobody will tell that it is closed. */
static void close_what_is_open(struct spool *s)
{
    while (s->files) {
        struct spool_handle *h = (struct spool_handle *)s->files;
        s->files = h->opened.next;
        close(h->fd);
        free(h);
    }
    while (s->folders) {
        struct spool_listing *l = (struct spool_listing *)s->folders;
        s->folders = l->opened.next;
        dirlist_release(&l->list);
        free(l);
    }
}

int spool_new(struct mount *m, struct spool **out, struct cairn_error *err)
{
    if (!m->store->state)
        return error_set(err, CAIRN_INVALID, EINVAL, "a mount needs a state directory");
    struct spool *s = calloc(1, sizeof(*s));
    if (!s)
        return error_oom(err, "spool");
    s->lock = s->tree = s->times = s->trash = -1;
    pthread_mutex_init(&s->opened_lock, NULL);
    int rc = open_parts(s, m->store->state, err);
    if (!rc)
        rc = spool_fds_new(s->tree, &s->fds, err);
    if (!rc)
        rc = hidden_new(&s->hidden, err);
    if (!rc)
        rc = prepared_list_new(&s->prepared, err);
    if (!rc)
        rc = turns_new(&s->commits, err);
    if (!rc)
        rc = background_new(m->store, &s->background, err);
    if (!rc)
        rc = spool_after_new(m, s, &s->after, err);
    if (rc) {
        spool_free(s);
        return rc;
    }
    spool_recover(m, s);
    spool_empty_trash(m, s);
    *out = s;
    return CAIRN_OK;
}

void spool_stop(struct spool *s)
{
    if (s)
        spool_after_stop(s->after);
}

void spool_free(struct spool *s)
{
    if (!s)
        return;
    spool_after_free(s->after);
    close_what_is_open(s);
    background_free(s->background);
    prepared_list_free(s->prepared);
    turns_free(s->commits);
    spool_fds_free(s->fds);
    hidden_free(s->hidden);
    util_closep(&s->tree);
    util_closep(&s->times);
    util_closep(&s->trash);
    util_closep(&s->lock);
    pthread_mutex_destroy(&s->opened_lock);
    free(s->tree_path);
    free(s);
}

/* ---- Names ----------------------------------------------------------------------------------- */

enum spool_name spool_name_of(const char *name, char gen[GEN_TEXT])
{
    if (strcmp(name, "meta.json") == 0)
        return SPOOL_NAME_META;
    bool export = strncmp(name, "export-", 7) == 0;
    if ((!export && strncmp(name, "digest-", 7) != 0) || !gen_is_valid(name + 7))
        return SPOOL_NAME_OTHER;
    memcpy(gen, name + 7, GEN_TEXT);
    return export ? SPOOL_NAME_EXPORT : SPOOL_NAME_DIGEST;
}

bool spool_hides(struct mount *m, const char *id, const char *name)
{
    return hidden_has(m->spool->hidden, id, name);
}

void spool_show_again(struct mount *m, const char *id, const char *gen)
{
    char name[16 + GEN_TEXT];
    hidden_drop(m->spool->hidden, id, "meta.json");
    snprintf(name, sizeof(name), "export-%s", gen);
    hidden_drop(m->spool->hidden, id, name);
    snprintf(name, sizeof(name), "digest-%s", gen);
    hidden_drop(m->spool->hidden, id, name);
}

/* A meta.json in the spool is that of a record which was removed and is not quite gone here
 * (spool_remove.c). It is not shown where somebody published the id again. */
static bool is_outdated(struct mount *m, const struct inode *dir, int folder, const char *name)
{
    struct record_now now;
    struct cairn_error ignored;
    char gen[GEN_TEXT];
    if (dir->kind != INODE_RECORD || spool_name_of(name, gen) != SPOOL_NAME_META ||
        faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    struct cairn_op op = task_op_here(m, LANE_LOOK);
    if (records_now(m, &op, dir->id, &now, &ignored) || !now.committed)
        return false;
    (void)spool_unlink_at(m, folder, name, 0);
    return true;
}

int spool_find(struct mount *m, struct inode *dir, const char *name, struct inode **out,
               struct stat *st)
{
    CLEANUP_FD int folder = -1;
    if (dir->kind == INODE_ROOT && id_is_valid(name))
        return ENOENT; /* a record: spool_has_record */
    int e = spool_folder(m, dir, false, &folder);
    if (!e && is_outdated(m, dir, folder, name))
        e = ENOENT;
    return e ? e : spool_node_at(m, folder, name, out, st);
}

static int list_one(dev_t dev, int folder, const struct dirent *d, struct dirlist *list, bool root,
                    struct cairn_error *err)
{
    unsigned type = DTTOIF(d->d_type);
    struct stat st;
    if (d->d_type == DT_UNKNOWN) {
        if (fstatat(folder, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return CAIRN_OK; /* gone since */
        type = st.st_mode & S_IFMT;
    }
    if (root && id_is_valid(d->d_name))
        return dirlist_add(list, d->d_name, inode_number(d->d_name, strlen(d->d_name)), S_IFDIR,
                           err);
    return dirlist_add(list, d->d_name, spool_number(dev, d->d_ino), type, err);
}

/* The names in a folder of the spool. */
static int list_folder(int folder, struct dirlist *list, bool root, struct cairn_error *err)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct stat st;
    if (!dir || fstat(fd, &st) != 0) {
        int e = errno;
        if (!dir && fd >= 0)
            close(fd);
        return error_sys(err, e, "spool: listing a folder");
    }
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d) {
            int e = errno;
            return e ? error_sys(err, e, "spool: listing a folder") : CAIRN_OK;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        int rc = list_one(st.st_dev, folder, d, list, root, err);
        if (rc)
            return rc;
    }
}

int spool_list(struct mount *m, struct inode *dir, struct dirlist *list, struct cairn_error *err)
{
    CLEANUP_FD int folder = -1;
    int e = spool_folder(m, dir, false, &folder);
    if (e == ENOENT && dir->kind != INODE_SPOOL)
        return CAIRN_OK;
    if (e)
        return error_sys(err, e, "spool: opening a folder");
    return list_folder(folder, list, dir->kind == INODE_ROOT, err);
}

/* ---- Chunking in the background -------------------------------------------------------------- */

/* "<id>-<digits>.tmp/export/<path>", or NULL: the path; id is filled. */
static const char *in_staged_export(const char *path, char id[ID_MAX + 1])
{
    const char *slash = strchr(path, '/'), *dash = strchr(path, '-');
    if (!slash || !dash || dash > slash || dash - path > ID_MAX)
        return NULL;
    memcpy(id, path, (size_t)(dash - path));
    id[dash - path] = 0;
    size_t digits = strspn(dash + 1, "0123456789");
    if (!id_is_valid(id) || !digits || strncmp(dash + 1 + digits, ".tmp/export/", 12) != 0)
        return NULL;
    return dash + 1 + digits + 12;
}

void spool_written(struct mount *m, const struct inode *i)
{
    struct spool *s = m->spool;
    CLEANUP_HELD struct spool_held held = {0};
    char link[SPOOL_FD_PATH], path[4096], id[ID_MAX + 1];
    if (spool_hold(i->spool, &held))
        return;
    ssize_t n = readlink(spool_fd_path(held.fd, link), path, sizeof(path) - 1);
    if (n < 0 || (size_t)n <= s->tree_len + 1 || memcmp(path, s->tree_path, s->tree_len) != 0)
        return;
    path[n] = 0;
    const char *in_export = in_staged_export(path + s->tree_len + 1, id);
    if (in_export)
        background_add(s->background, held.fd, id, in_export);
}

void spool_about_to_change(struct mount *m, const struct inode *i)
{
    const struct stat st = {.st_dev = i->spool->dev, .st_ino = i->spool->real};
    background_forget(m->spool->background, &st);
}

void spool_file_used(struct mount *m, const struct manifest *manifest, uint32_t index)
{
    background_remember(m->spool->background, manifest, index);
}
