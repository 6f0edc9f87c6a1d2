/* Shared fetches from a bucket whose server misbehaves: requests are counted where they arrive. */
#include "base/util.h"
#include "store/gens.h"
#include "store/store.h"
#include "tests/s3/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define SIZE (3 << 20)

static struct cairn_error err;
static struct cairn_store *s;
static char state[256];
static uint8_t bytes[SIZE];

static bool patient; /* with a server that takes its time */
static bool counts;  /* each fetch downloads all: no chunks are kept */

static void open_store(double budget_seconds)
{
    struct s3_config c = store_config();
    if (patient)
        c.stall_ns = c.answer_ns = 20 * NS_PER_S;
    struct backend *b = NULL;
    ck_ok(backend_s3_open(&c, &b, &err));
    struct cairn_config config = {.state = state,
                                  .workers = 4,
                                  .fetch_budget_seconds = budget_seconds,
                                  .cache_bytes = counts ? -1 : 0};
    s = NULL;
    ck_ok(store_new(b, &config, NULL, &s, &err));
}

static void publish(const char *id, uint64_t seed)
{
    char folder[300], path[320];
    snprintf(folder, sizeof(folder), "%.200s/%s", testing_tmpdir(), id);
    snprintf(path, sizeof(path), "%s/memory", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    testing_fill(bytes, SIZE, seed);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(util_pwrite_full(fd, bytes, SIZE, 0), SIZE);
    struct cairn_publish_options o = {.from = folder, .meta = id, .meta_len = strlen(id)};
    struct cairn_publish_result r;
    ck_ok(cairn_publish(s, NULL, id, &o, &r, &err));
}

/* A server with two records, and a store with nothing of them here. */
static void start(void)
{
    server_start();
    snprintf(state, sizeof(state), "%.200s/state", testing_tmpdir());
    struct s3_config c = store_config();
    struct backend *b = NULL;
    ck_ok(backend_s3_open(&c, &b, &err));
    ck_ok(store_format_init(b, NULL, NULL, &err));
    backend_free(b);
    open_store(0);
    publish(CK_A, 1);
    publish(CK_B, 2);
    cairn_close(s);
    snprintf(state, sizeof(state), "%.200s/state", testing_tmpdir());
    open_store(0);
    s3fs_reset_stats(fs);
}

static void stop(void)
{
    cairn_close(s);
    s3fs_stop(fs);
    fs = NULL;
}

static void same(const char *path, uint64_t seed)
{
    static uint8_t is[SIZE];
    char file[4096];
    snprintf(file, sizeof(file), "%.4000s/memory", path);
    CLEANUP_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(util_pread_full(fd, is, SIZE, 0), SIZE);
    testing_fill(bytes, SIZE, seed);
    ck_assert(memcmp(is, bytes, SIZE) == 0);
}

static int fetch(const char *id, double seconds, struct cairn_fetch_shared_result *r)
{
    struct cairn_op op;
    cairn_op_init(&op, seconds, NULL);
    return cairn_fetch_shared(s, &op, id, NULL, r, &err);
}

/* ".tmp-…" folders. */
static unsigned half_made(void)
{
    char path[400];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/cache/gens", s->state);
    CLEANUP_DIR DIR *dir = opendir(path);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        n += strncmp(d->d_name, ".tmp-", 5) == 0;
    return n;
}

#define CALLERS 50

struct caller {
    pthread_t thread;
    struct cairn_op op;
    const char *id;
    struct cairn_fetch_shared_result result;
    struct cairn_error err;
    int rc;
    int64_t ended;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    c->rc = cairn_fetch_shared(s, &c->op, c->id, NULL, &c->result, &c->err);
    c->ended = clock_monotonic();
    return NULL;
}

static void caller_start(struct caller *c, const char *id, double seconds,
                         struct cairn_cancel *cancel)
{
    *c = (struct caller){.id = id};
    cairn_op_init(&c->op, seconds, cancel);
    ck_assert_int_eq(pthread_create(&c->thread, NULL, call, c), 0);
}

static void caller_end(struct caller *c)
{
    ck_assert_int_eq(pthread_join(c->thread, NULL), 0);
}

/* The first answer takes long enough for all to come. */
START_TEST(test_s3_shared__fifty_callers_cost_what_one_costs)
{
    static struct caller callers[CALLERS];
    struct cairn_fetch_shared_result one;
    patient = counts = true;
    start();
    ck_ok(fetch(CK_B, 60, &one));
    same(one.path, 2);
    struct s3fs_stats want = stats();
    cairn_fetch_shared_result_release(&one);
    cairn_close(s);
    snprintf(state, sizeof(state), "%.200s/state", testing_tmpdir());
    open_store(0);
    s3fs_reset_stats(fs);
    rule("GET key=meta.json times=1 do delay=1500");
    for (unsigned i = 0; i < CALLERS; i++)
        caller_start(&callers[i], CK_B, 120, NULL);
    for (unsigned i = 0; i < CALLERS; i++) {
        caller_end(&callers[i]);
        ck_assert_msg(callers[i].rc == CAIRN_OK, "%s", callers[i].err.message);
        ck_assert_str_eq(callers[i].result.path, callers[0].result.path);
    }
    same(callers[0].result.path, 2);
    struct s3fs_stats is = stats();
    ck_assert_uint_eq(is.get, want.get);
    ck_assert_uint_eq(is.requests, want.requests);
    /* One more, later: what the record is now, and not a byte of a pack. */
    s3fs_reset_stats(fs);
    ck_ok(fetch(CK_B, 60, &one));
    ck_assert(one.ready);
    ck_assert_uint_eq(stats().requests, 2);
    cairn_fetch_shared_result_release(&one);
    for (unsigned i = 0; i < CALLERS; i++)
        cairn_fetch_shared_result_release(&callers[i].result);
    stop();
}
END_TEST

START_TEST(test_s3_shared__a_spent_deadline_sends_nothing)
{
    struct cairn_fetch_shared_result r;
    start();
    ck_fails(fetch(CK_A, 0, &r), CAIRN_TIMEOUT);
    ck_assert_uint_eq(stats().requests, 0);
    stop();
}
END_TEST

/* The server takes the connection and says nothing, to whatever is asked of the packs: each caller
 * stays for its own time and no longer, the first one's leaving harms nobody, and when the server
 * is itself again those who waited have their files. */
START_TEST(test_s3_shared__callers_of_a_black_hole_leave_in_time)
{
    static struct caller first, late, others[4];
    struct cairn_cancel *cancel = NULL;
    start();
    rule("GET key=packs/ do hole");
    ck_ok(cairn_cancel_new(&cancel, &err));
    int64_t begun = clock_monotonic();
    caller_start(&first, CK_A, -1, cancel);
    caller_start(&late, CK_A, 0.3, NULL);
    for (unsigned i = 0; i < 4; i++)
        caller_start(&others[i], CK_A, 60, NULL);
    caller_end(&late);
    ck_assert_int_eq(late.rc, CAIRN_TIMEOUT);
    ck_assert_int_lt(late.ended - begun, 5 * NS_PER_S);
    int64_t fired = clock_monotonic();
    cairn_cancel_fire(cancel);
    caller_end(&first);
    ck_assert_int_eq(first.rc, CAIRN_CANCELLED);
    ck_assert_int_lt(first.ended - fired, 5 * NS_PER_S);
    s3fs_clear(fs);
    for (unsigned i = 0; i < 4; i++) {
        caller_end(&others[i]);
        ck_assert_msg(others[i].rc == CAIRN_OK, "%s", others[i].err.message);
        cairn_fetch_shared_result_release(&others[i].result);
    }
    cairn_cancel_free(cancel);
    stop();
}
END_TEST

/* All have left, the answers stop half-way, the connection is replaced: it lands all the same. */
START_TEST(test_s3_shared__a_flight_goes_on_without_callers)
{
    struct cairn_fetch_shared_result r;
    start();
    rule("GET key=packs/ times=1 do stall=5000");
    ck_fails(fetch(CK_A, 0.2, &r), CAIRN_TIMEOUT);
    ck_assert_uint_eq(half_made(), 1);
    while (half_made())
        usleep(2000);
    s3fs_reset_stats(fs);
    ck_ok(fetch(CK_A, 60, &r));
    ck_assert(r.ready);
    ck_assert_uint_eq(stats().requests, 2);
    same(r.path, 1);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

START_TEST(test_s3_shared__a_failure_reaches_all_and_is_forgotten)
{
    static struct caller callers[8];
    struct cairn_fetch_shared_result r;
    patient = true;
    start();
    rule("GET key=meta.json times=1 do delay=1500");
    rule("GET key=packs/ do status=403 code=AccessDenied");
    for (unsigned i = 0; i < 8; i++)
        caller_start(&callers[i], CK_A, 60, NULL);
    for (unsigned i = 0; i < 8; i++) {
        caller_end(&callers[i]);
        ck_assert_int_eq(callers[i].rc, CAIRN_PERMANENT);
        ck_assert_ptr_nonnull(strstr(callers[i].err.message, "packs/"));
    }
    ck_assert_uint_eq(half_made(), 0);
    s3fs_clear(fs);
    ck_ok(fetch(CK_A, 60, &r));
    same(r.path, 1);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

/* Its own time is over; so is nobody else's. */
START_TEST(test_s3_shared__a_flight_has_its_own_time)
{
    struct cairn_fetch_shared_result r;
    start();
    cairn_close(s);
    open_store(1);
    rule("GET key=packs/ do hole");
    ck_fails(fetch(CK_A, -1, &r), CAIRN_TRANSIENT);
    ck_assert_uint_eq(half_made(), 0);
    s3fs_clear(fs);
    ck_ok(fetch(CK_A, 60, &r));
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

START_TEST(test_s3_shared__a_store_closes_on_a_black_hole)
{
    struct cairn_fetch_shared_result r;
    start();
    rule("GET key=packs/ do hole");
    ck_fails(fetch(CK_A, 0.2, &r), CAIRN_TIMEOUT);
    ck_fails(fetch(CK_B, 0.2, &r), CAIRN_TIMEOUT);
    rule("GET key=meta.json do hole");
    ck_fails(fetch("ck_00000000000000cc", 0.2, &r), CAIRN_TIMEOUT);
    int64_t begun = clock_monotonic();
    cairn_close(s);
    ck_assert_int_lt(clock_monotonic() - begun, 10 * NS_PER_S);
    s3fs_clear(fs);
    open_store(0);
    ck_assert_uint_eq(half_made(), 0);
    stop();
}
END_TEST

START_TEST(test_s3_shared__a_removal_ends_a_flight_in_a_black_hole)
{
    static struct caller a;
    struct cairn_fetch_shared_result r;
    start();
    rule("GET key=packs/ do hole");
    caller_start(&a, CK_A, -1, NULL);
    while (!half_made())
        usleep(2000);
    ck_ok(cairn_delete(s, NULL, CK_A, &err));
    caller_end(&a);
    ck_assert_int_eq(a.rc, CAIRN_NOT_FOUND);
    s3fs_clear(fs);
    ck_fails(fetch(CK_A, 60, &r), CAIRN_NOT_FOUND);
    while (half_made())
        usleep(2000);
    stop();
}
END_TEST

TESTING_MAIN(s3_shared, test_s3_shared__fifty_callers_cost_what_one_costs,
             test_s3_shared__a_spent_deadline_sends_nothing,
             test_s3_shared__callers_of_a_black_hole_leave_in_time,
             test_s3_shared__a_flight_goes_on_without_callers,
             test_s3_shared__a_failure_reaches_all_and_is_forgotten,
             test_s3_shared__a_flight_has_its_own_time,
             test_s3_shared__a_store_closes_on_a_black_hole,
             test_s3_shared__a_removal_ends_a_flight_in_a_black_hole)
