/* Publishing while something else happens: the staging changes, others publish too, a collector
 * closes, deletes and fences. Each at a known point. */
#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)

static struct cairn_error err;
static struct kit k;

/* ---- The staging changes --------------------------------------------------------------------- */

enum change { GROWS, SHRINKS, REWRITTEN, VANISHES, REPLACED, LATER_GROWS, LATER_VANISHES, CHANGES };

struct changer {
    enum change what;
    bool done;
};

/* Called for the first time when one batch of "a" is stored and many are not. */
static void change(void *ctx, uint64_t done, uint64_t total)
{
    struct changer *c = ctx;
    (void)done;
    (void)total;
    if (c->done)
        return;
    c->done = true;
    switch (c->what) {
    case GROWS:
        kit_truncate(&k, "one", "a", 33 * MIB);
        break;
    case SHRINKS:
        kit_truncate(&k, "one", "a", 31 * MIB);
        break;
    case REWRITTEN:
        kit_fill(&k, "one", "a", 100, 32 * MIB - 100, 999);
        break;
    case VANISHES:
        ck_assert_int_eq(unlink(kit_path(&k, "one", "a")), 0);
        break;
    case REPLACED:
        kit_fill(&k, "one", "new", 32 * MIB, 0, 2);
        ck_assert_int_eq(rename(kit_path(&k, "one", "new"), kit_path(&k, "one", "a")), 0);
        break;
    case LATER_GROWS:
        kit_truncate(&k, "one", "z/z", 200);
        break;
    case LATER_VANISHES:
        ck_assert_int_eq(unlink(kit_path(&k, "one", "z/z")), 0);
        break;
    case CHANGES:
        break;
    }
}

static void stage_for_change(void)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    kit_truncate(&k, "one", "a", 0);
    kit_fill(&k, "one", "a", 32 * MIB, 0, 1);
    kit_truncate(&k, "one", "z/z", 0);
    kit_fill(&k, "one", "z/z", 100, 0, 2);
    ck_assert_int_eq(utimensat(AT_FDCWD, kit_path(&k, "one", "a"), old, 0), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, kit_path(&k, "one", "z/z"), old, 0), 0);
}

START_TEST(test_publish_races__an_export_that_changes_is_busy_and_invisible)
{
    kit_start(&k, &(struct kit_options){.workers = 1});
    for (enum change what = 0; what < CHANGES; what++) {
        stage_for_change();
        struct changer c = {.what = what};
        struct cairn_publish_options o = {.from = kit_path(&k, "one", NULL),
                                          .progress = {change, &c}};
        ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_BUSY);
        ck_assert(c.done);
        ck_assert_msg(strstr(err.message, what < LATER_GROWS ? "export: a " : "export: z/z "), "%s",
                      err.message);
        ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_RECORDS), 0);
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_TMP), 0);
    }
    /* As it is now, it can be published. */
    stage_for_change();
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_same(&k, CK_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

static void cancel_it(void *ctx, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    cairn_cancel_fire(ctx);
}

START_TEST(test_publish_races__a_cancelled_publish_leaves_nothing_and_can_be_repeated)
{
    kit_start(&k, &(struct kit_options){.workers = 1});
    stage_for_change();
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    struct cairn_op op;
    cairn_op_init(&op, -1, cancel);
    struct cairn_publish_options o = {.from = kit_path(&k, "one", NULL),
                                      .progress = {cancel_it, cancel}};
    ck_fails(cairn_publish(k.s, &op, CK_A, &o, &k.result, &err), CAIRN_CANCELLED);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    cairn_cancel_free(cancel);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}
END_TEST

/* ---- Several at once ------------------------------------------------------------------------- */

struct racer {
    pthread_t thread;
    const char *id, *name, *meta;
    struct cairn_store *s;
    pthread_barrier_t *start;
    int rc;
    struct cairn_error err;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    char from[512];
    snprintf(from, sizeof(from), "%.200s/%s", k.stage, r->name);
    struct cairn_publish_options o = {
        .from = from, .meta = r->meta, .meta_len = r->meta ? strlen(r->meta) : 0};
    struct cairn_publish_result result;
    pthread_barrier_wait(r->start);
    r->rc = cairn_publish(r->s, NULL, r->id, &o, &result, &r->err);
    return NULL;
}

static void run_racers(struct racer *r, unsigned n)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, n), 0);
    for (unsigned i = 0; i < n; i++) {
        r[i].start = &start;
        ck_assert_int_eq(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(r[i].thread, NULL);
    pthread_barrier_destroy(&start);
}

START_TEST(test_publish_races__of_writers_of_one_checkpoint_one_wins)
{
    bool mem = false;
    do {
        kit_start(&k, &(struct kit_options){.mem = mem});
        struct cairn_store *other = kit_open(&k);
        kit_sample(&k, "one", 1);
        kit_sample(&k, "two", 2);
        for (int round = 0; round < 10; round++) {
            struct racer r[4] = {{.id = CK_A, .name = "one", .meta = "1", .s = k.s},
                                 {.id = CK_A, .name = "two", .meta = "2", .s = other},
                                 {.id = CK_A, .name = "one", .meta = "3", .s = k.s},
                                 {.id = CK_A, .name = "two", .meta = "4", .s = other}};
            run_racers(r, 4);
            int winner = -1;
            for (int i = 0; i < 4; i++) {
                if (r[i].rc == CAIRN_OK) {
                    ck_assert_int_eq(winner, -1);
                    winner = i;
                } else {
                    ck_assert_msg(r[i].rc == CAIRN_BUSY, "%s", r[i].err.message);
                }
            }
            ck_assert_int_ge(winner, 0);
            kit_same(&k, CK_A, r[winner].name);
            struct cairn_record *rec = NULL;
            struct cairn_record_info info;
            ck_ok(cairn_record_open(k.s, NULL, CK_A, &rec, &err));
            cairn_record_info(rec, &info);
            ck_assert_int_eq(*(const char *)info.meta, *r[winner].meta);
            cairn_record_close(rec);
            ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
        }
        kit_verify(&k);
        cairn_close(other);
        kit_stop(&k);
        mem = !mem;
    } while (mem);
}
END_TEST

START_TEST(test_publish_races__processes_do_not_both_win)
{
    kit_start(&k, NULL);
    cairn_close(k.s);
    kit_sample(&k, "one", 1);
    for (int round = 0; round < 5; round++) {
        int go[2], wins = 0, busy = 0;
        ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
        pid_t child[3];
        for (int i = 0; i < 3; i++) {
            child[i] = fork();
            ck_assert_int_ge(child[i], 0);
            if (child[i] == 0) {
                char meta[16], byte;
                k.s = kit_open(&k);
                snprintf(meta, sizeof(meta), "%d", i);
                close(go[1]);
                (void)!read(go[0], &byte, 1);
                int rc = kit_publish(&k, CK_A, "one", meta, NULL, &err);
                cairn_close(k.s);
                _exit(rc);
            }
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < 3; i++) {
            int status;
            ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
            ck_assert(WIFEXITED(status));
            wins += WEXITSTATUS(status) == CAIRN_OK;
            busy += WEXITSTATUS(status) == CAIRN_BUSY;
        }
        ck_assert_int_eq(wins, 1);
        ck_assert_int_eq(busy, 2);
        k.s = kit_open(&k);
        kit_same(&k, CK_A, "one");
        ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
        cairn_close(k.s);
    }
    k.s = kit_open(&k);
    kit_stop(&k);
}
END_TEST

START_TEST(test_publish_races__many_threads_share_chunks)
{
    kit_start(&k, NULL);
    struct cairn_store *other = kit_open(&k);
    struct racer r[8];
    char id[8][32], name[8][16];
    for (int i = 0; i < 8; i++) {
        snprintf(name[i], sizeof(name[i]), "e%d", i);
        snprintf(id[i], sizeof(id[i]), "ck_%016x", i);
        kit_sample(&k, name[i], 1);
        kit_fill(&k, name[i], "own", 200000, 0, (uint64_t)i);
        r[i] = (struct racer){.id = id[i], .name = name[i], .s = i % 2 ? k.s : other};
    }
    run_racers(r, 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(r[i].rc == CAIRN_OK, "%s", r[i].err.message);
        kit_same(&k, id[i], name[i]);
    }
    kit_verify(&k);
    cairn_close(other);
    kit_stop(&k);
}
END_TEST

/* ---- A collector at work --------------------------------------------------------------------- */

static void close_pack(const char *pack)
{
    char key[KEY_MAX];
    kit_closed_key(pack, key);
    kit_put(&k, key, "", 0);
}

static bool names_pack(const char *id, const char *pack)
{
    struct layout_key key;
    layout_parse(pack, &key);
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, id, &meta, gen, &m, &err));
    for (uint32_t i = 0; i < manifest_info(m)->n_packs; i++)
        if (memcmp(manifest_pack(m, i), key.pack, PACK_ID_LEN) == 0)
            return true;
    return false;
}

static void avoids_a_closed_pack(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem});
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    char pack[KEY_MAX];
    snprintf(pack, sizeof(pack), "%s", kit_first(&k, LAYOUT_PACKS));
    close_pack(pack);
    /* By the index, by the parent, and by a fork. */
    ck_ok(kit_publish(&k, CK_B, "one", NULL, NULL, &err));
    ck_assert(!names_pack(CK_B, pack));
    ck_assert_uint_gt(k.result.new_chunks, 0);
    ck_ok(kit_publish(&k, CK_C, "one", NULL, CK_A, &err));
    ck_assert(!names_pack(CK_C, pack));
    ck_ok(kit_fork(&k, CK_A, TP_A, NULL, &err));
    ck_assert(!names_pack(TP_A, pack));
    ck_ok(kit_fork(&k, CK_B, TP_B, NULL, &err));
    /* The collector goes on: the pack is deleted, and all that was published since stands. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    kit_remove(&k, pack);
    kit_reopen(&k);
    kit_same(&k, CK_B, "one");
    kit_same(&k, CK_C, "one");
    kit_same(&k, TP_A, "one");
    kit_same(&k, TP_B, "one");
    kit_verify(&k);
    kit_stop(&k);
}

START_TEST(test_publish_races__a_closed_pack_is_avoided)
{
    avoids_a_closed_pack(false);
    avoids_a_closed_pack(true);
}
END_TEST

START_TEST(test_publish_races__a_pack_that_is_gone_is_stored_again)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    kit_reopen(&k); /* or the open pack would still be read */
    ck_ok(kit_publish(&k, CK_B, "one", NULL, NULL, &err));
    ck_assert_uint_gt(k.result.new_chunks, 0);
    kit_same(&k, CK_B, "one");
    kit_verify(&k);
    /* A fork of a record whose pack is gone has nothing to offer. */
    kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    kit_reopen(&k);
    ck_fails(kit_fork(&k, CK_B, CK_C, NULL, &err), CAIRN_NOT_FOUND);
    ck_assert_int_eq(kit_opens(&k, CK_C), CAIRN_NOT_FOUND);
    kit_stop(&k);
}
END_TEST

/* The pack of this very publish is closed while it checks: it is old enough to a broken clock. */
static int closes;
static int close_all(void *ctx, struct backend *b, const char *prefix, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (strcmp(prefix, LAYOUT_CLOSED) == 0 && closes > 0 && kit_first(&k, LAYOUT_PACKS)) {
        closes--;
        /* kit_first lists packs, not marks: no recursion. */
        char packs[64][KEY_MAX];
        size_t n = 0;
        CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
        struct backend_entry entry;
        ck_ok(k.s->backend->ops->list(k.s->backend, NULL, LAYOUT_PACKS, "", &it, &err));
        while (!it->ops->iter_next(it, NULL, &entry, &err) && entry.key && n < 64)
            snprintf(packs[n++], KEY_MAX, "%s", entry.key);
        for (size_t i = 0; i < n; i++)
            close_pack(packs[i]);
    }
    return CAIRN_OK;
}

START_TEST(test_publish_races__own_packs_closed_meanwhile_are_stored_again_and_again)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    kit_hook(&k, &(struct kit_hooks){.before_list = close_all});
    closes = 5;
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert_int_eq(closes, 0);
    kit_same(&k, CK_A, "one");
    char pack[KEY_MAX];
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), 6);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_CLOSED), 5);
    snprintf(pack, sizeof(pack), "%s", kit_first(&k, LAYOUT_PACKS));
    /* For ever: it gives up, and nothing is visible. */
    closes = 1000;
    ck_fails(kit_publish(&k, CK_B, "one", NULL, NULL, &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(kit_opens(&k, CK_B), CAIRN_NOT_FOUND);
    char key[KEY_MAX];
    layout_record(CK_B, key);
    ck_assert_uint_eq(kit_objects(&k, key), 0);
    closes = 0;
    ck_ok(kit_publish(&k, CK_B, "one", NULL, NULL, &err));
    kit_same(&k, CK_B, "one");
    kit_stop(&k);
}
END_TEST

/* A collector that gives a writer up takes its staged meta, then its manifest. */
static int fences;
static int fence(void *ctx, struct backend *b, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (fences <= 0)
        return CAIRN_OK;
    fences--;
    char key[KEY_MAX], gen[GEN_TEXT];
    ck_ok(gen_of_meta("1", 1, gen, &err));
    layout_staged(CK_A, gen, key);
    ck_assert(kit_has(&k, key));
    kit_remove(&k, key);
    layout_export(CK_A, gen, key);
    kit_remove(&k, key);
    return CAIRN_OK;
}

START_TEST(test_publish_races__a_fenced_writer_starts_again)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    kit_hook(&k, &(struct kit_hooks){.before_commit = fence});
    fences = 3;
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_assert_int_eq(fences, 0);
    kit_same(&k, CK_A, "one");
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(kit_publish(&k, CK_B, "one", "1", NULL, &err));
    fences = 1;
    ck_ok(kit_fork(&k, CK_B, CK_A, "1", &err));
    ck_assert_int_eq(fences, 0);
    kit_same(&k, CK_A, "one");
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    fences = 1000;
    ck_fails(kit_publish(&k, CK_A, "one", "1", NULL, &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    kit_stop(&k);
}
END_TEST

/* The manifest may be gone behind the commit. (Where nothing fences: test_commit.c.) */
static int takes;
static int take_manifest(void *ctx, struct backend *b, struct cairn_error *e)
{
    (void)ctx;
    (void)b;
    (void)e;
    if (takes > 0) {
        takes--;
        char key[KEY_MAX];
        kit_export_key(CK_A, "1", key);
        kit_remove(&k, key);
    }
    return CAIRN_OK;
}

START_TEST(test_publish_races__a_manifest_taken_behind_the_commit_is_put_back)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    kit_hook(&k, &(struct kit_hooks){.after_commit = take_manifest});
    takes = 2;
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_assert_int_eq(takes, 0);
    kit_same(&k, CK_A, "one");
    /* A record that lost its export may be published again under the same meta, and no other. */
    char key[KEY_MAX];
    kit_export_key(CK_A, "1", key);
    kit_remove(&k, key);
    ck_fails(kit_opens(&k, CK_A) ? error_set(&err, kit_opens(&k, CK_A), 0, "gone") : CAIRN_OK,
             CAIRN_NOT_FOUND);
    ck_fails(kit_publish(&k, CK_A, "one", "2", NULL, &err), CAIRN_BUSY);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(publish_races, test_publish_races__an_export_that_changes_is_busy_and_invisible,
             test_publish_races__a_cancelled_publish_leaves_nothing_and_can_be_repeated,
             test_publish_races__of_writers_of_one_checkpoint_one_wins,
             test_publish_races__processes_do_not_both_win,
             test_publish_races__many_threads_share_chunks,
             test_publish_races__a_closed_pack_is_avoided,
             test_publish_races__a_pack_that_is_gone_is_stored_again,
             test_publish_races__own_packs_closed_meanwhile_are_stored_again_and_again,
             test_publish_races__a_fenced_writer_starts_again,
             test_publish_races__a_manifest_taken_behind_the_commit_is_put_back)
