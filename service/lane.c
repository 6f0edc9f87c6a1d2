#include "service/lane.h"

#include "base/op.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define IDLE_SECONDS 10

struct lane {
    pthread_mutex_t lock;
    pthread_cond_t more; /* the queue got a job, or stop was set */
    pthread_cond_t none; /* threads and leaving became 0 */
    char name[16];
    unsigned max_threads, max_queued;
    /* guarded by lock */
    struct lane_job *head, **tail;
    unsigned threads, idle, queued;
    unsigned leaving;     /* no longer of threads, but still at it */
    struct thread *ended; /* only need to be joined */
    bool stop;
};

struct thread {
    struct lane *lane;
    pthread_t id;
    struct thread *next;
};

int lane_new(const char *name, unsigned max_threads, unsigned max_queued, struct lane **out,
             struct cairn_error *err)
{
    struct lane *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "lane");
    pthread_mutex_init(&l->lock, NULL);
    op_cond_init(&l->more);
    op_cond_init(&l->none);
    snprintf(l->name, sizeof(l->name), "%s", name);
    l->max_threads = max_threads;
    l->max_queued = max_queued;
    l->tail = &l->head;
    *out = l;
    return CAIRN_OK;
}

static void join_all(struct thread *t)
{
    for (struct thread *next; t; t = next) {
        next = t->next;
        pthread_join(t->id, NULL);
        free(t);
    }
}

/* False: nothing came for so long that the thread may go. */
static bool wait_for_job_locked(struct lane *l)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    l->idle++;
    int e = 0;
    while (!l->head && !l->stop && e != ETIMEDOUT)
        e = pthread_cond_timedwait(&l->more, &l->lock, &until);
    l->idle--;
    return l->head;
}

static void *thread_main(void *arg)
{
    struct thread *me = arg;
    struct lane *l = me->lane;
    pthread_setname_np(pthread_self(), l->name);
    pthread_mutex_lock(&l->lock);
    while (l->head || wait_for_job_locked(l)) {
        struct lane_job *job = l->head;
        l->head = job->next;
        if (!l->head)
            l->tail = &l->head;
        l->queued--;
        pthread_mutex_unlock(&l->lock);
        job->run(job);
        pthread_mutex_lock(&l->lock);
    }
    /* The one before is joined by the one behind it; the last one by lane_free. */
    struct thread *before = l->ended;
    me->next = NULL;
    l->ended = me;
    l->threads--;
    l->leaving++;
    pthread_mutex_unlock(&l->lock);
    join_all(before);
    pthread_mutex_lock(&l->lock);
    if (--l->leaving == 0 && l->threads == 0)
        pthread_cond_broadcast(&l->none);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void lane_free(struct lane *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->more);
    while (l->threads || l->leaving)
        pthread_cond_wait(&l->none, &l->lock);
    struct thread *last = l->ended;
    pthread_mutex_unlock(&l->lock);
    join_all(last);
    pthread_cond_destroy(&l->none);
    pthread_cond_destroy(&l->more);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static int start_thread(struct lane *l)
{
    struct thread *t = malloc(sizeof(*t));
    if (!t)
        return ENOMEM;
    t->lane = l;
    int e = thread_start(&t->id, thread_main, t);
    if (e)
        free(t);
    return e;
}

/* Take back a job that no thread can run. False: somebody has taken it, or will. */
static bool unqueue_locked(struct lane *l, struct lane_job *job)
{
    if (l->threads)
        return false;
    for (struct lane_job **at = &l->head; *at; at = &(*at)->next) {
        if (*at != job)
            continue;
        *at = job->next;
        if (!*at)
            l->tail = at;
        l->queued--;
        return true;
    }
    return false;
}

static int submit(struct lane *l, struct lane_job *job, unsigned max_queued,
                  struct cairn_error *err)
{
    job->next = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->queued >= max_queued) {
        unsigned n = l->queued;
        pthread_mutex_unlock(&l->lock);
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "too much to do: %u wait already", n);
    }
    *l->tail = job;
    l->tail = &job->next;
    l->queued++;
    bool grow = l->queued > l->idle && l->threads < l->max_threads;
    l->threads += grow;
    if (!grow)
        pthread_cond_signal(&l->more);
    pthread_mutex_unlock(&l->lock);
    int e = grow ? start_thread(l) : 0;
    if (!e)
        return CAIRN_OK;
    pthread_mutex_lock(&l->lock);
    l->threads--;
    bool back = unqueue_locked(l, job);
    pthread_mutex_unlock(&l->lock);
    return back ? error_set(err, CAIRN_TRANSIENT, EAGAIN, "no thread to be had for it") : CAIRN_OK;
}

int lane_submit(struct lane *l, struct lane_job *job, struct cairn_error *err)
{
    return submit(l, job, l->max_queued, err);
}

int lane_submit_always(struct lane *l, struct lane_job *job, struct cairn_error *err)
{
    return submit(l, job, UINT_MAX, err);
}

void lane_load(struct lane *l, struct lane_load *out)
{
    pthread_mutex_lock(&l->lock);
    *out = (struct lane_load){l->threads, l->threads - l->idle, l->queued};
    pthread_mutex_unlock(&l->lock);
}
