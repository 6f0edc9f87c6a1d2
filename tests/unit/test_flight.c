#include "base/flight.h"

#include "base/clock.h"
#include "base/util.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* What a test wants of its flights, and what they did. */
struct plan {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool open; /* guarded by lock: runs may go on */
    bool slow; /* guarded by lock: goes on waiting for open when it is cancelled */
    bool install_open;
    int fail; /* class to fail with */
    bool install;
    atomic_int runs, ended, installs, refused, freed_ctx, freed_results, installing;
};

struct number {
    struct flight_result head;
    struct plan *plan;
    int value;
};

static void plan_init(struct plan *p)
{
    memset(p, 0, sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    op_cond_init(&p->cond);
    p->install_open = true;
}

static void plan_release(struct plan *p)
{
    pthread_cond_destroy(&p->cond);
    pthread_mutex_destroy(&p->lock);
}

static void plan_open(struct plan *p)
{
    pthread_mutex_lock(&p->lock);
    p->open = p->install_open = true;
    pthread_cond_broadcast(&p->cond);
    pthread_mutex_unlock(&p->lock);
}

static void free_number(struct flight_result *r)
{
    struct number *n = (struct number *)r;
    atomic_fetch_add(&n->plan->freed_results, 1);
    free(n);
}

static void free_ctx(void *ctx)
{
    struct plan *p = ctx;
    atomic_fetch_add(&p->freed_ctx, 1);
}

static int wait_for(struct plan *p, const bool *flag, const struct cairn_op *op,
                    struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &p->lock, &p->cond);
    pthread_mutex_lock(&p->lock);
    while (!*flag && !rc)
        rc = op_wait_locked(&w, "the run", err);
    pthread_mutex_unlock(&p->lock);
    op_waiter_remove(&w);
    return rc;
}

static int run_plan(void *ctx, struct flight *self, const struct cairn_op *op,
                    struct flight_result **out, struct cairn_error *err)
{
    struct plan *p = ctx;
    int value = atomic_fetch_add(&p->runs, 1) + 1;
    int rc = wait_for(p, &p->open, p->slow ? NULL : op, err);
    if (!rc && p->fail)
        rc = error_set(err, p->fail, EIO, "run %d fails", value);
    if (!rc && p->install) {
        if (flight_install_begin(self)) {
            atomic_store(&p->installing, 1);
            rc = wait_for(p, &p->install_open, NULL, err);
            atomic_fetch_add(&p->installs, 1);
            atomic_store(&p->installing, 0);
            flight_install_end(self);
        } else {
            atomic_fetch_add(&p->refused, 1);
        }
    }
    if (!rc) {
        struct number *n = malloc(sizeof(*n));
        if (!n)
            return error_oom(err, "number");
        flight_result_init(&n->head, free_number);
        n->plan = p;
        n->value = value;
        *out = &n->head;
    }
    atomic_fetch_add(&p->ended, 1);
    return rc;
}

static struct flight_table *new_table(double budget_seconds, unsigned threads, unsigned queued)
{
    struct flight_table_options o = {.max_threads = threads, .max_queued = queued};
    o.budget_ns = clock_from_seconds(budget_seconds, CAIRN_NO_DEADLINE);
    struct flight_table *t = NULL;
    struct cairn_error err;
    ck_ok(flight_table_new(&o, &t, &err));
    return t;
}

static struct flight_start start_of(struct plan *p)
{
    return (struct flight_start){.run = run_plan, .ctx = p, .ctx_free = free_ctx};
}

/* A caller on a thread of its own. */
struct caller {
    struct flight_table *table;
    struct plan *plan;
    const char *key;
    struct cairn_op op;
    pthread_t thread;
    atomic_int called, left;
    int rc, value;
    struct cairn_error err;
};

static int take_value(struct flight_result *r)
{
    int value = r ? ((struct number *)r)->value : 0;
    flight_result_unref(r);
    return value;
}

static void *caller_main(void *arg)
{
    struct caller *c = arg;
    struct flight_start start = start_of(c->plan);
    struct flight_result *r = NULL;
    atomic_store(&c->called, 1);
    c->rc = flight_run(c->table, c->key, &start, &c->op, &r, &c->err);
    c->value = take_value(r);
    atomic_store(&c->left, 1);
    return NULL;
}

static void caller_start(struct caller *c, struct flight_table *t, struct plan *p, const char *key,
                         double seconds, struct cairn_cancel *cancel)
{
    memset(c, 0, sizeof(*c));
    c->table = t;
    c->plan = p;
    c->key = key;
    cairn_op_init(&c->op, seconds, cancel);
    ck_assert_int_eq(pthread_create(&c->thread, NULL, caller_main, c), 0);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Until *v is at least want: 20 s, or the test has failed. */
static void until(atomic_int *v, int want)
{
    for (int i = 0; i < 20000 && atomic_load(v) < want; i++)
        nap();
    ck_assert_int_ge(atomic_load(v), want);
}

/* Time for callers to be inside flight_run: nothing depends on it but how much is tested. */
static void settle(void)
{
    for (int i = 0; i < 30; i++)
        nap();
}

START_TEST(test_flight__eight_callers_share_one_run)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(60, 4, 0);
    struct caller c[8];
    for (int i = 0; i < 8; i++)
        caller_start(&c[i], t, &p, "a", 60, NULL);
    until(&p.runs, 1);
    settle();
    plan_open(&p);
    for (int i = 0; i < 8; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_OK);
        ck_assert_int_eq(c[i].value, 1);
    }
    ck_assert_int_eq(p.runs, 1);
    flight_table_free(t);
    ck_assert_int_eq(p.freed_ctx, 8);
    ck_assert_int_eq(p.freed_results, 1);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__the_first_caller_may_be_cancelled)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(60, 4, 0);
    struct cairn_error err;
    struct cairn_cancel *cancel;
    ck_ok(cairn_cancel_new(&cancel, &err));
    struct caller first, c[7];
    caller_start(&first, t, &p, "a", 60, cancel);
    until(&p.runs, 1);
    for (int i = 0; i < 7; i++)
        caller_start(&c[i], t, &p, "a", 60, NULL);
    settle();
    cairn_cancel_fire(cancel);
    pthread_join(first.thread, NULL); /* leaves while the run still waits */
    ck_assert_int_eq(first.rc, CAIRN_CANCELLED);
    ck_assert_int_eq(p.ended, 0);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(c[i].left, 0);
    plan_open(&p);
    for (int i = 0; i < 7; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_OK);
        ck_assert_int_eq(c[i].value, 1);
    }
    flight_table_free(t);
    cairn_cancel_free(cancel);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__it_goes_on_when_everyone_left)
{
    struct plan p;
    plan_init(&p);
    p.install = true;
    struct flight_table *t = new_table(60, 4, 0);
    struct caller c[3];
    int64_t begin = clock_monotonic();
    for (int i = 0; i < 3; i++)
        caller_start(&c[i], t, &p, "a", 0.2, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_TIMEOUT);
        ck_assert_int_eq(c[i].err.error_class, CAIRN_TIMEOUT);
    }
    ck_assert(clock_monotonic() - begin < 10 * NS_PER_S);
    ck_assert_int_eq(p.runs, 1);
    plan_open(&p);
    until(&p.ended, 1);
    ck_assert_int_eq(p.installs, 1);
    flight_table_free(t);
    ck_assert_int_eq(p.freed_results, 1);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__an_error_reaches_all_and_is_not_remembered)
{
    struct plan p;
    plan_init(&p);
    p.fail = CAIRN_NO_SPACE;
    struct flight_table *t = new_table(60, 4, 0);
    struct caller c[4];
    for (int i = 0; i < 4; i++)
        caller_start(&c[i], t, &p, "a", 60, NULL);
    until(&p.runs, 1);
    settle();
    plan_open(&p);
    for (int i = 0; i < 4; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_NO_SPACE);
        ck_assert_int_eq(c[i].err.sys_errno, EIO);
        ck_assert_str_eq(c[i].err.message, "run 1 fails");
    }
    p.fail = CAIRN_OK;
    struct flight_start start = start_of(&p);
    struct flight_result *r;
    struct cairn_error err;
    ck_ok(flight_run(t, "a", &start, NULL, &r, &err));
    ck_assert_int_eq(take_value(r), 2);
    flight_table_free(t);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__a_spent_op_starts_nothing)
{
    struct plan p;
    plan_init(&p);
    plan_open(&p);
    struct flight_table *t = new_table(60, 4, 0);
    struct flight_start start = start_of(&p);
    struct cairn_op op = {.deadline_ns = clock_monotonic()};
    struct flight_result *r = (struct flight_result *)&p;
    struct cairn_error err;
    ck_fails(flight_run(t, "a", &start, &op, &r, &err), CAIRN_TIMEOUT);
    ck_assert_ptr_null(r);
    ck_ok(cairn_cancel_new(&op.cancel, &err));
    cairn_cancel_fire(op.cancel);
    ck_fails(flight_run(t, "a", &start, &op, &r, &err), CAIRN_CANCELLED);
    flight_table_free(t);
    ck_assert_int_eq(p.runs, 0);
    ck_assert_int_eq(p.freed_ctx, 2);
    cairn_cancel_free(op.cancel);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__its_own_budget_is_no_callers_timeout)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(0.05, 4, 0);
    struct flight_start start = start_of(&p);
    struct cairn_error err;
    ck_fails(flight_run(t, "a", &start, NULL, NULL, &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(err.sys_errno, ETIMEDOUT);
    flight_table_free(t);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__invalidated_callers_leave_and_later_ones_start_anew)
{
    struct plan p;
    plan_init(&p);
    p.install = p.slow = true; /* so that it would still install */
    struct flight_table *t = new_table(60, 4, 0);
    struct cairn_error err;
    struct caller c[2], later;
    for (int i = 0; i < 2; i++)
        caller_start(&c[i], t, &p, "a", 60, NULL);
    until(&p.runs, 1);
    settle();
    ck_ok(flight_table_invalidate(t, "other", NULL, &err));
    ck_ok(flight_table_invalidate(t, "a", NULL, &err));
    for (int i = 0; i < 2; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_TRANSIENT);
        ck_assert_int_eq(c[i].err.sys_errno, ESTALE);
    }
    ck_assert_int_eq(p.ended, 0);
    caller_start(&later, t, &p, "a", 60, NULL);
    until(&p.runs, 2);
    plan_open(&p);
    pthread_join(later.thread, NULL);
    ck_assert_int_eq(later.rc, CAIRN_OK);
    ck_assert_int_eq(later.value, 2);
    until(&p.ended, 2);
    ck_assert_int_eq(p.installs, 1);
    ck_assert_int_eq(p.refused, 1);
    flight_table_free(t);
    ck_assert_int_eq(p.freed_results, 2);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__invalidate_fires_the_flights_token)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(60, 4, 0);
    struct caller c;
    caller_start(&c, t, &p, "a", 60, NULL);
    until(&p.runs, 1);
    struct cairn_error err;
    ck_ok(flight_table_invalidate(t, "a", NULL, &err));
    until(&p.ended, 1); /* though nobody opened the gate */
    pthread_join(c.thread, NULL);
    flight_table_free(t);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__invalidate_waits_for_an_install)
{
    struct plan p;
    plan_init(&p);
    p.install = p.open = true;
    p.install_open = false;
    struct flight_table *t = new_table(60, 4, 0);
    struct caller c;
    caller_start(&c, t, &p, "a", 60, NULL);
    until(&p.installing, 1);
    struct cairn_error err;
    struct cairn_op soon;
    cairn_op_init(&soon, 0.05, NULL);
    ck_fails(flight_table_invalidate(t, "a", &soon, &err), CAIRN_TIMEOUT);
    /* The second one finds the flight too, although it is invalid already. */
    cairn_op_init(&soon, 0.05, NULL);
    ck_fails(flight_table_invalidate(t, "a", &soon, &err), CAIRN_TIMEOUT);
    plan_open(&p);
    ck_ok(flight_table_invalidate(t, "a", NULL, &err));
    ck_assert_int_eq(p.installs, 1);
    ck_assert_int_eq(p.installing, 0);
    pthread_join(c.thread, NULL);
    ck_assert_int_eq(c.rc, CAIRN_TRANSIENT);
    flight_table_free(t);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__more_keys_than_threads_take_turns)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(60, 2, 2);
    static const char *const keys[] = {"a", "b", "c", "d"};
    struct caller c[4];
    for (int i = 0; i < 4; i++) {
        caller_start(&c[i], t, &p, keys[i], 60, NULL);
        until(&p.runs, i < 2 ? i + 1 : 2);
    }
    settle();
    ck_assert_int_eq(p.runs, 2);
    struct flight_start start = start_of(&p);
    struct cairn_error err;
    ck_fails(flight_run(t, "e", &start, NULL, NULL, &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(err.sys_errno, EAGAIN);
    /* One that waits can be invalidated without ever running. */
    ck_ok(flight_table_invalidate(t, "d", NULL, &err));
    pthread_join(c[3].thread, NULL);
    ck_assert_int_eq(c[3].rc, CAIRN_TRANSIENT);
    plan_open(&p);
    for (int i = 0; i < 3; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_OK);
    }
    flight_table_free(t);
    ck_assert_int_eq(p.runs, 3);
    ck_assert_int_eq(p.freed_ctx, 5);
    plan_release(&p);
}
END_TEST

START_TEST(test_flight__free_ends_running_and_waiting_flights)
{
    struct plan p;
    plan_init(&p);
    struct flight_table *t = new_table(60, 1, 0);
    struct caller c[4];
    caller_start(&c[0], t, &p, "a", 60, NULL);
    until(&p.runs, 1);
    caller_start(&c[1], t, &p, "a", 60, NULL);
    caller_start(&c[2], t, &p, "b", 60, NULL);
    caller_start(&c[3], t, &p, "c", 60, NULL);
    for (int i = 0; i < 4; i++)
        until(&c[i].called, 1);
    settle();
    flight_table_free(t);
    for (int i = 0; i < 4; i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_TRANSIENT);
        ck_assert(c[i].err.message[0]);
    }
    ck_assert_int_eq(p.runs, 1);
    ck_assert_int_eq(p.ended, 1);
    ck_assert_int_eq(p.freed_ctx, 4);
    plan_release(&p);
}
END_TEST

/* A caller that touched the table after it is gone would be seen by the sanitizers. */
START_TEST(test_flight__free_waits_for_its_callers)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (int round = 0; round < 40; round++) {
        struct plan p;
        plan_init(&p);
        struct flight_table *t = new_table(60, 8, 0);
        struct caller c[8];
        for (int i = 0; i < 8; i++)
            caller_start(&c[i], t, &p, keys[i], 60, NULL);
        until(&p.runs, 8); /* so every call has begun */
        flight_table_free(t);
        for (int i = 0; i < 8; i++) {
            pthread_join(c[i].thread, NULL);
            ck_assert_int_eq(c[i].rc, CAIRN_TRANSIENT);
        }
        ck_assert_int_eq(p.freed_ctx, 8);
        plan_release(&p);
    }
}
END_TEST

START_TEST(test_flight__a_result_outlives_its_table)
{
    struct plan p;
    plan_init(&p);
    plan_open(&p);
    struct flight_table *t = new_table(60, 1, 0);
    struct flight_start start = start_of(&p);
    struct flight_result *r = NULL;
    struct cairn_error err;
    ck_ok(flight_run(t, "a", &start, NULL, &r, &err));
    flight_table_free(t);
    ck_assert_int_eq(p.freed_results, 0);
    ck_assert_int_eq(take_value(r), 1);
    ck_assert_int_eq(p.freed_results, 1);
    plan_release(&p);
}
END_TEST

/* ---- Everything at once ---------------------------------------------------------------------- */

#define STORM_THREADS 6
#define STORM_CALLS   1800

static atomic_int storm_ctx, storm_results, storm_ended, storm_alive;

struct storm {
    struct flight_table *table;
    uint64_t seed;
    pthread_t thread;
    int ok, timeouts, cancelled, others;
};

static void free_storm_result(struct flight_result *r)
{
    atomic_fetch_sub(&storm_results, 1);
    free(r);
}

static void free_storm_ctx(void *ctx)
{
    atomic_fetch_sub(&storm_ctx, 1);
    free(ctx);
}

static int run_storm(void *ctx, struct flight *self, const struct cairn_op *op,
                     struct flight_result **out, struct cairn_error *err)
{
    uint64_t *seed = ctx;
    uint64_t r = testing_random(seed);
    atomic_fetch_add(&storm_alive, 1);
    if (r % 4 == 0)
        nanosleep(&(struct timespec){.tv_nsec = (long)(r >> 8) % 300000}, NULL);
    int rc = op_check(op, "storm", err);
    if (!rc && r % 7 == 0)
        rc = error_set(err, CAIRN_BUSY, 0, "by chance");
    if (!rc && flight_install_begin(self))
        flight_install_end(self);
    if (!rc) {
        *out = malloc(sizeof(**out));
        flight_result_init(*out, free_storm_result);
        atomic_fetch_add(&storm_results, 1);
    }
    atomic_fetch_sub(&storm_alive, 1);
    atomic_fetch_add(&storm_ended, 1);
    return rc;
}

static void *fire_soon(void *cancel)
{
    cairn_cancel_fire(cancel);
    return NULL;
}

static void storm_call(struct storm *s)
{
    uint64_t r = testing_random(&s->seed);
    char key[8] = {(char)('a' + r % 5), 0};
    struct cairn_error err = {0};
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE};
    pthread_t firer;
    bool fires = (r >> 8) % 16 == 0;
    if ((r >> 16) % 4 == 0)
        op.deadline_ns = clock_monotonic() + (int64_t)((r >> 24) % 200000);
    if ((r >> 32) % 32 == 0 && flight_table_invalidate(s->table, key, &op, &err))
        s->others++;
    if (fires && cairn_cancel_new(&op.cancel, &err) == CAIRN_OK)
        pthread_create(&firer, NULL, fire_soon, op.cancel);
    uint64_t *seed = malloc(sizeof(*seed));
    *seed = r;
    atomic_fetch_add(&storm_ctx, 1);
    struct flight_start start = {.run = run_storm, .ctx = seed, .ctx_free = free_storm_ctx};
    struct flight_result *out = NULL;
    switch (flight_run(s->table, key, &start, &op, &out, &err)) {
    case CAIRN_OK:
        s->ok += out != NULL;
        break;
    case CAIRN_TIMEOUT:
        s->timeouts++;
        break;
    case CAIRN_CANCELLED:
        s->cancelled++;
        break;
    default:
        s->others++;
    }
    flight_result_unref(out);
    if (op.cancel) {
        pthread_join(firer, NULL);
        cairn_cancel_free(op.cancel);
    }
}

static void *storm_main(void *arg)
{
    struct storm *s = arg;
    for (int i = 0; i < STORM_CALLS; i++)
        storm_call(s);
    return NULL;
}

START_TEST(test_flight__ten_thousand_joins_and_leaves_lose_nothing)
{
    struct flight_table *t = new_table(60, 3, 4);
    struct storm s[STORM_THREADS];
    for (int i = 0; i < STORM_THREADS; i++) {
        s[i] = (struct storm){.table = t, .seed = (uint64_t)i};
        ck_assert_int_eq(pthread_create(&s[i].thread, NULL, storm_main, &s[i]), 0);
    }
    int ok = 0, left = 0;
    for (int i = 0; i < STORM_THREADS; i++) {
        pthread_join(s[i].thread, NULL);
        ck_assert_int_le(s[i].ok + s[i].timeouts + s[i].cancelled, STORM_CALLS);
        ok += s[i].ok;
        left += s[i].timeouts + s[i].cancelled;
    }
    flight_table_free(t);
    ck_assert_int_gt(ok, STORM_CALLS);
    ck_assert_int_gt(left, 0);
    ck_assert_int_gt(storm_ended, 0);
    ck_assert_int_eq(storm_alive, 0);
    ck_assert_int_eq(storm_ctx, 0);
    ck_assert_int_eq(storm_results, 0);
}
END_TEST

TESTING_MAIN(flight, test_flight__eight_callers_share_one_run,
             test_flight__the_first_caller_may_be_cancelled,
             test_flight__it_goes_on_when_everyone_left,
             test_flight__an_error_reaches_all_and_is_not_remembered,
             test_flight__a_spent_op_starts_nothing,
             test_flight__its_own_budget_is_no_callers_timeout,
             test_flight__invalidated_callers_leave_and_later_ones_start_anew,
             test_flight__invalidate_fires_the_flights_token,
             test_flight__invalidate_waits_for_an_install,
             test_flight__more_keys_than_threads_take_turns,
             test_flight__free_ends_running_and_waiting_flights,
             test_flight__free_waits_for_its_callers, test_flight__a_result_outlives_its_table,
             test_flight__ten_thousand_joins_and_leaves_lose_nothing)
