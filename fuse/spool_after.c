/* What follows a commit, by a thread of its own: the kernel is told that the export which it knows
 * by a name is the store's now (as long as it does not know, what was published takes up room in
 * the spool), the trash is emptied, stamps of generations that are gone go.
 *
 * Of its own, because telling the kernel waits for the lock of the record's folder, which belongs
 * to whoever renames or removes something there, and such a request may wait for a thread of its
 * lane: those must never wait here. */
#define FUSE_USE_VERSION 314
#include "base/thread.h"
#include "base/util.h"
#include "fuse/spool.h"
#include "fuse/task.h"

#include <fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>

struct commit_made {
    char id[ID_MAX + 1], gen[GEN_TEXT];
    struct commit_made *next;
};

struct spool_after {
    struct mount *m;
    struct spool *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct commit_made *first, **last; /* guarded by lock, as is stop */
    bool stop;
    bool joined; /* of whoever stops it */
};

static void tell_kernel(struct mount *m, const struct commit_made *c)
{
    char export[32], digest[32];
    struct inode *record = inode_record(m, c->id);
    if (!record)
        return;
    snprintf(export, sizeof(export), "export-%s", c->gen);
    snprintf(digest, sizeof(digest), "digest-%s", c->gen);
    const char *const names[] = {export, digest, "meta.json"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)fuse_lowlevel_notify_inval_entry(m->session, inode_node_id(m, record), names[i],
                                               strlen(names[i]));
    inode_forget(m, record, 1);
}

static struct commit_made *next(struct spool_after *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->first && !a->stop)
        pthread_cond_wait(&a->wake, &a->lock);
    struct commit_made *c = a->stop ? NULL : a->first;
    if (c) {
        a->first = c->next;
        if (!a->first)
            a->last = &a->first;
    }
    pthread_mutex_unlock(&a->lock);
    return c;
}

static void *thread_main(void *arg)
{
    struct spool_after *a = arg;
    for (struct commit_made *c; (c = next(a)); free(c)) {
        tell_kernel(a->m, c);
        spool_empty_trash(a->m, a->s);
        atomic_fetch_sub(&a->s->freeing, 1);
        struct cairn_op op = task_op_here(a->m, LANE_LOOK);
        spool_prune_stamps(a->m, &op, c->id);
    }
    return NULL;
}

int spool_after_new(struct mount *m, struct spool *s, struct spool_after **out,
                    struct cairn_error *err)
{
    struct spool_after *a = calloc(1, sizeof(*a));
    if (!a)
        return error_oom(err, "spool");
    a->m = m;
    a->s = s;
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    int e = thread_start(&a->thread, thread_main, a);
    if (!e) {
        *out = a;
        return CAIRN_OK;
    }
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a);
    return error_sys(err, e, "spool: starting a thread");
}

void spool_after_stop(struct spool_after *a)
{
    if (!a || a->joined)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->joined = true;
}

void spool_after_free(struct spool_after *a)
{
    if (!a)
        return;
    spool_after_stop(a);
    while (a->first) {
        struct commit_made *c = a->first;
        a->first = c->next;
        free(c);
    }
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void spool_after_commit(struct spool_after *a, const char *id, const char *gen)
{
    struct commit_made *c = calloc(1, sizeof(*c));
    if (!c)
        return; /* the next commit, or the next mount, empties the trash */
    memcpy(c->id, id, strnlen(id, ID_MAX));
    memcpy(c->gen, gen, strnlen(gen, GEN_TEXT - 1));
    atomic_fetch_add(&a->s->freeing, 1);
    pthread_mutex_lock(&a->lock);
    *a->last = c;
    a->last = &c->next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}
