/* Every call of the backend fails once, in every operation and every way: the outcome has the right
 * class, nothing half-done shows, nothing leaks, and the same operation run again succeeds. */
#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct kit k;

struct way {
    enum fault_kind kind;
    int error_class;
};

static const struct way ways[] = {{FAULT_FAIL, CAIRN_TRANSIENT},
#ifndef __SANITIZE_THREAD__ /* to threads, one class is as good as another */
                                  {FAULT_FAIL, CAIRN_PERMANENT}, {FAULT_FAIL, CAIRN_NO_SPACE},
                                  {FAULT_FAIL, CAIRN_TIMEOUT},   {FAULT_LOST, CAIRN_PERMANENT},
#endif
                                  {FAULT_LOST, CAIRN_TRANSIENT}, {FAULT_TEAR, CAIRN_TRANSIENT}};

/* One operation. run is called with the fault planned, again without; check looks after each. */
struct operation {
    void (*prepare)(unsigned n);
    int (*run)(void);
    /* fired: the fault happened; rc: what run said. Returns whether that is right. */
    bool (*check)(int rc, bool fired, int error_class);
};

static unsigned calls_at_all;
static uint64_t exports; /* no two are equal */
/* A lost answer is none where what was asked for is not there: not_found comes all the same. And a
 * read of many chunks that failed is made again chunk by chunk. */
static bool answer_came;
static unsigned reads, reads_without_fault;

static void nothing_left(void)
{
    if (k.opt.mem)
        ck_assert_uint_eq(backend_mem_uploads(k.shared), 0);
    else
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_TMP), 0);
}

static void sweep_one(const struct operation *o, const struct way *way)
{
    struct backend *b = k.s->backend;
    bool fired = true;
    o->prepare(0);
    backend_fault_clear(b);
    ck_ok(o->run());
    reads_without_fault = backend_fault_calls(b, FAULT_READ);
    for (unsigned nth = 1; fired; nth++, calls_at_all++) {
        ck_assert_uint_lt(nth, 500);
        answer_came = way->kind == FAULT_LOST;
        backend_fault_clear(b);
        o->prepare(nth);
        struct fault_plan p = {
            .op = FAULT_ANY, .kind = way->kind, .nth = nth, .error_class = way->error_class};
        backend_fault_clear(b);
        ck_ok(backend_fault_add(b, &p, &err));
        err = (struct cairn_error){0};
        int rc = o->run();
        fired = backend_fault_fired(b) > 0;
        reads = backend_fault_calls(b, FAULT_READ);
        backend_fault_clear(b);
        if (rc) {
            ck_assert_int_eq(err.error_class, rc);
            ck_assert(err.message[0]);
            ck_assert_msg(rc == way->error_class, "call %u: %s: %s", nth, cairn_class_name(rc),
                          err.message);
        }
        ck_assert(fired || !rc);
        nothing_left();
        ck_assert_msg(o->check(rc, fired, way->error_class), "call %u, %s: %s: %s", nth,
                      cairn_class_name(way->error_class), cairn_class_name(rc), err.message);
        ck_ok(o->run());
        ck_assert(o->check(CAIRN_OK, false, 0));
        nothing_left();
    }
}

static void start(bool mem)
{
    /* Thousands of fsyncs, of which nothing here depends. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    kit_start(&k, &(struct kit_options){.mem = mem, .faulty = true, .chunk_size = 4096});
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", "a", NULL, &err));
}

static void sweep(const struct operation *o)
{
    for (int mem = 0; mem < 2; mem++) {
        size_t before = kit_descriptors();
        start(mem);
        calls_at_all = 0;
        for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
            /* A torn pack, which nobody refers to, is damage that verify rightly tells. */
            if (ways[i].kind == FAULT_TEAR)
                kit_verify(&k);
            sweep_one(o, &ways[i]);
        }
        ck_assert_uint_gt(calls_at_all, ARRAY_SIZE(ways));
        kit_same(&k, CK_A, "one");
        kit_stop(&k);
        ck_assert_uint_eq(kit_descriptors(), before);
    }
}

/* ---- Publish ---- */

static void prepare_publish(unsigned n)
{
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
    kit_sample(&k, "two", 1);
    (void)n;
    kit_fill(&k, "two", "own", 20000, 0, 1000 + exports++); /* a pack of its own */
}

static int run_publish(void)
{
    return kit_publish(&k, CK_B, "two", "b", CK_A, &err);
}

/* Visible and whole, or not at all; success is visible. */
static bool is_whole_or_not(const char *id, const char *name, int rc)
{
    int opens = kit_opens(&k, id);
    if (opens == CAIRN_OK)
        kit_same(&k, id, name);
    return opens == CAIRN_OK || (rc && opens == CAIRN_NOT_FOUND);
}

static bool right_publish(int rc, bool fired, int error_class)
{
    (void)fired;
    (void)error_class;
    return is_whole_or_not(CK_B, "two", rc);
}

START_TEST(test_store_faults__publish)
{
    sweep(&(struct operation){prepare_publish, run_publish, right_publish});
}
END_TEST

static void prepare_republish(unsigned n)
{
    kit_sample(&k, "old", 1);
    kit_sample(&k, "two", 1);
    (void)n;
    kit_fill(&k, "two", "own", 20000, 0, 1000 + exports++);
    ck_ok(cairn_delete(k.s, NULL, TP_A, &err));
    ck_ok(kit_publish(&k, TP_A, "old", "old", NULL, &err));
}

static int run_republish(void)
{
    return kit_publish(&k, TP_A, "two", "new", NULL, &err);
}

/* The one before or the new one, whole, never neither. */
static bool right_republish(int rc, bool fired, int error_class)
{
    (void)fired;
    (void)error_class;
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    if (cairn_record_open(k.s, NULL, TP_A, &r, &err))
        return false;
    cairn_record_info(r, &info);
    bool new = memcmp(info.meta, "new", 3) == 0;
    kit_same_folder(r, kit_path(&k, new ? "two" : "old", NULL));
    cairn_record_close(r);
    return new || rc;
}

START_TEST(test_store_faults__republish)
{
    sweep(&(struct operation){prepare_republish, run_republish, right_republish});
}
END_TEST

static void prepare_compare(unsigned n)
{
    (void)n;
}

static int run_compare(void)
{
    return kit_publish(&k, CK_A, "one", "a", NULL, &err);
}

static bool right_compare(int rc, bool fired, int error_class)
{
    (void)rc;
    (void)fired;
    (void)error_class;
    kit_same(&k, CK_A, "one");
    return rc || k.result.unchanged;
}

START_TEST(test_store_faults__publish_what_is_published)
{
    sweep(&(struct operation){prepare_compare, run_compare, right_compare});
}
END_TEST

/* ---- Fork ---- */

static void prepare_fork(unsigned n)
{
    (void)n;
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
}

static int run_fork(void)
{
    return kit_fork(&k, CK_A, CK_B, "b", &err);
}

static bool right_fork(int rc, bool fired, int error_class)
{
    (void)fired;
    (void)error_class;
    return is_whole_or_not(CK_B, "one", rc);
}

START_TEST(test_store_faults__fork)
{
    sweep(&(struct operation){prepare_fork, run_fork, right_fork});
}
END_TEST

/* The source's pack is closed: chunks are copied to another. */
static void prepare_fork_closed(unsigned n)
{
    const char *name = "src";
    char key[KEY_MAX], pack[KEY_MAX];
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_C, &err));
    while (kit_first(&k, LAYOUT_CLOSED))
        kit_remove(&k, kit_first(&k, LAYOUT_CLOSED));
    (void)n;
    kit_fill(&k, name, "f", 30000, 0, 1000 + exports++);
    ck_ok(kit_publish(&k, CK_C, name, "c", NULL, &err));
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, CK_C, &meta, gen, &m, &err));
    layout_pack(manifest_pack(m, 0), pack);
    manifest_free(m);
    kit_closed_key(pack, key);
    kit_put(&k, key, "", 0);
}

static int run_fork_closed(void)
{
    return kit_fork(&k, CK_C, CK_B, "b", &err);
}

static bool right_fork_closed(int rc, bool fired, int error_class)
{
    (void)fired;
    (void)error_class;
    return is_whole_or_not(CK_B, "src", rc);
}

START_TEST(test_store_faults__fork_of_closed_packs)
{
    sweep(&(struct operation){prepare_fork_closed, run_fork_closed, right_fork_closed});
}
END_TEST

/* ---- Reading ---- */

static void prepare_fetch(unsigned n)
{
    (void)n;
    char cmd[600];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", kit_path(&k, "to", NULL));
    ck_assert_int_eq(system(cmd), 0);
    ck_assert_int_eq(mkdir(kit_path(&k, "to", NULL), 0700), 0);
}

static int run_fetch(void)
{
    struct cairn_record *r = NULL;
    struct cairn_fetch_result result;
    int rc = cairn_record_open(k.s, NULL, CK_A, &r, &err);
    if (!rc)
        rc = cairn_record_fetch(r, NULL, kit_path(&k, "to", "out"), NULL, &result, &err);
    cairn_record_close(r);
    return rc == CAIRN_BUSY ? CAIRN_OK : rc; /* there since the first time */
}

static bool right_fetch(int rc, bool fired, int error_class)
{
    (void)fired;
    (void)error_class;
    size_t n = 0;
    CLEANUP_DIR DIR *dir = opendir(kit_path(&k, "to", NULL));
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    if (rc)
        return n == 2;
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    kit_same_folder(r, kit_path(&k, "to", "out"));
    cairn_record_close(r);
    return n == 3;
}

START_TEST(test_store_faults__fetch)
{
    sweep(&(struct operation){prepare_fetch, run_fetch, right_fetch});
}
END_TEST

static struct cairn_verify_result verified;

static int run_verify(void)
{
    struct cairn_verify_options o = {.repair_index = true};
    return cairn_verify(k.s, NULL, &o, &verified, &err);
}

/* A fault is told, by the class or as a finding: a check that could not check is no success. */
static bool right_verify(int rc, bool fired, int error_class)
{
    (void)error_class;
    bool healed = answer_came || reads > reads_without_fault;
    return rc ? fired : verified.errors == 0 ? !fired || healed : fired;
}

START_TEST(test_store_faults__verify)
{
    sweep(&(struct operation){prepare_compare, run_verify, right_verify});
}
END_TEST

static unsigned listed, bad_ones;

static int see(void *ctx, const struct cairn_list_entry *e)
{
    (void)ctx;
    listed++;
    bad_ones += e->error_class != CAIRN_OK;
    return 0;
}

static int run_list(void)
{
    listed = bad_ones = 0;
    return cairn_list(k.s, NULL, NULL, see, NULL, &err);
}

static bool right_list(int rc, bool fired, int error_class)
{
    (void)error_class;
    if (rc)
        return fired;
    return listed == 1 && fired == (bad_ones == 1);
}

START_TEST(test_store_faults__list)
{
    sweep(&(struct operation){prepare_compare, run_list, right_list});
}
END_TEST

static struct cairn_stats stats;

static int run_stats(void)
{
    return cairn_stats(k.s, NULL, &stats, &err);
}

static bool right_stats(int rc, bool fired, int error_class)
{
    (void)error_class;
    return rc ? fired : stats.records == 1 && stats.packs == 1 && !fired;
}

START_TEST(test_store_faults__stats)
{
    sweep(&(struct operation){prepare_compare, run_stats, right_stats});
}
END_TEST

static int run_hold(void)
{
    return cairn_hold(k.s, NULL, CK_A, &err);
}

static bool right_hold(int rc, bool fired, int error_class)
{
    (void)error_class;
    kit_same(&k, CK_A, "one");
    return rc ? fired : kit_objects(&k, LAYOUT_HOLDS) == 1 && (!fired || answer_came);
}

START_TEST(test_store_faults__hold)
{
    sweep(&(struct operation){prepare_compare, run_hold, right_hold});
}
END_TEST

/* A store cannot be opened: the class says why, and nothing leaks. */
START_TEST(test_store_faults__open)
{
    start(true);
    static const int classes[] = {CAIRN_TRANSIENT, CAIRN_PERMANENT, CAIRN_NOT_FOUND};
    size_t before = kit_descriptors();
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
        struct backend *b = NULL, *f = NULL;
        ck_ok(backend_mem_share(k.shared, &b, &err));
        ck_ok(backend_fault_new(b, &f, &err));
        struct fault_plan p = {.op = FAULT_GET, .nth = 1, .error_class = classes[i]};
        ck_ok(backend_fault_add(f, &p, &err));
        struct cairn_config config = {.workers = 1};
        struct cairn_store *s = NULL;
        ck_fails(store_new(f, &config, NULL, &s, &err), classes[i]);
        ck_assert_ptr_null(s);
    }
    ck_assert_uint_eq(kit_descriptors(), before);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(store_faults, test_store_faults__publish, test_store_faults__republish,
             test_store_faults__publish_what_is_published, test_store_faults__fork,
             test_store_faults__fork_of_closed_packs, test_store_faults__fetch,
             test_store_faults__verify, test_store_faults__list, test_store_faults__stats,
             test_store_faults__hold, test_store_faults__open)
