/* One sweep at a time: the runner in a process, the lock among processes. */
#include "base/clock.h"
#include "base/util.h"
#include "gc/lock.h"
#include "gc/runner.h"
#include "tests/gc/world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* Sweeps of this store stop at their first listing until they are told to end. */
static void stall(struct world *w)
{
    struct cairn_error err;
    struct fault_plan plan = {
        .op = FAULT_LIST, .kind = FAULT_DELAY, .nth = 1, .times = UINT_MAX, .key_part = "packs/"};
    ck_ok(backend_fault_add(w->b, &plan, &err));
}

static struct gc_runner *runner(struct world *w)
{
    struct cairn_error err;
    struct gc_runner *r;
    ck_ok(gc_runner_new(w->s, &w->config, &r, &err));
    return r;
}

static void wait_for_phase(struct gc_runner *r, const char *phase)
{
    struct gc_runner_status st;
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        gc_runner_status(r, &st);
    } while (!st.progress.phase || strcmp(st.progress.phase, phase) != 0);
}

START_TEST(test_gc_runner__sweeps_and_tells)
{
    struct world w;
    struct cairn_error err;
    struct cairn_gc_result result;
    struct gc_runner_status st;
    uint64_t sweep;
    bool joined;
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    struct gc_runner *r = runner(&w);
    gc_runner_status(r, &st);
    ck_assert(!st.running && !st.sweep && !st.last.phase);
    ck_ok(gc_runner_start(r, false, &sweep, &joined, &err));
    ck_assert_uint_eq(sweep, 1);
    ck_assert(!joined);
    ck_ok(gc_runner_wait(r, NULL, sweep, &result, &err));
    ck_assert_uint_eq(result.records, 1);
    ck_assert_str_eq(result.phase, "done");
    gc_runner_status(r, &st);
    ck_assert(!st.running);
    ck_assert_uint_eq(st.last.records, 1);
    ck_ok(gc_runner_start(r, true, &sweep, &joined, &err));
    ck_assert_uint_eq(sweep, 2);
    ck_ok(gc_runner_wait(r, NULL, sweep, NULL, &err));
    ck_fails(gc_runner_wait(r, NULL, 1, NULL, &err), CAIRN_INVALID);
    ck_fails(gc_runner_wait(r, NULL, 3, NULL, &err), CAIRN_INVALID);
    gc_runner_free(r);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_runner__a_second_start_joins_and_a_wait_can_be_left)
{
    struct world w;
    struct cairn_error err;
    struct gc_runner_status st;
    uint64_t one, two;
    bool joined;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    stall(&w);
    struct gc_runner *r = runner(&w);
    ck_ok(gc_runner_start(r, false, &one, &joined, &err));
    wait_for_phase(r, "packs");
    ck_ok(gc_runner_start(r, true, &two, &joined, &err));
    ck_assert(joined);
    ck_assert_uint_eq(one, two);
    gc_runner_status(r, &st);
    ck_assert(st.running && !st.dry_run);
    struct cairn_op op;
    cairn_op_init(&op, 0.05, NULL);
    ck_fails(gc_runner_wait(r, &op, one, NULL, &err), CAIRN_TIMEOUT);
    gc_runner_status(r, &st);
    ck_assert(st.running);
    int64_t start = clock_monotonic();
    gc_runner_free(r);
    ck_assert_int_lt(clock_monotonic() - start, 10 * NS_PER_S);
    backend_fault_clear(w.b);
    world_release(&w);
}
END_TEST

struct waiter {
    struct gc_runner *r;
    uint64_t sweep;
    int rc;
    struct cairn_error err;
};

static void *wait_thread(void *arg)
{
    struct waiter *x = arg;
    x->rc = gc_runner_wait(x->r, NULL, x->sweep, NULL, &x->err);
    return NULL;
}

START_TEST(test_gc_runner__stopping_ends_the_sweep_and_every_wait)
{
    struct world w;
    struct cairn_error err;
    struct waiter x[3];
    pthread_t t[3];
    uint64_t sweep;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    stall(&w);
    struct gc_runner *r = runner(&w);
    ck_ok(gc_runner_start(r, false, &sweep, NULL, &err));
    wait_for_phase(r, "packs");
    for (int i = 0; i < 3; i++) {
        x[i] = (struct waiter){.r = r, .sweep = sweep};
        ck_assert_int_eq(pthread_create(&t[i], NULL, wait_thread, &x[i]), 0);
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    gc_runner_free(r);
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        ck_assert_int_ne(x[i].rc, CAIRN_OK);
        ck_assert(x[i].err.message[0]);
    }
    backend_fault_clear(w.b);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    world_release(&w);
}
END_TEST

/* ---- Among processes ---- */

static void lock_path(const struct world *w, char path[400])
{
    snprintf(path, 400, "%s/gc.lock", w->s->state);
}

START_TEST(test_gc_runner__another_process_is_busy_or_waited_for)
{
    struct world w;
    struct cairn_error err;
    int pipes[2];
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        int fd;
        if (gc_lock_take(w.s, NULL, false, &fd, &err) || write(pipes[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char c;
    ck_assert_int_eq(read(pipes[0], &c, 1), 1);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_BUSY);
    struct cairn_op op;
    cairn_op_init(&op, 0.1, NULL);
    w.options.wait = true;
    ck_fails(cairn_gc(w.s, &op, &w.config, &w.options, &w.result, &err), CAIRN_TIMEOUT);
    /* It is killed: its lock dies with it, whatever is written in the file. */
    kill(child, SIGKILL);
    world_sweep(&w);
    int status;
    waitpid(child, &status, 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_runner__a_file_left_by_the_dead_locks_nothing)
{
    struct world w;
    char path[400], text[32];
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    lock_path(&w, path);
    static const int pids[] = {1, 0, -1};
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int n = snprintf(text, sizeof(text), "%d\n", pids[i] < 0 ? (int)getpid() : pids[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(write(fd, text, (size_t)n), n);
        close(fd);
        world_sweep(&w);
    }
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_runner, test_gc_runner__sweeps_and_tells,
           test_gc_runner__a_second_start_joins_and_a_wait_can_be_left,
           test_gc_runner__stopping_ends_the_sweep_and_every_wait,
           test_gc_runner__another_process_is_busy_or_waited_for,
           test_gc_runner__a_file_left_by_the_dead_locks_nothing)
