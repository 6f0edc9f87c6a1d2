/* The time bounds of a commit, on a clock that the test moves: clock_boottime is wrapped by the
 * linker (see meson.build). */
#include "base/clock.h"
#include "store/commit.h"
#include "store/relocate.h"
#include "tests/lib/kit.h"

#include <stdio.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;
static _Atomic int64_t skew; /* the store has threads that read the clock */

int64_t __real_clock_boottime(void);
int64_t __wrap_clock_boottime(void);
int64_t __wrap_clock_boottime(void)
{
    return __real_clock_boottime() + skew;
}

/* What happens before each listing of closed packs and each put of a manifest: time passes. */
static int64_t at_check[4], at_put[4];
/* Where nothing locks, the packs are looked at once before the manifest is written, too. */
static unsigned checks, writes, extra;

static bool lists_closed(const char *prefix)
{
    return strcmp(prefix, LAYOUT_CLOSED) == 0 || strcmp(prefix, LAYOUT_GC) == 0;
}

static int on_list(void *ctx, struct backend *b, const char *prefix, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (lists_closed(prefix)) {
        skew += checks >= extra && checks < extra + 4 ? at_check[checks - extra] : 0;
        checks++;
    }
    return CAIRN_OK;
}

static int on_put(void *ctx, struct backend *b, const char *key, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (strstr(key, "/export-")) {
        skew += writes < 4 ? at_put[writes] : 0;
        writes++;
    }
    return CAIRN_OK;
}

static void start(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem});
    kit_sample(&k, "one", 1);
    memset(at_check, 0, sizeof(at_check));
    memset(at_put, 0, sizeof(at_put));
    skew = 0;
    checks = writes = 0;
    extra = mem;
    kit_hook(&k, &(struct kit_hooks){.before_list = on_list, .before_put = on_put});
}

static void end(unsigned want_checks, unsigned want_puts)
{
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert_uint_eq(checks, want_checks + extra);
    ck_assert_uint_eq(writes, want_puts);
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}

START_TEST(test_commit__a_quick_one_writes_and_checks_once)
{
    start(false);
    end(1, 1);
}
END_TEST

START_TEST(test_commit__a_check_that_took_more_than_ten_minutes_is_made_again)
{
    start(false);
    at_check[0] = COMMIT_CHECK_MAX_NS + NS_PER_S;
    at_check[1] = COMMIT_CHECK_MAX_NS + NS_PER_S;
    end(3, 1);
}
END_TEST

START_TEST(test_commit__a_check_that_took_less_counts)
{
    start(true);
    at_check[0] = COMMIT_CHECK_MAX_NS - 60 * NS_PER_S;
    end(1, 1);
}
END_TEST

/* The slow check makes the manifest old: it is written again before the next check. */
START_TEST(test_commit__a_manifest_older_than_an_hour_is_written_again)
{
    start(true);
    at_check[0] = COMMIT_MANIFEST_MAX_NS + NS_PER_S;
    end(2, 2);
}
END_TEST

/* The store may have stamped it at any time of a slow put. */
START_TEST(test_commit__a_manifest_whose_writing_took_an_hour_is_written_again)
{
    start(false);
    at_put[0] = COMMIT_MANIFEST_MAX_NS + NS_PER_S;
    end(1, 2);
}
END_TEST

static struct cairn_cancel *cancel;
static int cancel_late(void *ctx, struct backend *b, const char *prefix, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (lists_closed(prefix)) {
        skew += COMMIT_CHECK_MAX_NS + NS_PER_S;
        if (++checks == 20)
            cairn_cancel_fire(cancel);
    }
    return CAIRN_OK;
}

START_TEST(test_commit__a_check_that_is_never_quick_enough_ends_with_the_op)
{
    start(true);
    kit_hook(&k, &(struct kit_hooks){.before_list = cancel_late});
    ck_ok(cairn_cancel_new(&cancel, &err));
    struct cairn_op op;
    cairn_op_init(&op, -1, cancel);
    struct cairn_publish_options o = {.from = kit_path(&k, "one", NULL)};
    ck_fails(cairn_publish(k.s, &op, CK_A, &o, &k.result, &err), CAIRN_CANCELLED);
    ck_assert_uint_eq(checks, 20);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    cairn_cancel_free(cancel);
    kit_stop(&k);
}
END_TEST

/* ---- Where nothing locks: what the first check saw holds for ten minutes ---- */

static unsigned stats;
static int64_t at_commit;
static int takes;
static char taken[KEY_MAX];

static int slow_commit(void *ctx, struct backend *b, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    skew += at_commit;
    return CAIRN_OK;
}

static int take_manifest(void *ctx, struct backend *b, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (takes > 0) {
        takes--;
        kit_remove(&k, taken);
    }
    return CAIRN_OK;
}

/* A collector may have taken the manifest of a writer whose commit came late. */
START_TEST(test_commit__a_commit_that_came_late_is_looked_after)
{
    kit_start(&k, &(struct kit_options){.mem = true});
    kit_sample(&k, "one", 1);
    kit_hook(&k, &(struct kit_hooks){.before_commit = slow_commit, .after_commit = take_manifest});
    kit_export_key(CK_A, "1", taken);
    at_commit = COMMIT_CHECK_MAX_NS + NS_PER_S;
    takes = 2;
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_assert_int_eq(takes, 0);
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}
END_TEST

/* Before the put: a first check that took too long is made again. */
START_TEST(test_commit__a_first_check_that_took_too_long_is_made_again)
{
    start(true);
    extra = 0; /* at_check from the first one on */
    at_check[0] = COMMIT_CHECK_MAX_NS + NS_PER_S;
    end(3, 1);
}
END_TEST

/* A pack of the parent is asked for once, one just made not at all. */
START_TEST(test_commit__packs_are_asked_for_once)
{
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true});
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    skew += COMMIT_CHECK_MAX_NS + NS_PER_S;
    kit_fill(&k, "one", "memory", 70000, 0, 9);
    backend_fault_clear(k.s->backend);
    ck_ok(kit_publish(&k, CK_B, "one", "2", CK_A, &err));
    stats = backend_fault_calls(k.s->backend, FAULT_STAT);
    ck_assert_uint_eq(stats, 1);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_LIST), 2);
    /* The new record's meta is looked for; the parent is not asked for. */
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_GET), 1);
    kit_same(&k, CK_B, "one");
    /* So is a removed record's tombstone, which a listing shows, and only if there is one. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(kit_publish(&k, CK_A, "one", "3", NULL, &err));
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
    kit_stop(&k);
}
END_TEST

/* A collector has moved the parent's chunks since this host published it. */
START_TEST(test_commit__a_parent_that_was_moved_is_followed)
{
    kit_start(&k, &(struct kit_options){.mem = true});
    kit_fill(&k, "one", "memory", 2000000, 0, 9);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    char pack[KEY_MAX], closed[KEY_MAX], key[KEY_MAX];
    snprintf(pack, sizeof(pack), "%s", kit_first(&k, LAYOUT_PACKS));
    /* The same chunks in another pack, and the manifest that names it. */
    CLEANUP_PACK_SET struct pack_set old = {0};
    struct manifest *m = NULL, *moved = NULL;
    char gen[GEN_TEXT];
    size_t len;
    ck_ok(gen_of_meta("1", 1, gen, &err));
    ck_ok(store_load_manifest(k.s, NULL, CK_A, gen, &m, &err));
    ck_ok(pack_set_add(&old, manifest_pack(m, 0), &err));
    ck_ok(relocate_chunks(k.s, NULL, m, &old, &moved, &err));
    const uint8_t *data = manifest_bytes(moved, &len);
    kit_export_key(CK_A, "1", key);
    kit_put(&k, key, data, len);
    kit_closed_key(pack, closed);
    kit_put(&k, closed, "", 0);
    manifest_free(m);
    manifest_free(moved);
    kit_fill(&k, "one", "memory", 65536, 0, 10);
    ck_ok(kit_publish(&k, CK_B, "one", "2", CK_A, &err));
    kit_same(&k, CK_B, "one");
    /* One chunk is new, twice at the most; the rest was found where it went. */
    ck_assert_uint_le(k.result.new_chunks, 2);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(commit, test_commit__a_quick_one_writes_and_checks_once,
             test_commit__a_check_that_took_more_than_ten_minutes_is_made_again,
             test_commit__a_check_that_took_less_counts,
             test_commit__a_manifest_older_than_an_hour_is_written_again,
             test_commit__a_manifest_whose_writing_took_an_hour_is_written_again,
             test_commit__a_check_that_is_never_quick_enough_ends_with_the_op,
             test_commit__a_commit_that_came_late_is_looked_after,
             test_commit__a_first_check_that_took_too_long_is_made_again,
             test_commit__packs_are_asked_for_once,
             test_commit__a_parent_that_was_moved_is_followed)
