#include "service/loop.h"

#include "base/util.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <sys/eventfd.h>

struct loop {
    struct event_base *base;
    struct event *wake;
    int wake_fd;
    pthread_mutex_t lock;
    struct loop_task *head, **tail; /* guarded by lock */
};

struct loop_timer {
    struct event *event;
    void (*fn)(void *ctx);
    void *ctx;
};

struct loop_watch {
    struct event *event;
    void (*fn)(void *ctx);
    void *ctx;
};

static struct loop_task *take_all(struct loop *l)
{
    pthread_mutex_lock(&l->lock);
    struct loop_task *t = l->head;
    l->head = NULL;
    l->tail = &l->head;
    pthread_mutex_unlock(&l->lock);
    return t;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;
    uint64_t n;
    (void)what;
    (void)!read(fd, &n, sizeof(n));
    for (struct loop_task *t = take_all(l), *next; t; t = next) {
        next = t->next;
        t->run(t);
    }
}

int loop_new(struct loop **out, struct cairn_error *err)
{
    struct loop *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "event loop");
    pthread_mutex_init(&l->lock, NULL);
    l->tail = &l->head;
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = l->wake_fd < 0 ? error_sys(err, errno, "eventfd") : CAIRN_OK;
    if (!rc && !(l->base = event_base_new()))
        rc = error_set(err, CAIRN_TRANSIENT, errno, "no event loop to be had");
    if (!rc && (!(l->wake = event_new(l->base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l)) ||
                event_add(l->wake, NULL)))
        rc = error_oom(err, "event loop");
    if (rc) {
        loop_free(l);
        return rc;
    }
    *out = l;
    return CAIRN_OK;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    if (l->wake)
        event_free(l->wake);
    if (l->base)
        event_base_free(l->base);
    util_closep(&l->wake_fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int loop_run(struct loop *l, struct cairn_error *err)
{
    return event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY) < 0
               ? error_set(err, CAIRN_INTERNAL, errno, "the event loop failed")
               : CAIRN_OK;
}

void loop_end(struct loop *l)
{
    event_base_loopbreak(l->base);
}

void loop_post(struct loop *l, struct loop_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool first = !l->head;
    *l->tail = task;
    l->tail = &task->next;
    pthread_mutex_unlock(&l->lock);
    /* A full counter (which nobody reaches) would mean that a wake-up is due already. */
    if (first)
        (void)!write(l->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop_timer *t = arg;
    (void)fd;
    (void)what;
    t->fn(t->ctx);
}

int loop_timer_new(struct loop *l, void (*fn)(void *ctx), void *ctx, struct loop_timer **out,
                   struct cairn_error *err)
{
    struct loop_timer *t = calloc(1, sizeof(*t));
    if (t)
        *t = (struct loop_timer){event_new(l->base, -1, 0, on_timer, t), fn, ctx};
    if (!t || !t->event) {
        free(t);
        return error_oom(err, "timer");
    }
    *out = t;
    return CAIRN_OK;
}

void loop_timer_set(struct loop_timer *t, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    struct timeval tv = {.tv_sec = ns / 1000000000, .tv_usec = ns % 1000000000 / 1000};
    if (tv.tv_sec > 10 * 365 * 86400)
        tv.tv_sec = 10 * 365 * 86400; /* libevent adds it to the clock without looking */
    event_add(t->event, &tv);
}

void loop_timer_stop(struct loop_timer *t)
{
    event_del(t->event);
}

void loop_timer_free(struct loop_timer *t)
{
    if (t)
        event_free(t->event);
    free(t);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct loop_watch *w = arg;
    (void)fd;
    (void)what;
    w->fn(w->ctx);
}

int loop_watch_new(struct loop *l, int fd, void (*fn)(void *ctx), void *ctx,
                   struct loop_watch **out, struct cairn_error *err)
{
    struct loop_watch *w = calloc(1, sizeof(*w));
    if (w)
        *w = (struct loop_watch){event_new(l->base, fd, EV_READ | EV_PERSIST, on_readable, w), fn,
                                 ctx};
    if (!w || !w->event || event_add(w->event, NULL)) {
        if (w && w->event)
            event_free(w->event);
        free(w);
        return error_oom(err, "event of a descriptor");
    }
    *out = w;
    return CAIRN_OK;
}

void loop_watch_free(struct loop_watch *w)
{
    if (w)
        event_free(w->event);
    free(w);
}

void *loop_base(struct loop *l)
{
    return l->base;
}
