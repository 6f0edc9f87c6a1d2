#include "fuse/materialise.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "fuse/file.h"
#include "fuse/generation.h"
#include "store/copies.h"

#include <pthread.h>
#include <string.h>

/* More wait than that: the next opens will ask again. */
#define QUEUE_MAX 64
/* Contents whose first open is remembered; more of them forget each other. */
#define SEEN_MAX 4096
/* For one file. */
#define MAKE_NS (1800 * NS_PER_S)

struct wish {
    struct inode *i; /* a lookup of it */
    struct wish *next;
};

struct materialiser {
    struct mount *m;
    struct copies *copies; /* borrowed */
    pthread_t thread;
    struct cairn_cancel *cancel; /* owned */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct wish *first, **last; /* guarded by lock, as is all below */
    size_t n;
    bool stop;
    uint64_t seen[SEEN_MAX]; /* contents that were opened: the kernel forgets inodes any time */
};

static struct copies_key key_of(const struct inode *i)
{
    struct copies_key key = {.size = i->size};
    memcpy(key.content, i->content, sizeof(key.content));
    return key;
}

/* What could not be had may be asked for again by a later open. */
static void make(struct materialiser *t, struct inode *i)
{
    struct cairn_error err;
    struct open_file *f = NULL;
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), MAKE_NS),
                          .cancel = t->cancel};
    int rc = open_file_new(t->m, &op, i, &f, &err);
    if (!rc)
        rc = copies_make(t->copies, f->g->record, f->index, &op, &err);
    open_file_free(t->m, f);
    if (!rc)
        return;
    /* A cache that is full, or a record that went, is no fault; every open asks again. */
    bool usual = rc == CAIRN_CANCELLED || rc == CAIRN_NOT_FOUND || rc == CAIRN_NO_SPACE;
    log_line(usual ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "mount: no copy in the cache: %s",
             err.message);
    pthread_mutex_lock(&i->file->lock);
    i->file->asked = false;
    pthread_mutex_unlock(&i->file->lock);
}

static void *work(void *arg)
{
    struct materialiser *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct wish *w = t->first;
        if (!w) {
            pthread_cond_wait(&t->wake, &t->lock);
            continue;
        }
        t->first = w->next;
        if (!t->first)
            t->last = &t->first;
        t->n--;
        pthread_mutex_unlock(&t->lock);
        make(t, w->i);
        inode_forget(t->m, w->i, 1);
        free(w);
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int materialise_new(struct mount *m, struct materialiser **out, struct cairn_error *err)
{
    if (!m->store->copies)
        return CAIRN_OK;
    struct materialiser *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "materialiser");
    t->m = m;
    t->copies = m->store->copies;
    t->last = &t->first;
    int rc = cairn_cancel_new(&t->cancel, err);
    if (rc) {
        free(t);
        return rc;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    int e = thread_start(&t->thread, work, t);
    if (e) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
        cairn_cancel_free(t->cancel);
        free(t);
        return error_sys(err, e, "thread of the mount");
    }
    *out = t;
    return CAIRN_OK;
}

void materialise_free(struct materialiser *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    cairn_cancel_fire(t->cancel);
    pthread_join(t->thread, NULL);
    for (struct wish *w = t->first; w;) {
        struct wish *next = w->next;
        inode_forget(t->m, w->i, 1);
        free(w);
        w = next;
    }
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    cairn_cancel_free(t->cancel);
    free(t);
}

void materialise_ask(struct mount *m, struct inode *i)
{
    struct materialiser *t = m->materialiser;
    struct wish *w = t ? malloc(sizeof(*w)) : NULL;
    if (!w || materialise_has(m, i)) {
        free(w);
        return;
    }
    inode_ref(m, i);
    *w = (struct wish){.i = i};
    pthread_mutex_lock(&t->lock);
    bool queued = t->n < QUEUE_MAX && !t->stop;
    if (queued) {
        *t->last = w;
        t->last = &w->next;
        t->n++;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
    if (queued)
        return;
    pthread_mutex_lock(&i->file->lock);
    i->file->asked = false;
    pthread_mutex_unlock(&i->file->lock);
    inode_forget(m, i, 1);
    free(w);
}

bool materialise_again(struct mount *m, const struct inode *i)
{
    struct materialiser *t = m->materialiser;
    uint64_t name = get_le64(i->content) ^ i->size;
    uint64_t *slot = t ? &t->seen[name % SEEN_MAX] : NULL;
    if (!slot)
        return false;
    pthread_mutex_lock(&t->lock);
    bool again = *slot == name;
    *slot = name;
    pthread_mutex_unlock(&t->lock);
    return again;
}

bool materialise_has(struct mount *m, const struct inode *i)
{
    struct copies_key key = key_of(i);
    return m->materialiser && copies_has(m->materialiser->copies, &key);
}

int materialise_open(struct mount *m, const struct inode *i)
{
    struct copies_key key = key_of(i);
    return m->materialiser ? copies_open(m->materialiser->copies, &key) : -1;
}

int materialise_probe(struct mount *m)
{
    return copies_probe(m->materialiser->copies);
}
