#define FUSE_USE_VERSION 314
#include "fuse/file.h"

#include "base/util.h"
#include "fuse/generation.h"
#include "fuse/materialise.h"
#include "fuse/ops.h"
#include "fuse/passthrough.h"
#include "fuse/task.h"
#include "fuse/trace.h"
#include "store/record.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>

void file_state_free(struct file_state *f)
{
    if (!f)
        return;
    if (f->backing)
        util_closep(&f->copy);
    /* Their generations go with the table of those. */
    while (f->open) {
        struct open_file *o = f->open;
        f->open = o->next;
        free(o);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void add_source_locked(struct file_state *f, const struct file_source *s)
{
    size_t at = 0;
    while (at < f->n_sources && memcmp(&f->sources[at], s, sizeof(*s)) != 0)
        at++;
    if (at == f->n_sources && f->n_sources < FILE_SOURCES)
        f->n_sources++;
    if (at == FILE_SOURCES)
        at--;
    memmove(&f->sources[1], &f->sources[0], at * sizeof(f->sources[0]));
    f->sources[0] = *s;
}

struct file_key {
    uint8_t content[MANIFEST_CONTENT_LEN];
    uint64_t size;
};

static struct inode *new_inode(const struct generation *g, const struct manifest_file *mf,
                               const struct file_key *key)
{
    struct inode *i = inode_new(INODE_FILE, key, sizeof(*key));
    if (!i)
        return NULL;
    i->ino = inode_number(key, sizeof(*key));
    memcpy(i->content, mf->content, sizeof(i->content));
    i->size = mf->size;
    i->data_bytes = mf->data_bytes;
    i->file = calloc(1, sizeof(*i->file));
    if (!i->file) {
        inode_free(i);
        return NULL;
    }
    pthread_mutex_init(&i->file->lock, NULL);
    i->file->mtime_ns = g->created_ns;
    i->file->copy = -1;
    return i;
}

/* Whether a new inode should take its place: it is open lazily, and could be read directly. */
static bool is_held_lazily(struct mount *m, struct inode *i)
{
    if (!atomic_load(&m->passthrough))
        return false;
    pthread_mutex_lock(&i->file->lock);
    bool lazy = i->file->lazy > 0;
    pthread_mutex_unlock(&i->file->lock);
    return lazy && materialise_has(m, i);
}

static struct file_key key_of(const struct generation *g, uint32_t index, struct manifest_file *mf)
{
    manifest_file(atomic_load(&g->record->manifest), index, mf);
    struct file_key key = {.size = mf->size};
    memcpy(key.content, mf->content, sizeof(key.content));
    return key;
}

bool file_is_in(const struct inode *i, const struct generation *g, uint32_t index)
{
    struct manifest_file mf;
    if (index >= generation_files(g))
        return false;
    struct file_key key = key_of(g, index, &mf);
    return key.size == i->size && memcmp(key.content, i->content, sizeof(key.content)) == 0;
}

uint64_t file_number(const struct generation *g, uint32_t index)
{
    struct manifest_file mf;
    struct file_key key = key_of(g, index, &mf);
    return inode_number(&key, sizeof(key));
}

struct inode *file_inode(struct mount *m, const struct generation *g, uint32_t index)
{
    struct manifest_file mf;
    struct file_key key = key_of(g, index, &mf);
    struct inode *i = inode_find(m, INODE_FILE, &key, sizeof(key));
    if (i && is_held_lazily(m, i)) {
        inode_hide(m, i);
        inode_forget(m, i, 1);
        i = NULL;
    }
    if (!i) {
        i = new_inode(g, &mf, &key);
        if (!i)
            return NULL;
        i = inode_intern(m, i);
    }
    struct file_source s = {.index = index};
    memcpy(s.id, g->id, strlen(g->id));
    memcpy(s.gen, g->gen, GEN_TEXT);
    pthread_mutex_lock(&i->file->lock);
    add_source_locked(i->file, &s);
    pthread_mutex_unlock(&i->file->lock);
    return i;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int not_there(struct cairn_error *err)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no record has it any more");
}

int open_file_new(struct mount *m, const struct cairn_op *op, struct inode *i,
                  struct open_file **out, struct cairn_error *err)
{
    struct file_source sources[FILE_SOURCES];
    struct file_state *s = i->file;
    pthread_mutex_lock(&s->lock);
    size_t n = s->n_sources;
    memcpy(sources, s->sources, sizeof(sources));
    pthread_mutex_unlock(&s->lock);
    struct open_file *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "open file");
    int rc = not_there(err);
    for (size_t k = 0; rc && k < n; k++) {
        f->index = sources[k].index;
        rc = generation_get(m, op, sources[k].id, sources[k].gen, &f->g, err);
        if (!rc && !file_is_in(i, f->g, f->index)) {
            generation_put(m, f->g);
            f->g = NULL;
            rc = not_there(err);
        }
        if (rc == CAIRN_TIMEOUT || rc == CAIRN_CANCELLED)
            break;
    }
    if (rc) {
        open_file_free(m, f);
        return rc;
    }
    *out = f;
    return CAIRN_OK;
}

void open_file_free(struct mount *m, struct open_file *f)
{
    if (!f)
        return;
    generation_put(m, f->g);
    free(f);
}

static void link_open(struct file_state *s, struct open_file *f)
{
    pthread_mutex_lock(&s->lock);
    f->next = s->open;
    f->link = &s->open;
    if (s->open)
        s->open->link = &f->next;
    s->open = f;
    pthread_mutex_unlock(&s->lock);
}

static void unlink_open(struct file_state *s, struct open_file *f)
{
    pthread_mutex_lock(&s->lock);
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    pthread_mutex_unlock(&s->lock);
}

/* Another open has settled how this inode is read: join it. */
static bool join_locked(struct file_state *s, bool *direct)
{
    *direct = s->direct > 0;
    if (s->direct)
        s->direct++;
    else if (s->lazy)
        s->lazy++;
    return s->direct || s->lazy;
}

/* How this open is read; counted. */
static bool enter(struct mount *m, struct fuse_req *req, struct inode *i, int32_t *backing)
{
    struct file_state *s = i->file;
    bool direct = false;
    pthread_mutex_lock(&s->lock);
    bool joined = join_locked(s, &direct);
    *backing = s->backing;
    pthread_mutex_unlock(&s->lock);
    if (joined)
        return direct;
    int fd = atomic_load(&m->passthrough) ? materialise_open(m, i) : -1;
    int32_t fresh = fd >= 0 ? passthrough_open(m, req, fd) : 0, spare = fresh;
    pthread_mutex_lock(&s->lock);
    if (!join_locked(s, &direct)) {
        direct = fresh > 0;
        s->direct = direct;
        s->lazy = !direct;
        if (direct) {
            s->backing = fresh;
            s->copy = util_steal_fd(&fd);
        }
        spare = 0;
    }
    *backing = s->backing;
    pthread_mutex_unlock(&s->lock);
    if (spare > 0)
        passthrough_close(m, req, spare);
    util_closep(&fd);
    return direct;
}

static void leave(struct mount *m, struct fuse_req *req, struct inode *i, bool direct)
{
    struct file_state *s = i->file;
    int32_t spare = 0;
    CLEANUP_FD int fd = -1;
    pthread_mutex_lock(&s->lock);
    if (!direct) {
        s->lazy--;
    } else if (!--s->direct) {
        spare = s->backing;
        s->backing = 0;
        fd = util_steal_fd(&s->copy);
    }
    pthread_mutex_unlock(&s->lock);
    if (spare > 0)
        passthrough_close(m, req, spare);
}

void file_release(struct mount *m, struct fuse_req *req, struct inode *i, struct open_file *f)
{
    unlink_open(i->file, f);
    trace_closed(m, f);
    leave(m, req, i, f->direct);
    open_file_free(m, f);
}

/* By the policy, and once for an inode. */
static void ask_for_copy(struct mount *m, struct inode *i, bool direct)
{
    struct file_state *s = i->file;
    if (direct || !atomic_load(&m->passthrough) || m->materialise == MOUNT_MATERIALISE_NEVER)
        return;
    bool again = materialise_again(m, i);
    if (!again && m->materialise != MOUNT_MATERIALISE_ALWAYS)
        return;
    pthread_mutex_lock(&s->lock);
    bool ask = !s->asked;
    s->asked = true;
    pthread_mutex_unlock(&s->lock);
    if (ask)
        materialise_ask(m, i);
}

void file_open(struct mount *m, struct fuse_req *req, const struct cairn_op *op, struct inode *i,
               struct fuse_file_info *fi)
{
    struct open_file *f = NULL;
    struct cairn_error err;
    int rc = open_file_new(m, op, i, &f, &err);
    if (rc) {
        int e = task_errno(m, "open", &err);
        /* More names lead to it than are remembered, and the kernel may have come by one of those
         * which are not: it looks the path up again then, and comes back if that is still there. */
        fuse_reply_err(req, rc == CAIRN_NOT_FOUND ? ESTALE : e);
        return;
    }
    int32_t backing;
    spool_file_used(m, atomic_load(&f->g->record->manifest), f->index);
    link_open(i->file, f);
    f->direct = enter(m, req, i, &backing);
    ask_for_copy(m, i, f->direct);
    if (!f->direct)
        trace_opened(m, f);
    bool direct = f->direct; /* f is the kernel's once it is answered */
    atomic_fetch_add(direct ? &m->n_opens_passthrough : &m->n_opens_lazy, 1);
    fi->fh = (uint64_t)(uintptr_t)f;
    fi->keep_cache = 1;
    inode_ref(m, i); /* what follows the answer may need it */
    int e = direct ? passthrough_reply(req, fi, backing) : fuse_reply_open(req, fi);
    /* The caller is gone: there will be no release. */
    if (e)
        file_release(m, NULL, i, f);
    inode_forget(m, i, 1);
}
