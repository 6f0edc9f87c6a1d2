#include "store/background.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "store/ingest.h"
#include "store/kin.h"
#include "store/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Of the manifests made here, which no store ever sees. */
#define NO_ID  "ck_0000000000000000"
#define NO_GEN "0000000000000000"

enum state { QUEUED, RUNNING, KNOWN };

struct background_file {
    atomic_uint refs; /* one of the list, one of the thread that runs it, one of each taker */
    enum state state; /* guarded by the lock, as are stale and next */
    bool stale;       /* RUNNING: what comes out is of no use */
    struct background_file *next;
    struct stat st; /* when it was added; from RUNNING on: when the reading began */
    int fd;         /* owned by the thread once RUNNING; -1: closed */
    char id[ID_MAX + 1];
    char *path;
    struct cairn_cancel *cancel; /* owned; NULL once KNOWN: it has a descriptor */
    struct manifest *manifest;   /* KNOWN; constant from then on */
};

struct background {
    struct cairn_store *s;
    struct kin *kin; /* owned */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* something is QUEUED, or the end; a run ended */
    bool stop;                 /* guarded by lock, as is all below */
    struct background_file *first, **last;
    struct background_counts counts;
};

/* ---- Files in the list ----------------------------------------------------------------------- */

void background_put(struct background_file *f)
{
    if (!f || atomic_fetch_sub(&f->refs, 1) != 1)
        return;
    if (f->fd >= 0)
        close(f->fd);
    cairn_cancel_free(f->cancel);
    manifest_free(f->manifest);
    free(f->path);
    free(f);
}

const struct manifest *background_manifest(const struct background_file *f)
{
    return f->manifest;
}

/* There is at most one that is not stale. */
static struct background_file *find_locked(struct background *bg, const struct stat *st)
{
    for (struct background_file *f = bg->first; f; f = f->next)
        if (f->st.st_ino == st->st_ino && f->st.st_dev == st->st_dev && !f->stale)
            return f;
    return NULL;
}

static size_t known_bytes(const struct background_file *f)
{
    size_t len = 0;
    if (f->manifest)
        (void)manifest_bytes(f->manifest, &len);
    return len;
}

static void unlink_locked(struct background *bg, struct background_file *f)
{
    struct background_file **at = &bg->first;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    if (bg->last == &f->next)
        bg->last = at;
    if (f->state != KNOWN)
        bg->counts.waiting--;
    if (f->stale)
        bg->counts.ending--;
    bg->counts.known_bytes -= known_bytes(f);
}

static void append_locked(struct background *bg, struct background_file *f)
{
    f->next = NULL;
    *bg->last = f;
    bg->last = &f->next;
}

/* ---- A run ----------------------------------------------------------------------------------- */

bool background_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* What is committed under the id it will be published under; NULL: nothing that can be had. */
static struct manifest *load_parent(struct background *bg, const struct cairn_op *op,
                                    const char *id)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    struct manifest *m = NULL;
    struct cairn_error ignored;
    if (!id[0] || !id_is_template(id) || store_load(bg->s, op, id, &meta, gen, &m, &ignored))
        return NULL;
    return m;
}

static int chunk_file(struct background *bg, const struct cairn_op *op, struct background_file *f,
                      const struct stat *st, struct manifest **out, struct cairn_error *err)
{
    struct walk_file file = {
        .path = f->path, .path_len = strlen(f->path), .size = (uint64_t)st->st_size, .st = *st};
    struct walk files = {.root = -1, .files = &file, .n = 1, .logical_bytes = file.size};
    CLEANUP_MANIFEST struct manifest *parent = load_parent(bg, op, f->id);
    bool base_only = !parent;
    if (!parent)
        parent = kin_find(bg->kin, bg->s, op, f->fd, f->path, file.size);
    struct ingest_options opt = {
        .files = &files, .open_files = &f->fd, .parent = parent, .base_only = base_only};
    struct ingest_result r;
    int rc = ingest_run(bg->s, op, &opt, &r, err);
    if (rc)
        return rc;
    struct manifest_info info = {.id = NO_ID, .gen = NO_GEN, .created_ns = clock_realtime()};
    uint8_t *data;
    size_t len;
    rc = manifest_builder_encode(r.builder, &info, &data, &len, err);
    manifest_builder_free(r.builder);
    return rc ? rc : manifest_decode(data, len, NO_ID, NO_GEN, out, err);
}

/* Without the lock; f is RUNNING. */
static int run(struct background *bg, struct background_file *f, const struct stat *st,
               struct manifest **out)
{
    struct cairn_error err;
    struct cairn_op op;
    cairn_op_init(&op, -1, f->cancel);
    int rc = chunk_file(bg, &op, f, st, out, &err);
    if (rc && rc != CAIRN_CANCELLED)
        log_line(LOG_LEVEL_NOTICE, "chunking in the background: %s (left for the publish)",
                 err.message);
    return rc;
}

/* What makes room among what is known; freed by the caller, without the lock. */
static struct background_file *evict_locked(struct background *bg)
{
    struct background_file *f = bg->first;
    if (bg->counts.known_bytes <= BACKGROUND_KNOWN_MAX)
        return NULL;
    while (f && f->state != KNOWN)
        f = f->next;
    if (f)
        unlink_locked(bg, f);
    return f;
}

static void finish(struct background *bg, struct background_file *f, const struct stat *st, int rc,
                   struct manifest *m)
{
    struct background_file *drop = NULL;
    struct cairn_cancel *over = NULL;
    pthread_mutex_lock(&bg->lock);
    unlink_locked(bg, f);
    bool use = !rc && !f->stale && !bg->stop;
    if (use) {
        f->st = *st;
        f->state = KNOWN;
        f->manifest = m;
        over = util_steal(&f->cancel); /* whoever fires it sets stale or stop first */
        bg->counts.known++;
        bg->counts.known_bytes += known_bytes(f);
        append_locked(bg, f);
        drop = evict_locked(bg);
    } else if (rc && rc != CAIRN_CANCELLED) {
        bg->counts.failed++;
    } else {
        bg->counts.cancelled++;
    }
    pthread_cond_broadcast(&bg->done);
    pthread_mutex_unlock(&bg->lock);
    cairn_cancel_free(over);
    if (!use) {
        manifest_free(m);
        background_put(f); /* the list's */
    }
    background_put(drop);
}

static void run_one(struct background *bg, struct background_file *f)
{
    struct stat st = f->st;
    struct manifest *m = NULL;
    int rc = fstat(f->fd, &st) == 0 ? run(bg, f, &st, &m) : CAIRN_PERMANENT;
    close(f->fd);
    f->fd = -1;
    finish(bg, f, &st, rc, m);
    background_put(f); /* the thread's */
}

/* The next QUEUED, RUNNING from here on; NULL at the end. */
static struct background_file *next_locked(struct background *bg)
{
    for (;;) {
        struct background_file *f = bg->first;
        while (f && f->state != QUEUED)
            f = f->next;
        if (bg->stop)
            return NULL;
        if (f) {
            f->state = RUNNING;
            atomic_fetch_add(&f->refs, 1);
            return f;
        }
        pthread_cond_wait(&bg->work, &bg->lock);
    }
}

static void *thread_main(void *arg)
{
    struct background *bg = arg;
    pthread_mutex_lock(&bg->lock);
    for (;;) {
        struct background_file *f = next_locked(bg);
        if (!f)
            break;
        pthread_mutex_unlock(&bg->lock);
        run_one(bg, f);
        pthread_mutex_lock(&bg->lock);
    }
    pthread_mutex_unlock(&bg->lock);
    return NULL;
}

/* ---- Its life -------------------------------------------------------------------------------- */

int background_new(struct cairn_store *s, struct background **out, struct cairn_error *err)
{
    struct background *bg = calloc(1, sizeof(*bg));
    if (!bg)
        return error_oom(err, "background chunking");
    bg->s = s;
    bg->last = &bg->first;
    int rc = kin_new(&bg->kin, err);
    if (rc) {
        free(bg);
        return rc;
    }
    pthread_mutex_init(&bg->lock, NULL);
    pthread_cond_init(&bg->work, NULL);
    op_cond_init(&bg->done);
    int e = thread_start(&bg->thread, thread_main, bg);
    if (e) {
        pthread_cond_destroy(&bg->work);
        pthread_cond_destroy(&bg->done);
        pthread_mutex_destroy(&bg->lock);
        kin_free(bg->kin);
        free(bg);
        return error_sys(err, e, "background chunking: starting its thread");
    }
    *out = bg;
    return CAIRN_OK;
}

void background_free(struct background *bg)
{
    if (!bg)
        return;
    pthread_mutex_lock(&bg->lock);
    bg->stop = true;
    struct background_file *running = bg->first;
    while (running && running->state != RUNNING)
        running = running->next;
    if (running)
        atomic_fetch_add(&running->refs, 1);
    pthread_cond_broadcast(&bg->work);
    pthread_mutex_unlock(&bg->lock);
    if (running)
        cairn_cancel_fire(running->cancel);
    background_put(running);
    pthread_join(bg->thread, NULL);
    while (bg->first) {
        struct background_file *f = bg->first;
        unlink_locked(bg, f);
        background_put(f);
    }
    pthread_cond_destroy(&bg->work);
    pthread_cond_destroy(&bg->done);
    pthread_mutex_destroy(&bg->lock);
    kin_free(bg->kin);
    free(bg);
}

struct cairn_store *background_store(const struct background *bg)
{
    return bg->s;
}

/* ---- What callers do ------------------------------------------------------------------------- */

static struct background_file *new_file(int fd, const char *id, const char *path)
{
    struct cairn_error ignored;
    char link[64];
    struct background_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    atomic_init(&f->refs, 1);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    f->fd = open(link, O_RDONLY | O_CLOEXEC);
    f->path = strdup(path);
    if (id && id_is_valid(id))
        memcpy(f->id, id, strlen(id) + 1);
    if (f->fd < 0 || !f->path || fstat(f->fd, &f->st) != 0 ||
        cairn_cancel_new(&f->cancel, &ignored)) {
        background_put(f);
        return NULL;
    }
    return f;
}

void background_add(struct background *bg, int fd, const char *id, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !st.st_nlink ||
        (uint64_t)st.st_blocks * 512 < BACKGROUND_MIN_BYTES)
        return;
    pthread_mutex_lock(&bg->lock);
    bool full = bg->counts.waiting >= BACKGROUND_WAITING_MAX;
    pthread_mutex_unlock(&bg->lock);
    struct background_file *f = full ? NULL : new_file(fd, id, path);
    if (!f) {
        background_forget(bg, &st);
        return;
    }
    pthread_mutex_lock(&bg->lock);
    /* Somebody else may add it at the same time. */
    while (find_locked(bg, &st)) {
        pthread_mutex_unlock(&bg->lock);
        background_forget(bg, &st);
        pthread_mutex_lock(&bg->lock);
    }
    append_locked(bg, f);
    bg->counts.waiting++;
    bg->counts.added++;
    pthread_cond_signal(&bg->work);
    pthread_mutex_unlock(&bg->lock);
}

void background_forget(struct background *bg, const struct stat *st)
{
    struct background_file *drop = NULL, *cancel = NULL;
    pthread_mutex_lock(&bg->lock);
    struct background_file *f = find_locked(bg, st);
    if (f && f->state == RUNNING) {
        f->stale = true;
        bg->counts.ending++;
        cancel = f;
        atomic_fetch_add(&cancel->refs, 1);
    } else if (f) {
        unlink_locked(bg, f);
        if (f->state == QUEUED)
            bg->counts.cancelled++;
        drop = f;
    }
    pthread_mutex_unlock(&bg->lock);
    if (cancel)
        cairn_cancel_fire(cancel->cancel);
    background_put(cancel);
    background_put(drop);
}

void background_remember(struct background *bg, const struct manifest *m, uint32_t i)
{
    kin_remember(bg->kin, m, i);
}

struct manifest *background_kin(struct background *bg, const struct cairn_op *op, int fd,
                                const char *path, uint64_t size)
{
    return kin_find(bg->kin, bg->s, op, fd, path, size);
}

/* *wait: it is being read. *drop: it was taken out of the list. */
static struct background_file *take_locked(struct background *bg, const struct stat *st, bool *wait,
                                           struct background_file **drop)
{
    struct background_file *f = find_locked(bg, st);
    *wait = f && f->state == RUNNING;
    if (!f || *wait)
        return NULL;
    if (f->state == KNOWN && background_same_file(&f->st, st)) {
        atomic_fetch_add(&f->refs, 1);
        bg->counts.taken++;
        return f;
    }
    unlink_locked(bg, f);
    *drop = f;
    return NULL;
}

struct background_file *background_take(struct background *bg, const struct cairn_op *op,
                                        const struct stat *st)
{
    struct background_file *f, *drop = NULL;
    struct op_waiter w;
    struct cairn_error ignored;
    bool wait;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &bg->lock, &bg->done);
    pthread_mutex_lock(&bg->lock);
    do {
        f = take_locked(bg, st, &wait, &drop);
        if (wait)
            rc = op_wait_locked(&w, "waiting for chunking in the background", &ignored);
    } while (wait && !rc);
    pthread_mutex_unlock(&bg->lock);
    op_waiter_remove(&w);
    background_put(drop);
    return f;
}

void background_counts(struct background *bg, struct background_counts *out)
{
    pthread_mutex_lock(&bg->lock);
    *out = bg->counts;
    pthread_mutex_unlock(&bg->lock);
}
