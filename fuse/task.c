#define FUSE_USE_VERSION 314
#include "fuse/task.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "fuse/caller.h"
#include "fuse/generation.h"
#include "fuse/trace.h"

#include <errno.h>
#include <fuse_lowlevel.h>

struct task {
    struct fuse_req *req;
    task_fn *fn;                 /* or ... */
    task_to_end_fn *to_end;      /* ... this one */
    void *arg;                   /* owned */
    struct cairn_cancel *cancel; /* owned */
    struct cairn_op op;
    pid_t thread; /* of the caller; 0: not known here */
    /* Guarded by the lanes' lock. */
    int64_t interrupted_ns; /* when the kernel told of a signal, CLOCK_MONOTONIC; 0: it did not */
    bool answered;          /* of to_end: somebody answers req, or has */
    uint64_t no; /* names the task to the interrupt callback, which may come when it is over */
    struct task *next, **link; /* in all: queued and running ones */
    struct task *next_queued;
};

#define LANE_THREADS_MAX 32

struct lane {
    struct task *first, *last; /* queued */
    unsigned n_queued, threads, idle, max;
    pthread_t thread[LANE_THREADS_MAX];
    pthread_cond_t wake;
};

struct lanes {
    struct mount *m;
    pthread_mutex_t lock; /* guards everything below; a token's lock comes after it */
    pthread_cond_t quiet; /* all became NULL */
    struct lane lane[LANE_COUNT_];
    pthread_cond_t interrupts; /* a task was interrupted */
    pthread_t watcher;
    struct task *all;
    uint64_t next_no;
    bool stopping;
    bool blind; /* constant: callers cannot be seen */
};

static const unsigned lane_threads[LANE_COUNT_] = {
    [LANE_READ] = LANE_THREADS_MAX, [LANE_LOOK] = 16, [LANE_PUBLISH] = 16, [LANE_SPOOL] = 16};

static void task_free(struct task *t)
{
    if (!t)
        return;
    cairn_cancel_free(t->cancel);
    free(t->arg);
    free(t);
}

static void remove_locked(struct lanes *l, struct task *t)
{
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    if (!l->all)
        pthread_cond_broadcast(&l->quiet);
}

static void run(struct lanes *l, struct task *t)
{
    if (t->fn) {
        t->fn(l->m, t->req, &t->op, t->arg);
        return;
    }
    int e = t->to_end(l->m, &t->op, t->arg);
    pthread_mutex_lock(&l->lock);
    bool mine = !t->answered;
    t->answered = true;
    pthread_mutex_unlock(&l->lock);
    if (mine)
        fuse_reply_err(t->req, e);
}

struct lane_thread {
    struct lanes *l;
    struct lane *lane;
};

static void *work(void *arg)
{
    struct lane_thread *a = arg;
    struct lanes *l = a->l;
    struct lane *lane = a->lane;
    free(a);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        struct task *t = lane->first;
        if (!t && l->stopping)
            break;
        if (!t) {
            lane->idle++;
            pthread_cond_wait(&lane->wake, &l->lock);
            lane->idle--;
            continue;
        }
        lane->first = t->next_queued;
        lane->n_queued--;
        if (!lane->first)
            lane->last = NULL;
        pthread_mutex_unlock(&l->lock);
        run(l, t);
        pthread_mutex_lock(&l->lock);
        remove_locked(l, t);
        pthread_mutex_unlock(&l->lock);
        task_free(t);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

#define WATCH_NS (NS_PER_S / 10)
#define TIDY_NS  (15 * NS_PER_S)

/* One of the interrupted tasks that comes after number no. */
static bool next_interrupted_locked(const struct lanes *l, uint64_t *no, pid_t *thread,
                                    int64_t *since_ns)
{
    const struct task *found = NULL;
    for (const struct task *t = l->all; t; t = t->next)
        if (t->interrupted_ns && t->no > *no && (!found || t->no < found->no))
            found = t;
    if (!found)
        return false;
    *no = found->no;
    *thread = found->thread;
    *since_ns = found->interrupted_ns;
    return true;
}

/* The caller of task no waits for nothing any more. A request to be answered, or NULL. */
static struct fuse_req *give_up_locked(struct lanes *l, uint64_t no)
{
    for (struct task *t = l->all; t; t = t->next) {
        if (t->no != no)
            continue;
        t->interrupted_ns = 0;
        if (t->fn) {
            cairn_cancel_fire(t->cancel);
            return NULL;
        }
        bool mine = !t->answered;
        t->answered = true;
        return mine ? t->req : NULL;
    }
    return NULL;
}

/* One that cannot be seen is taken for alive for some time: whoever was killed waits for as long,
 * and whoever only got a signal has his answer by then, or hears that he was interrupted. */
static bool is_given_up(const struct mount *m, pid_t thread, int64_t since_ns)
{
    enum caller c = caller_look(thread);
    return c == CALLER_DYING ||
           (c == CALLER_UNSEEN && clock_monotonic() - since_ns >= m->unseen_timeout_ns);
}

/* Looks after the callers of interrupted tasks, and now and then after what is at hand. */
static void *watch(void *arg)
{
    struct lanes *l = arg;
    int64_t tidied = clock_monotonic();
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        uint64_t no = 0;
        pid_t thread;
        int64_t since_ns;
        bool any = false;
        while (next_interrupted_locked(l, &no, &thread, &since_ns)) {
            any = true;
            pthread_mutex_unlock(&l->lock);
            bool over = is_given_up(l->m, thread, since_ns);
            pthread_mutex_lock(&l->lock);
            struct fuse_req *req = over ? give_up_locked(l, no) : NULL;
            pthread_mutex_unlock(&l->lock);
            if (req)
                fuse_reply_err(req, EINTR);
            pthread_mutex_lock(&l->lock);
        }
        struct timespec until;
        int64_t at = clock_monotonic() + (any ? WATCH_NS : TIDY_NS);
        until = (struct timespec){.tv_sec = at / NS_PER_S, .tv_nsec = at % NS_PER_S};
        if (!l->stopping)
            pthread_cond_timedwait(&l->interrupts, &l->lock, &until);
        if (clock_monotonic() < tidied + TIDY_NS)
            continue;
        tidied = clock_monotonic();
        pthread_mutex_unlock(&l->lock);
        generations_tidy(l->m);
        trace_tidy(l->m);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void lanes_release(struct lanes *l)
{
    for (int i = 0; i < LANE_COUNT_; i++)
        pthread_cond_destroy(&l->lane[i].wake);
    pthread_cond_destroy(&l->interrupts);
    pthread_cond_destroy(&l->quiet);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int lanes_new(struct mount *m, struct lanes **out, struct cairn_error *err)
{
    struct lanes *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "lanes");
    l->m = m;
    l->blind = !caller_can_be_seen();
    pthread_mutex_init(&l->lock, NULL);
    op_cond_init(&l->quiet);
    for (int i = 0; i < LANE_COUNT_; i++) {
        l->lane[i].max = lane_threads[i];
        pthread_cond_init(&l->lane[i].wake, NULL);
    }
    op_cond_init(&l->interrupts);
    int e = thread_start(&l->watcher, watch, l);
    if (e) {
        lanes_release(l);
        return error_sys(err, e, "thread of the mount");
    }
    *out = l;
    return CAIRN_OK;
}

void lanes_free(struct lanes *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    for (struct task *t = l->all; t; t = t->next)
        cairn_cancel_fire(t->cancel);
    for (int i = 0; i < LANE_COUNT_; i++)
        pthread_cond_broadcast(&l->lane[i].wake);
    pthread_cond_signal(&l->interrupts);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->watcher, NULL);
    for (int i = 0; i < LANE_COUNT_; i++)
        for (unsigned n = 0; n < l->lane[i].threads; n++)
            pthread_join(l->lane[i].thread[n], NULL);
    lanes_release(l);
}

int lanes_drain(struct lanes *l, const struct cairn_op *op, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &l->lock, &l->quiet);
    pthread_mutex_lock(&l->lock);
    while (l->all && !(rc = op_wait_locked(&w, "waiting for what is under way on the mount", err)))
        ;
    pthread_mutex_unlock(&l->lock);
    op_waiter_remove(&w);
    return rc;
}

/* The number stands for the task: by the time that the kernel's word arrives it may be over. */
static void interrupted(fuse_req_t req, void *data)
{
    struct mount *m = fuse_req_userdata(req);
    uint64_t no = (uint64_t)(uintptr_t)data;
    pthread_mutex_lock(&m->lanes->lock);
    for (struct task *t = m->lanes->all; t; t = t->next)
        if (t->no == no)
            t->interrupted_ns = clock_monotonic();
    pthread_cond_signal(&m->lanes->interrupts);
    pthread_mutex_unlock(&m->lanes->lock);
}

static bool start_thread_locked(struct lanes *l, struct lane *lane)
{
    struct lane_thread *a = malloc(sizeof(*a));
    if (!a)
        return false;
    *a = (struct lane_thread){.l = l, .lane = lane};
    if (thread_start(&lane->thread[lane->threads], work, a)) {
        free(a);
        return false;
    }
    lane->threads++;
    return true;
}

static int64_t lane_timeout(const struct mount *m, enum task_lane lane)
{
    return lane == LANE_READ   ? m->read_timeout_ns
           : lane == LANE_LOOK ? m->other_timeout_ns
                               : m->publish_timeout_ns;
}

static void add_locked(struct lanes *l, struct task *t)
{
    t->no = ++l->next_no;
    t->next = l->all;
    t->link = &l->all;
    if (l->all)
        l->all->link = &t->next;
    l->all = t;
}

/* False: there is no thread at all, nor can one be had. */
static bool queue_locked(struct lanes *l, struct lane *lane, struct task *t)
{
    if (lane->n_queued >= lane->idle && lane->threads < lane->max &&
        !start_thread_locked(l, lane) && !lane->threads)
        return false;
    if (lane->last)
        lane->last->next_queued = t;
    else
        lane->first = t;
    lane->last = t;
    lane->n_queued++;
    if (l->stopping)
        cairn_cancel_fire(t->cancel);
    pthread_cond_signal(&lane->wake);
    return true;
}

/* Of fn and to_end one is NULL. */
static bool start(struct mount *m, enum task_lane which, struct fuse_req *req, task_fn *fn,
                  task_to_end_fn *to_end, void *arg)
{
    struct lanes *l = m->lanes;
    struct cairn_error err;
    struct task *t = calloc(1, sizeof(*t));
    if (!t || cairn_cancel_new(&t->cancel, &err)) {
        int e = t ? EMFILE : ENOMEM;
        free(t);
        free(arg);
        fuse_reply_err(req, e);
        return false;
    }
    t->req = req;
    t->thread = l->blind ? 0 : fuse_req_ctx(req)->pid;
    t->fn = fn;
    t->to_end = to_end;
    t->arg = arg;
    t->op = (struct cairn_op){.deadline_ns = clock_add(clock_monotonic(), lane_timeout(m, which)),
                              .cancel = t->cancel};
    pthread_mutex_lock(&l->lock);
    add_locked(l, t);
    pthread_mutex_unlock(&l->lock);
    /* Before a thread can have answered and freed the request. It calls back at once if the word
     * has come already. */
    fuse_req_interrupt_func(req, interrupted, (void *)(uintptr_t)t->no);
    pthread_mutex_lock(&l->lock);
    bool queued = queue_locked(l, &l->lane[which], t);
    bool mine = !queued && !t->answered;
    if (!queued)
        remove_locked(l, t);
    pthread_mutex_unlock(&l->lock);
    if (mine)
        fuse_reply_err(req, EAGAIN);
    if (!queued)
        task_free(t);
    return queued;
}

bool task_run(struct mount *m, enum task_lane which, struct fuse_req *req, task_fn *fn, void *arg)
{
    return start(m, which, req, fn, NULL, arg);
}

bool task_run_to_end(struct mount *m, enum task_lane which, struct fuse_req *req,
                     task_to_end_fn *fn, void *arg)
{
    return start(m, which, req, NULL, fn, arg);
}

struct cairn_op task_op_here(const struct mount *m, enum task_lane lane)
{
    return (struct cairn_op){.deadline_ns = clock_add(clock_monotonic(), lane_timeout(m, lane)),
                             .cancel = m->cancel};
}

int task_errno(struct mount *m, const char *what, const struct cairn_error *err)
{
    int e = cairn_error_errno(err);
    /* To the kernel ESTALE means: look all names up again, and then say it to the user. */
    if (e == ESTALE || e == ESHUTDOWN)
        e = EIO;
    if (err->error_class == CAIRN_CANCELLED)
        e = EINTR;
    if (err->error_class == CAIRN_NOT_FOUND)
        e = ENOENT;
    switch (err->error_class) {
    case CAIRN_NOT_FOUND:
    case CAIRN_CANCELLED:
    case CAIRN_INVALID:
    case CAIRN_BUSY:
        log_line(LOG_LEVEL_DEBUG, "mount: %s: %s", what, err->message);
        break;
    default:
        atomic_fetch_add(&m->n_errors, 1);
        log_line(LOG_LEVEL_ERROR, "mount: %s: %s: %s", what, cairn_class_name(err->error_class),
                 err->message);
    }
    return e;
}
