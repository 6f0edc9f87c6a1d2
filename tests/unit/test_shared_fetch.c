/* Shared fetches: one download for all, callers that leave, failures that are not remembered,
 * records that go meanwhile, stores that are closed meanwhile. */
#include "base/clock.h"
#include "base/util.h"
#include "store/gens.h"
#include "store/shared_fetch.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define META  "{\"n\":1}"
#define META2 "{\"n\":2}"

static struct cairn_error err;
static struct kit k;

static void start(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem, .faulty = true, .workers = 4});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, CK_A, "one", META, NULL, &err));
}

/* The same place with other times; without chunks in a cache, so that each fetch reads all. */
static void reopen(double budget_seconds)
{
    cairn_close(k.s);
    struct backend *b = NULL, *fault = NULL;
    if (k.opt.mem)
        ck_ok(backend_mem_share(k.shared, &b, &err));
    else
        ck_ok(backend_dir_open(k.root, &b, &err));
    ck_ok(backend_fault_new(b, &fault, &err));
    struct cairn_config config = {
        .state = k.state, .workers = 4, .fetch_budget_seconds = budget_seconds, .cache_bytes = -1};
    k.s = NULL;
    ck_ok(store_new(fault, &config, NULL, &k.s, &err));
}

static void plan(enum fault_op op, enum fault_kind kind, unsigned times, int error_class)
{
    ck_ok(backend_fault_add(k.s->backend,
                            &(struct fault_plan){.op = op,
                                                 .kind = kind,
                                                 .nth = 1,
                                                 .times = times,
                                                 .key_part = "packs/",
                                                 .error_class = error_class},
                            &err));
}

static unsigned calls(void)
{
    return backend_fault_calls(k.s->backend, FAULT_ANY);
}

/* Downloads of packs never end by themselves. */
static void stall(void)
{
    plan(k.opt.mem ? FAULT_READ : FAULT_OPEN_FD, FAULT_DELAY, UINT_MAX, 0);
}

static void wait_until_stalled(void)
{
    while (backend_fault_fired(k.s->backend) == 0)
        usleep(2000);
}

/* ---- A gate in the backend ------------------------------------------------------------------- */

static struct {
    const struct backend_ops *ops; /* beneath */
    struct backend_ops table;
    int (*on_second_meta)(void);
    atomic_uint metas;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool shut;   /* guarded by lock: reads of packs wait */
    unsigned in; /* guarded by lock: reads that have come to it */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static bool in_memory;

static int gate_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                    struct buf *out, struct backend_stat *st, struct cairn_error *e)
{
    if (strstr(key, "meta.json") && atomic_fetch_add(&gate.metas, 1) == 1 && gate.on_second_meta)
        ck_ok(gate.on_second_meta());
    return gate.ops->get(b, op, key, max, out, st, e);
}

static void gate_pass(const char *key)
{
    if (!strstr(key, "packs/"))
        return;
    pthread_mutex_lock(&gate.lock);
    gate.in++;
    pthread_cond_broadcast(&gate.cond);
    while (gate.shut)
        pthread_cond_wait(&gate.cond, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static int gate_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                     void *dst, size_t len, struct cairn_error *e)
{
    gate_pass(key);
    return gate.ops->read(b, op, key, off, dst, len, e);
}

static int gate_open_fd(struct backend *b, const struct cairn_op *op, const char *key, int *fd,
                        struct cairn_error *e)
{
    gate_pass(key);
    return gate.ops->open_fd(b, op, key, fd, e);
}

static void gate_start(void)
{
    gate.ops = k.s->backend->ops;
    gate.table = *gate.ops;
    gate.table.get = gate_get;
    gate.table.read = gate_read;
    if (gate.ops->open_fd)
        gate.table.open_fd = gate_open_fd;
    gate.metas = 0;
    k.s->backend->ops = &gate.table;
}

static void gate_set(bool shut)
{
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    pthread_cond_broadcast(&gate.cond);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_wait(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.in)
        pthread_cond_wait(&gate.cond, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void same(const char *path, const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    kit_same_folder(r, path);
    cairn_record_close(r);
}

/* Folders of copies: whole ones, and those half made (".tmp-…"). */
static unsigned count_copies(const char *below, unsigned *half)
{
    char path[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/cache/gens/%s", k.s->state, below);
    CLEANUP_DIR DIR *dir = opendir(path);
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        if (strncmp(d->d_name, ".tmp-", 5) == 0)
            (*half)++;
        else if (d->d_name[0] != '.')
            n += *below ? 1 : count_copies(d->d_name, half);
    }
    return n;
}

static void copies_are(unsigned want)
{
    unsigned half = 0, n = count_copies("", &half);
    ck_assert_uint_eq(n, want);
    ck_assert_uint_eq(half, 0);
}

static int fetch(const char *id, struct cairn_fetch_shared_result *r)
{
    return cairn_fetch_shared(k.s, NULL, id, NULL, r, &err);
}

/* ---- What it gives --------------------------------------------------------------------------- */

static void gives_it(bool mem)
{
    struct cairn_fetch_shared_result a, b;
    struct stat st;
    char path[4096];
    start(mem);
    ck_ok(fetch(CK_A, &a));
    ck_assert(!a.ready);
    ck_assert_uint_eq(a.meta_len, strlen(META));
    ck_assert_mem_eq(a.meta, META, a.meta_len);
    ck_assert_str_eq(a.gen, k.result.gen);
    ck_assert_uint_eq(strlen(a.lease), 32);
    ck_assert(a.lease_seconds > 3500 && a.lease_seconds <= 3600);
    same(a.path, CK_A);
    snprintf(path, sizeof(path), "%s/disks/cow.raw", a.path);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0400);
    ck_assert_int_lt(st.st_blocks * 512, 1 << 20);
    ck_ok(fetch(CK_A, &b));
    ck_assert(b.ready);
    ck_assert_str_eq(a.path, b.path);
    ck_assert_str_ne(a.lease, b.lease);
    ck_ok(cairn_lease_release(k.s, a.lease, &err));
    ck_ok(cairn_lease_release(k.s, b.lease, &err));
    cairn_fetch_shared_result_release(&b);
    /* It is there for the next process as well, and costs no pack. */
    reopen(0);
    stall();
    ck_ok(fetch(CK_A, &b));
    ck_assert(b.ready);
    ck_assert_str_eq(a.path, b.path);
    backend_fault_clear(k.s->backend);
    same(b.path, CK_A);
    cairn_fetch_shared_result_release(&a);
    cairn_fetch_shared_result_release(&b);
    copies_are(1);
    kit_stop(&k);
}

START_TEST(test_shared_fetch__gives_files_meta_and_a_lease)
{
    gives_it(_i != 0);
}
END_TEST

START_TEST(test_shared_fetch__refuses_what_cannot_be)
{
    struct cairn_fetch_shared_result r;
    start(true);
    ck_fails(fetch("ck_1", &r), CAIRN_INVALID);
    ck_fails(fetch(CK_B, &r), CAIRN_NOT_FOUND);
    kit_stop(&k);
    kit_start(&k, &(struct kit_options){.no_index = true});
    ck_fails(fetch(CK_B, &r), CAIRN_INVALID);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__a_spent_deadline_sends_nothing)
{
    struct cairn_fetch_shared_result r;
    struct cairn_op op;
    start(true);
    unsigned before = calls();
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_fetch_shared(k.s, &op, CK_A, NULL, &r, &err), CAIRN_TIMEOUT);
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    cairn_op_init(&op, -1, cancel);
    ck_fails(cairn_fetch_shared(k.s, &op, CK_A, NULL, &r, &err), CAIRN_CANCELLED);
    ck_assert_uint_eq(calls(), before);
    cairn_cancel_free(cancel);
    kit_stop(&k);
}
END_TEST

/* ---- Many callers ---------------------------------------------------------------------------- */

#define CALLERS 50

struct caller {
    pthread_t thread;
    struct cairn_op op;
    const char *id;
    pthread_barrier_t *barrier; /* NULL: none */
    struct cairn_fetch_shared_result result;
    struct cairn_error err;
    int rc;
    double seconds;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    if (c->barrier)
        pthread_barrier_wait(c->barrier);
    int64_t begun = clock_monotonic();
    c->rc = cairn_fetch_shared(k.s, &c->op, c->id, NULL, &c->result, &c->err);
    c->seconds = (double)(clock_monotonic() - begun) / (double)NS_PER_S;
    return NULL;
}

static void caller_start(struct caller *c, const char *id, double seconds,
                         struct cairn_cancel *cancel, pthread_barrier_t *barrier)
{
    *c = (struct caller){.id = id, .barrier = barrier};
    cairn_op_init(&c->op, seconds, cancel);
    ck_assert_int_eq(pthread_create(&c->thread, NULL, call, c), 0);
}

static void caller_end(struct caller *c)
{
    ck_assert_int_eq(pthread_join(c->thread, NULL), 0);
}

START_TEST(test_shared_fetch__many_callers_one_download)
{
    static struct caller callers[CALLERS];
    struct cairn_fetch_shared_result one;
    pthread_barrier_t barrier;
    start(_i != 0);
    ck_ok(kit_publish(&k, CK_B, "two", META, NULL, &err));
    enum fault_op reading = k.opt.mem ? FAULT_READ : FAULT_OPEN_FD;
    reopen(0); /* no pack is open */
    ck_ok(fetch(CK_B, &one));
    unsigned want = backend_fault_calls(k.s->backend, reading);
    ck_assert_uint_gt(want, 0);
    ck_ok(cairn_lease_release(k.s, one.lease, &err));
    cairn_fetch_shared_result_release(&one);
    ck_assert(gens_clear(k.s->gens));
    copies_are(0);
    reopen(0);
    pthread_barrier_init(&barrier, NULL, CALLERS);
    for (unsigned i = 0; i < CALLERS; i++)
        caller_start(&callers[i], CK_B, 60, NULL, &barrier);
    unsigned made = 0;
    for (unsigned i = 0; i < CALLERS; i++) {
        struct caller *c = &callers[i];
        caller_end(c);
        ck_assert_msg(c->rc == CAIRN_OK, "%s", c->err.message);
        ck_assert_str_eq(c->result.path, callers[0].result.path);
        for (unsigned j = 0; j < i; j++)
            ck_assert_str_ne(c->result.lease, callers[j].result.lease);
        made += !c->result.ready;
    }
    ck_assert_uint_ge(made, 1);
    /* Two workers that want a pack at one moment both open it, and one of them closes its own. */
    if (k.opt.mem)
        ck_assert_uint_eq(backend_fault_calls(k.s->backend, reading), want);
    else
        ck_assert_uint_le(backend_fault_calls(k.s->backend, reading), 2 * want + 2);
    struct cairn_fetch_shared_stats st;
    cairn_fetch_shared_stats(k.s, &st);
    ck_assert_uint_eq(st.running, 0);
    ck_assert_uint_eq(st.downloaded, 1);
    ck_assert_uint_eq(st.failed, 0);
    ck_assert_uint_gt(st.downloaded_bytes, 300000);
    ck_assert_uint_eq(st.ready, CALLERS - made);
    same(callers[0].result.path, CK_B);
    copies_are(1);
    for (unsigned i = 0; i < CALLERS; i++)
        cairn_fetch_shared_result_release(&callers[i].result);
    pthread_barrier_destroy(&barrier);
    kit_stop(&k);
}
END_TEST

/* The first caller, whose flight it would be, is cancelled; a second one's deadline passes; the
 * others wait on and get it. */
START_TEST(test_shared_fetch__callers_leave_when_they_must)
{
    struct caller a, b;
    struct cairn_cancel *cancel = NULL;
    start(_i != 0);
    reopen(0);
    stall();
    ck_ok(cairn_cancel_new(&cancel, &err));
    caller_start(&a, CK_A, -1, cancel, NULL);
    wait_until_stalled();
    caller_start(&b, CK_A, 0.1, NULL, NULL);
    caller_end(&b);
    ck_assert_int_eq(b.rc, CAIRN_TIMEOUT);
    ck_assert(b.seconds < 20);
    int64_t fired = clock_monotonic();
    cairn_cancel_fire(cancel);
    caller_end(&a);
    ck_assert_int_eq(a.rc, CAIRN_CANCELLED);
    ck_assert_int_lt(clock_monotonic() - fired, 20 * NS_PER_S);
    /* The flight is there still, without a caller: its record's removal ends it. */
    unsigned half = 0;
    count_copies("", &half);
    ck_assert_uint_eq(half, 1);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    reopen(0); /* joins the flight */
    cairn_cancel_free(cancel);
    copies_are(0);
    kit_stop(&k);
}
END_TEST

/* All callers have left; what they started is there for the next one, who causes no download. */
START_TEST(test_shared_fetch__a_flight_without_callers_lands)
{
    struct caller a;
    struct cairn_fetch_shared_result r;
    start(_i != 0);
    reopen(0);
    gate_start();
    gate_set(true);
    caller_start(&a, CK_A, 0.1, NULL, NULL);
    gate_wait();
    caller_end(&a);
    ck_assert_int_eq(a.rc, CAIRN_TIMEOUT);
    gate_set(false);
    for (unsigned half = 1; half;) {
        half = 0;
        count_copies("", &half);
        usleep(2000);
    }
    copies_are(1);
    unsigned in = gate.in;
    ck_ok(fetch(CK_A, &r));
    ck_assert(r.ready);
    ck_assert_uint_eq(gate.in, in);
    same(r.path, CK_A);
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

/* ---- Failures -------------------------------------------------------------------------------- */

START_TEST(test_shared_fetch__an_error_is_not_remembered)
{
    struct cairn_fetch_shared_result r;
    start(true);
    reopen(0);
    plan(FAULT_READ, FAULT_FAIL, UINT_MAX, CAIRN_PERMANENT);
    ck_fails(fetch(CK_A, &r), CAIRN_PERMANENT);
    ck_assert_ptr_null(r.path);
    struct cairn_fetch_shared_stats st;
    cairn_fetch_shared_stats(k.s, &st);
    ck_assert_uint_eq(st.failed, 1);
    copies_are(0);
    backend_fault_clear(k.s->backend);
    ck_ok(fetch(CK_A, &r));
    ck_assert(!r.ready);
    same(r.path, CK_A);
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__its_time_is_its_own)
{
    struct cairn_fetch_shared_result r;
    start(true);
    reopen(0.3);
    stall();
    ck_fails(fetch(CK_A, &r), CAIRN_TRANSIENT);
    ck_assert_int_eq(err.sys_errno, ETIMEDOUT);
    copies_are(0);
    backend_fault_clear(k.s->backend);
    reopen(0);
    ck_ok(fetch(CK_A, &r));
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__a_damaged_pack_gives_nothing)
{
    struct cairn_fetch_shared_result r;
    start(_i != 0);
    kit_damage(&k, kit_first(&k, LAYOUT_PACKS), 100000);
    reopen(0);
    ck_fails(fetch(CK_A, &r), CAIRN_CORRUPT);
    copies_are(0);
    kit_stop(&k);
}
END_TEST

/* ---- Records that go or change --------------------------------------------------------------- */

START_TEST(test_shared_fetch__a_removal_drops_the_flight)
{
    struct caller a;
    start(_i != 0);
    reopen(0);
    stall();
    caller_start(&a, CK_A, -1, NULL, NULL);
    wait_until_stalled();
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    caller_end(&a);
    ck_assert_int_eq(a.rc, CAIRN_NOT_FOUND);
    reopen(0); /* joins the flight */
    copies_are(0);
    kit_stop(&k);
}
END_TEST

/* Another node acts when all is downloaded and only the last look is to come. */
static struct cairn_store *other;

static int remove_elsewhere(void)
{
    return cairn_delete(other, NULL, TP_A, &err);
}

static int publish_elsewhere(void)
{
    struct cairn_publish_options o = {
        .from = kit_path(&k, "two", NULL), .meta = META2, .meta_len = strlen(META2)};
    struct cairn_publish_result r;
    return cairn_publish(other, NULL, TP_A, &o, &r, &err);
}

/* The same meta, and another export: only by way of another generation. */
static int replace_elsewhere(void)
{
    int rc = publish_elsewhere();
    if (rc)
        return rc;
    kit_sample(&k, "three", 3);
    struct cairn_publish_options o = {
        .from = kit_path(&k, "three", NULL), .meta = META, .meta_len = strlen(META)};
    struct cairn_publish_result r;
    return cairn_publish(other, NULL, TP_A, &o, &r, &err);
}

static void elsewhere(int (*what)(void))
{
    start(in_memory);
    ck_ok(kit_publish(&k, TP_A, "one", META, NULL, &err));
    other = kit_open(&k);
    reopen(0);
    gate_start();
    gate.on_second_meta = what;
}

START_TEST(test_shared_fetch__a_removal_by_another_node_drops_it)
{
    struct cairn_fetch_shared_result r;
    in_memory = _i != 0;
    elsewhere(remove_elsewhere);
    ck_fails(fetch(TP_A, &r), CAIRN_NOT_FOUND);
    ck_assert_uint_ge(gate.metas, 2);
    copies_are(0);
    cairn_close(other);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__one_superseded_meanwhile_is_given)
{
    struct cairn_fetch_shared_result r, next;
    in_memory = _i != 0;
    elsewhere(publish_elsewhere);
    ck_ok(fetch(TP_A, &r));
    ck_assert_mem_eq(r.meta, META, r.meta_len);
    ck_ok(fetch(TP_A, &next));
    ck_assert_mem_eq(next.meta, META2, next.meta_len);
    copies_are(2);
    cairn_fetch_shared_result_release(&r);
    cairn_fetch_shared_result_release(&next);
    cairn_close(other);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__one_replaced_meanwhile_is_fetched_again)
{
    struct cairn_fetch_shared_result r;
    in_memory = _i != 0;
    elsewhere(replace_elsewhere);
    ck_ok(fetch(TP_A, &r));
    same(r.path, TP_A);
    copies_are(1);
    cairn_fetch_shared_result_release(&r);
    cairn_close(other);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__a_removal_leaves_leased_files)
{
    struct cairn_fetch_shared_result r;
    struct stat st;
    start(_i != 0);
    ck_ok(fetch(CK_A, &r));
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_assert_int_eq(stat(r.path, &st), 0);
    copies_are(1);
    struct cairn_fetch_shared_result again;
    ck_fails(fetch(CK_A, &again), CAIRN_NOT_FOUND);
    ck_ok(cairn_lease_release(k.s, r.lease, &err));
    copies_are(0);
    ck_fails(cairn_lease_release(k.s, r.lease, &err), CAIRN_NOT_FOUND);
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__a_removal_takes_unleased_files)
{
    struct cairn_fetch_shared_result r;
    start(false);
    ck_ok(fetch(CK_A, &r));
    ck_ok(cairn_lease_release(k.s, r.lease, &err));
    copies_are(1);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    copies_are(0);
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_shared_fetch__the_next_fetch_gives_the_next_generation)
{
    struct cairn_fetch_shared_result a, b, c;
    start(_i != 0);
    ck_ok(kit_publish(&k, TP_A, "one", META, NULL, &err));
    ck_ok(fetch(TP_A, &a));
    ck_ok(kit_publish(&k, TP_A, "two", META2, NULL, &err));
    ck_ok(fetch(TP_A, &b));
    ck_assert_str_ne(a.gen, b.gen);
    ck_assert_mem_eq(b.meta, META2, b.meta_len);
    same(b.path, TP_A);
    /* The first meta again, with another export: the same name, and not the same bytes. */
    kit_sample(&k, "three", 3);
    ck_ok(kit_publish(&k, TP_A, "three", META, NULL, &err));
    ck_ok(fetch(TP_A, &c));
    ck_assert_str_eq(a.gen, c.gen);
    ck_assert_str_ne(a.path, c.path);
    same(c.path, TP_A);
    /* The old ones are as they were. */
    ck_ok(kit_publish(&k, CK_B, "one", META, NULL, &err));
    same(a.path, CK_B);
    cairn_fetch_shared_result_release(&a);
    cairn_fetch_shared_result_release(&b);
    cairn_fetch_shared_result_release(&c);
    kit_stop(&k);
}
END_TEST

/* ---- The end --------------------------------------------------------------------------------- */

START_TEST(test_shared_fetch__a_store_closes_while_flights_run)
{
    struct caller a;
    start(_i != 0);
    cairn_close(k.s);
    k.s = kit_open(&k); /* with what it has open after this alone */
    size_t descriptors = kit_descriptors();
    reopen(0);
    stall();
    caller_start(&a, CK_A, 0.1, NULL, NULL);
    wait_until_stalled();
    caller_end(&a);
    ck_assert_int_eq(a.rc, CAIRN_TIMEOUT);
    int64_t begun = clock_monotonic();
    cairn_close(k.s);
    ck_assert_int_lt(clock_monotonic() - begun, 20 * NS_PER_S);
    k.s = kit_open(&k);
    copies_are(0);
    ck_assert_uint_eq(kit_descriptors(), descriptors);
    kit_stop(&k);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shared_fetch");
    TCase *tc = tcase_create("shared_fetch");
    suite_add_tcase(s, tc);
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, test_shared_fetch__gives_files_meta_and_a_lease, 0, 2);
    tcase_add_test(tc, test_shared_fetch__refuses_what_cannot_be);
    tcase_add_test(tc, test_shared_fetch__a_spent_deadline_sends_nothing);
    tcase_add_loop_test(tc, test_shared_fetch__many_callers_one_download, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__callers_leave_when_they_must, 0, 2);
    tcase_add_test(tc, test_shared_fetch__an_error_is_not_remembered);
    tcase_add_test(tc, test_shared_fetch__its_time_is_its_own);
    tcase_add_loop_test(tc, test_shared_fetch__a_damaged_pack_gives_nothing, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__a_removal_drops_the_flight, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__a_removal_by_another_node_drops_it, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__one_superseded_meanwhile_is_given, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__one_replaced_meanwhile_is_fetched_again, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__a_flight_without_callers_lands, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__a_removal_leaves_leased_files, 0, 2);
    tcase_add_test(tc, test_shared_fetch__a_removal_takes_unleased_files);
    tcase_add_loop_test(tc, test_shared_fetch__the_next_fetch_gives_the_next_generation, 0, 2);
    tcase_add_loop_test(tc, test_shared_fetch__a_store_closes_while_flights_run, 0, 2);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
