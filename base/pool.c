#include "base/pool.h"

#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t more; /* the queue got an item, or stop was set */
    pthread_cond_t done; /* some item ran */
    struct pool_work *head, **tail;
    bool stop;
    unsigned n; /* threads that run; set before the pool is shared */
    struct worker {
        struct pool *pool;
        unsigned index;
        pthread_t thread;
    } workers[];
};

static void *worker_main(void *arg)
{
    struct worker *me = arg;
    struct pool *p = me->pool;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->head && !p->stop)
            pthread_cond_wait(&p->more, &p->lock);
        struct pool_work *w = p->head;
        if (!w)
            break;
        p->head = w->next;
        if (!p->head)
            p->tail = &p->head;
        pthread_mutex_unlock(&p->lock);
        w->run(w, me->index);
        pthread_mutex_lock(&p->lock);
        w->done = true;
        pthread_cond_broadcast(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pool_new(unsigned workers, struct pool **out, struct cairn_error *err)
{
    if (workers < 1)
        workers = 1;
    if (workers > 64)
        workers = 64;
    struct pool *p = calloc(1, sizeof(*p) + workers * sizeof(p->workers[0]));
    if (!p)
        return error_oom(err, "worker pool");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_cond_init(&p->done, NULL);
    p->tail = &p->head;
    int e = 0;
    for (; p->n < workers; p->n++) {
        struct worker *w = &p->workers[p->n];
        *w = (struct worker){.pool = p, .index = p->n};
        e = thread_start(&w->thread, worker_main, w);
        if (e)
            break;
    }
    if (e) {
        pool_free(p);
        return error_sys(err, e, "starting worker threads");
    }
    *out = p;
    return CAIRN_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

unsigned pool_workers(const struct pool *p)
{
    return p->n;
}

void pool_submit(struct pool *p, struct pool_work *w)
{
    w->pool = p;
    w->next = NULL;
    pthread_mutex_lock(&p->lock);
    w->done = false;
    *p->tail = w;
    p->tail = &w->next;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

void pool_wait(struct pool_work *w)
{
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!w->done)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
