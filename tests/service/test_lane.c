#include "service/lane.h"

#include "base/util.h"
#include "service/loop.h"
#include "tests/lib/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define JOBS 200

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    unsigned inside, most;
};

struct job {
    struct lane_job base;
    struct gate *gate;
    atomic_int ran;
};

static void gate_init(struct gate *g)
{
    *g = (struct gate){.open = false};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static void wait_at_gate(struct lane_job *base)
{
    struct job *j = (struct job *)base;
    struct gate *g = j->gate;
    pthread_mutex_lock(&g->lock);
    g->inside++;
    g->most = g->inside > g->most ? g->inside : g->most;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    g->inside--;
    pthread_mutex_unlock(&g->lock);
    atomic_fetch_add(&j->ran, 1);
}

static void open_gate(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void until_inside(struct gate *g, unsigned n)
{
    pthread_mutex_lock(&g->lock);
    while (g->inside < n)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

START_TEST(test_lane__threads_come_as_needed_and_are_bounded)
{
    struct cairn_error err;
    struct lane *lane;
    struct gate gate;
    struct lane_load load;
    static struct job jobs[JOBS];
    gate_init(&gate);
    ck_ok(lane_new("test", 8, JOBS, &lane, &err));
    for (unsigned i = 0; i < 3; i++) {
        jobs[i] = (struct job){.base.run = wait_at_gate, .gate = &gate};
        ck_ok(lane_submit(lane, &jobs[i].base, &err));
    }
    until_inside(&gate, 3);
    lane_load(lane, &load);
    ck_assert_uint_eq(load.running, 3);
    for (unsigned i = 3; i < JOBS; i++) {
        jobs[i] = (struct job){.base.run = wait_at_gate, .gate = &gate};
        ck_ok(lane_submit(lane, &jobs[i].base, &err));
    }
    until_inside(&gate, 8);
    lane_load(lane, &load);
    ck_assert_uint_eq(load.threads, 8);
    ck_assert_uint_eq(load.queued, JOBS - 8);
    open_gate(&gate);
    lane_free(lane); /* runs what is queued */
    for (unsigned i = 0; i < JOBS; i++)
        ck_assert_int_eq(atomic_load(&jobs[i].ran), 1);
    ck_assert_uint_eq(gate.most, 8);
}
END_TEST

START_TEST(test_lane__a_full_queue_refuses)
{
    struct cairn_error err;
    struct lane *lane;
    struct gate gate;
    static struct job jobs[5];
    gate_init(&gate);
    ck_ok(lane_new("test", 1, 2, &lane, &err));
    for (unsigned i = 0; i < 5; i++)
        jobs[i] = (struct job){.base.run = wait_at_gate, .gate = &gate};
    ck_ok(lane_submit(lane, &jobs[0].base, &err));
    until_inside(&gate, 1);
    ck_ok(lane_submit(lane, &jobs[1].base, &err));
    ck_ok(lane_submit(lane, &jobs[2].base, &err));
    ck_fails(lane_submit(lane, &jobs[3].base, &err), CAIRN_TRANSIENT);
    ck_ok(lane_submit_always(lane, &jobs[4].base, &err));
    open_gate(&gate);
    lane_free(lane);
    ck_assert_int_eq(atomic_load(&jobs[3].ran), 0);
    ck_assert_int_eq(atomic_load(&jobs[4].ran), 1);
}
END_TEST

struct submitter {
    struct lane *lane;
    struct job jobs[JOBS];
};

static void count_only(struct lane_job *base)
{
    atomic_fetch_add(&((struct job *)base)->ran, 1);
}

static void *submit_all(void *arg)
{
    struct submitter *s = arg;
    struct cairn_error err;
    for (unsigned i = 0; i < JOBS; i++) {
        s->jobs[i].base.run = count_only;
        ck_assert_int_eq(lane_submit(s->lane, &s->jobs[i].base, &err), CAIRN_OK);
    }
    return NULL;
}

START_TEST(test_lane__every_job_runs_once_whoever_submits)
{
    struct cairn_error err;
    struct lane *lane;
    static struct submitter s[6];
    pthread_t threads[6];
    ck_ok(lane_new("test", 3, 100000, &lane, &err));
    for (unsigned i = 0; i < 6; i++) {
        s[i].lane = lane;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_all, &s[i]), 0);
    }
    for (unsigned i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    lane_free(lane);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned k = 0; k < JOBS; k++)
            ck_assert_int_eq(atomic_load(&s[i].jobs[k].ran), 1);
}
END_TEST

START_TEST(test_lane__one_never_used_ends)
{
    struct cairn_error err;
    struct lane *lane;
    ck_ok(lane_new("test", 3, 10, &lane, &err));
    lane_free(lane);
    lane_free(NULL);
}
END_TEST

/* ---- The loop -------------------------------------------------------------------------------- */

struct world {
    struct loop *loop;
    pthread_t loop_thread;
    struct loop_timer *timer;
    unsigned order, fired, readable;
    int pipe[2];
};

struct task {
    struct loop_task base;
    struct world *world;
    unsigned at;
};

static void note_order(struct loop_task *base)
{
    struct task *t = (struct task *)base;
    ck_assert(pthread_equal(pthread_self(), t->world->loop_thread));
    t->at = t->world->order++;
}

static void end_loop(struct loop_task *base)
{
    loop_end(((struct task *)base)->world->loop);
}

static void *post_all(void *arg)
{
    struct world *w = arg;
    static struct task tasks[1000], last;
    for (unsigned i = 0; i < 1000; i++) {
        tasks[i] = (struct task){.base.run = note_order, .world = w};
        loop_post(w->loop, &tasks[i].base);
    }
    last = (struct task){.base.run = end_loop, .world = w};
    loop_post(w->loop, &last.base);
    return tasks;
}

START_TEST(test_lane__tasks_reach_the_loop_in_order)
{
    struct cairn_error err;
    struct world w = {.loop_thread = pthread_self()};
    pthread_t poster;
    void *tasks;
    ck_ok(loop_new(&w.loop, &err));
    ck_assert_int_eq(pthread_create(&poster, NULL, post_all, &w), 0);
    ck_ok(loop_run(w.loop, &err));
    pthread_join(poster, &tasks);
    ck_assert_uint_eq(w.order, 1000);
    for (unsigned i = 0; i < 1000; i++)
        ck_assert_uint_eq(((struct task *)tasks)[i].at, i);
    loop_free(w.loop);
}
END_TEST

static void on_timer(void *ctx)
{
    struct world *w = ctx;
    if (++w->fired < 3)
        loop_timer_set(w->timer, 1000);
    else
        (void)!write(w->pipe[1], "x", 1);
}

static void on_readable(void *ctx)
{
    struct world *w = ctx;
    char c;
    w->readable += read(w->pipe[0], &c, 1) == 1;
    loop_end(w->loop);
}

START_TEST(test_lane__timers_and_descriptors)
{
    struct cairn_error err;
    struct world w = {.fired = 0};
    struct loop_timer *never;
    struct loop_watch *watch;
    ck_assert_int_eq(pipe(w.pipe), 0);
    ck_ok(loop_new(&w.loop, &err));
    ck_ok(loop_timer_new(w.loop, on_timer, &w, &w.timer, &err));
    ck_ok(loop_timer_new(w.loop, on_timer, &w, &never, &err));
    ck_ok(loop_watch_new(w.loop, w.pipe[0], on_readable, &w, &watch, &err));
    loop_timer_set(never, 1000);
    loop_timer_stop(never);
    loop_timer_set(never, INT64_MAX); /* saturates */
    loop_timer_set(w.timer, -5);
    ck_ok(loop_run(w.loop, &err));
    ck_assert_uint_eq(w.fired, 3);
    ck_assert_uint_eq(w.readable, 1);
    loop_watch_free(watch);
    loop_timer_free(w.timer);
    loop_timer_free(never);
    loop_free(w.loop);
    close(w.pipe[0]);
    close(w.pipe[1]);
}
END_TEST

TESTING_MAIN(lane, test_lane__threads_come_as_needed_and_are_bounded,
             test_lane__a_full_queue_refuses, test_lane__every_job_runs_once_whoever_submits,
             test_lane__one_never_used_ends, test_lane__tasks_reach_the_loop_in_order,
             test_lane__timers_and_descriptors)
