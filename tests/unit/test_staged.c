/* Publishing in two halves, with and without what was chunked in the background. */
#include "store/staged.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/digest.h"
#include "store/record.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct cairn_error err;
static struct kit k;
static struct cairn_publish_result result;

static const struct kit_options dir_store = {.chunk_size = 65536};
static const struct kit_options shapes[] = {
    {.chunk_size = 65536},
    {.mem = true, .chunk_size = 65536},
    {.mem = true, .chunk_size = 4096, .no_index = true},
};

static void gen_of(const char *meta, char gen[GEN_TEXT])
{
    ck_ok(gen_of_meta(meta, strlen(meta), gen, &err));
}

static int prepare(const char *id, const char *name, const char *meta, struct background *bg,
                   struct staged_prepared **m)
{
    char gen[GEN_TEXT];
    gen_of(meta, gen);
    usleep(30000); /* younger files are not believed to be what they were */
    struct staged_export from = {.from = kit_path(&k, name, NULL), .background = bg};
    return staged_prepare(k.s, NULL, id, gen, &from, m, &result, &err);
}

static int commit(const char *id, const char *name, const char *meta,
                  const struct staged_prepared *m, const uint8_t *digest)
{
    struct staged_commit c = {.meta = meta,
                              .meta_len = strlen(meta),
                              .from = {.from = name ? kit_path(&k, name, NULL) : NULL},
                              .prepared = m,
                              .digest = digest};
    return staged_commit(k.s, NULL, id, &c, &result, &err);
}

/* Add a file of a staged export, and wait until nothing waits. */
static void chunk(struct background *bg, const char *id, const char *name, const char *path)
{
    CLEANUP_FD int fd = open(kit_path(&k, name, path), O_PATH | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    background_add(bg, fd, id, path);
}

static struct background_counts settled(struct background *bg)
{
    struct background_counts c;
    int64_t until = clock_monotonic() + 60 * NS_PER_S;
    do {
        background_counts(bg, &c);
        ck_assert_int_lt(clock_monotonic(), until);
        usleep(2000);
    } while (c.waiting);
    return c;
}

static void prepared_is_invisible_and_committed_is_there(const struct kit_options *shape)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    char key[KEY_MAX];
    kit_start(&k, shape);
    kit_sample(&k, "one", 1);
    ck_ok(prepare(CK_A, "one", "{\"a\":1}", NULL, &m));
    kit_export_key(CK_A, "{\"a\":1}", key);
    ck_assert(kit_has(&k, key));
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    ck_ok(commit(CK_A, "one", "{\"a\":1}", m, NULL));
    ck_assert(!result.unchanged);
    ck_assert_uint_eq(result.new_chunks, 0);
    kit_same(&k, CK_A, "one");
    /* Each half again, as by a caller that did not hear the answer. */
    CLEANUP_STAGED_PREPARED struct staged_prepared *again = NULL;
    ck_ok(commit(CK_A, "one", "{\"a\":1}", m, NULL));
    ck_assert(result.unchanged);
    ck_ok(prepare(CK_A, "one", "{\"a\":1}", NULL, &again));
    ck_assert(result.unchanged);
    kit_verify(&k);
    kit_stop(&k);
}

START_TEST(test_staged__prepared_is_invisible_and_committed_is_there)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        prepared_is_invisible_and_committed_is_there(&shapes[i]);
}
END_TEST

static void
a_commit_needs_neither_manifest_nor_anything_else_of_the_first_half(const struct kit_options *shape)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    char key[KEY_MAX];
    kit_start(&k, shape);
    kit_sample(&k, "one", 1);
    /* The process that prepared is gone. */
    ck_ok(prepare(CK_A, "one", "{\"a\":1}", NULL, &m));
    ck_ok(commit(CK_A, "one", "{\"a\":1}", NULL, NULL));
    kit_same(&k, CK_A, "one");
    /* So is its folder: the generation lies in the store, uncommitted. */
    CLEANUP_STAGED_PREPARED struct staged_prepared *n = NULL;
    ck_ok(prepare(CK_B, "one", "{\"b\":1}", NULL, &n));
    ck_ok(commit(CK_B, NULL, "{\"b\":1}", NULL, NULL));
    kit_same(&k, CK_B, "one");
    ck_fails(commit(CK_C, NULL, "{\"c\":1}", NULL, NULL), CAIRN_NOT_FOUND);
    /* The collector took the manifest between the halves. */
    CLEANUP_STAGED_PREPARED struct staged_prepared *o = NULL;
    ck_ok(prepare(CK_C, "one", "{\"c\":1}", NULL, &o));
    kit_export_key(CK_C, "{\"c\":1}", key);
    kit_remove(&k, key);
    ck_ok(commit(CK_C, "one", "{\"c\":1}", o, NULL));
    kit_same(&k, CK_C, "one");
    kit_verify(&k);
    kit_stop(&k);
}

START_TEST(test_staged__a_commit_needs_neither_manifest_nor_anything_else_of_the_first_half)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        a_commit_needs_neither_manifest_nor_anything_else_of_the_first_half(&shapes[i]);
}
END_TEST

static void packs_closed_between_the_halves_are_not_referred_to(const struct kit_options *shape)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL, *n = NULL;
    char key[KEY_MAX];
    kit_start(&k, shape);
    kit_sample(&k, "one", 1);
    for (int from_store = 0; from_store < 2; from_store++) {
        const char *id = from_store ? CK_B : CK_A, *meta = from_store ? "{\"b\":1}" : "{\"a\":1}";
        struct staged_prepared **mine = from_store ? &n : &m;
        ck_ok(prepare(id, "one", meta, NULL, mine));
        uint8_t old[PACK_ID_LEN];
        char text[PACK_TEXT];
        memcpy(old, manifest_pack(staged_prepared_manifest(*mine), 0), PACK_ID_LEN);
        util_hex(old, PACK_ID_LEN, text);
        snprintf(key, sizeof(key), LAYOUT_CLOSED "%s", text);
        kit_put(&k, key, "", 0);
        ck_ok(commit(id, from_store ? NULL : "one", meta, from_store ? NULL : *mine, NULL));
        CLEANUP_BUF struct buf got = BUF_INIT(META_MAX);
        CLEANUP_MANIFEST struct manifest *now = NULL;
        char gen[GEN_TEXT];
        ck_ok(store_load(k.s, NULL, id, &got, gen, &now, &err));
        for (uint32_t i = 0; i < manifest_info(now)->n_packs; i++)
            ck_assert_int_ne(memcmp(manifest_pack(now, i), old, PACK_ID_LEN), 0);
        kit_same(&k, id, "one");
    }
    kit_stop(&k);
}

START_TEST(test_staged__packs_closed_between_the_halves_are_not_referred_to)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        packs_closed_between_the_halves_are_not_referred_to(&shapes[i]);
}
END_TEST

static void the_digest_of_the_commit_lands_in_the_manifest(const struct kit_options *shape)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    uint8_t digest[SHA256_LEN];
    char text[DIGEST_TEXT];
    kit_start(&k, shape);
    kit_sample(&k, "one", 1);
    ck_ok(prepare(CK_A, "one", "{\"a\":1}", NULL, &m));
    testing_fill(digest, sizeof(digest), 3);
    digest_text(digest, text);
    uint8_t parsed[SHA256_LEN];
    ck_assert(staged_digest_parse(text, strlen(text), parsed));
    ck_assert_mem_eq(parsed, digest, SHA256_LEN);
    ck_ok(commit(CK_A, "one", "{\"a\":1}", m, parsed));
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    cairn_record_info(r, &info);
    ck_assert_str_eq(info.digest, text);
    cairn_record_close(r);
    ck_assert(!staged_digest_parse(text, strlen(text) - 1, parsed));
    ck_assert(!staged_digest_parse("sha256:x", 8, parsed));
    text[10] = 'G';
    ck_assert(!staged_digest_parse(text, strlen(text), parsed));
    kit_stop(&k);
}

START_TEST(test_staged__the_digest_of_the_commit_lands_in_the_manifest)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        the_digest_of_the_commit_lands_in_the_manifest(&shapes[i]);
}
END_TEST

START_TEST(test_staged__what_cannot_be_committed_is_refused)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, &dir_store);
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, CK_A, "one", "{\"a\":1}", NULL, &err));
    /* A checkpoint is published once; a generation has one export. */
    ck_fails(prepare(CK_A, "two", "{\"a\":2}", NULL, &m), CAIRN_BUSY);
    ck_fails(prepare(CK_A, "two", "{\"a\":1}", NULL, &m), CAIRN_INVALID);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    kit_same(&k, CK_A, "one");
    /* What meta.json expects of the export, and is not there. */
    const char *meta = "{\"cairn_expect\":{\"memory\":5}}";
    ck_ok(prepare(CK_B, "one", meta, NULL, &m));
    ck_fails(commit(CK_B, "one", meta, m, NULL), CAIRN_INVALID);
    ck_fails(commit(CK_B, "one", "{}", m, NULL), CAIRN_INVALID); /* another generation's */
    ck_assert_int_eq(kit_opens(&k, CK_B), CAIRN_NOT_FOUND);
    kit_stop(&k);
}
END_TEST

START_TEST(test_staged__a_template_goes_back_to_a_generation_that_it_had)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, &dir_store);
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, TP_A, "one", "{\"a\":1}", NULL, &err));
    ck_ok(prepare(TP_A, "two", "{\"a\":2}", NULL, &m));
    ck_ok(commit(TP_A, "two", "{\"a\":2}", m, NULL));
    kit_same(&k, TP_A, "two");
    ck_assert_str_ne(manifest_info(staged_prepared_manifest(m))->parent_gen, "");
    ck_ok(commit(TP_A, NULL, "{\"a\":1}", NULL, NULL));
    kit_same(&k, TP_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

static void generations_are_removed_one_by_one(const struct kit_options *shape)
{
    char one[GEN_TEXT], two[GEN_TEXT], key[KEY_MAX];
    kit_start(&k, shape);
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, TP_A, "one", "{\"a\":1}", NULL, &err));
    ck_ok(kit_publish(&k, TP_A, "two", "{\"a\":2}", NULL, &err));
    gen_of("{\"a\":1}", one);
    gen_of("{\"a\":2}", two);
    layout_trace(TP_A, one, key);
    kit_put(&k, key, "{}", 2);
    ck_ok(staged_remove_generation(k.s, NULL, TP_A, one, &err));
    ck_assert(!kit_has(&k, key));
    ck_ok(staged_remove_generation(k.s, NULL, TP_A, one, &err));
    kit_export_key(TP_A, "{\"a\":1}", key);
    ck_assert(!kit_has(&k, key));
    ck_assert(!kit_has(&k, LAYOUT_TOMB TP_A));
    kit_same(&k, TP_A, "two");
    ck_ok(cairn_hold(k.s, NULL, TP_A, &err));
    ck_fails(staged_remove_generation(k.s, NULL, TP_A, two, &err), CAIRN_BUSY);
    kit_same(&k, TP_A, "two");
    ck_ok(cairn_release(k.s, NULL, TP_A, &err));
    ck_ok(staged_remove_generation(k.s, NULL, TP_A, two, &err));
    ck_assert(kit_has(&k, LAYOUT_TOMB TP_A));
    ck_assert_int_eq(kit_opens(&k, TP_A), CAIRN_NOT_FOUND);
    ck_ok(cairn_delete(k.s, NULL, TP_A, &err));
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_RECORDS), 0);
    /* And again the same id: nothing of the removal reaches it. */
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    ck_ok(prepare(TP_A, "two", "{\"a\":2}", NULL, &m));
    ck_ok(commit(TP_A, "two", "{\"a\":2}", m, NULL));
    kit_same(&k, TP_A, "two");
    kit_stop(&k);
}

START_TEST(test_staged__generations_are_removed_one_by_one)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        generations_are_removed_one_by_one(&shapes[i]);
}
END_TEST

static int no_listing(void *ctx, struct backend *b, const char *prefix, struct cairn_error *e)
{
    (void)ctx, (void)b;
    return strcmp(prefix, LAYOUT_CLOSED) == 0
               ? error_set(e, CAIRN_TRANSIENT, EIO, "the listing fails")
               : CAIRN_OK;
}

/* What lies in the store only must be there for the next try. */
START_TEST(test_staged__a_commit_from_the_store_that_failed_is_made_again)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, &(struct kit_options){.chunk_size = 65536});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, TP_A, "one", "{\"a\":1}", NULL, &err));
    ck_ok(kit_publish(&k, TP_A, "two", "{\"a\":2}", NULL, &err));
    ck_ok(prepare(CK_B, "one", "{\"b\":1}", NULL, &m));
    kit_hook(&k, &(struct kit_hooks){.before_list = no_listing});
    ck_fails(commit(TP_A, NULL, "{\"a\":1}", NULL, NULL), CAIRN_TRANSIENT);
    ck_fails(commit(CK_B, NULL, "{\"b\":1}", NULL, NULL), CAIRN_TRANSIENT);
    kit_hook(&k, &(struct kit_hooks){0});
    kit_same(&k, TP_A, "two");
    ck_assert_int_eq(kit_opens(&k, CK_B), CAIRN_NOT_FOUND);
    ck_ok(commit(TP_A, NULL, "{\"a\":1}", NULL, NULL));
    ck_ok(commit(CK_B, NULL, "{\"b\":1}", NULL, NULL));
    kit_same(&k, TP_A, "one");
    kit_same(&k, CK_B, "one");
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

/* Where nothing locks, the manifest of the first half may replace the same one of a writer that
 * commits it just now. */
START_TEST(test_staged__a_first_half_names_no_dead_pack_where_nothing_locks)
{
    kit_start(&k, &(struct kit_options){.mem = true, .chunk_size = 65536});
    kit_sample(&k, "one", 1);
    for (int closed = 0; closed < 2; closed++) {
        CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
        char pack[KEY_MAX], mark[KEY_MAX], text[PACK_TEXT];
        const char *id = closed ? CK_C : CK_B, *meta = closed ? "{\"c\":1}" : "{\"b\":1}";
        ck_ok(kit_publish(&k, closed ? TP_A : CK_A, "one", "{}", NULL, &err));
        struct cairn_record *r = NULL;
        ck_ok(cairn_record_open(k.s, NULL, closed ? TP_A : CK_A, &r, &err));
        layout_pack(manifest_pack(atomic_load(&r->manifest), 0), pack);
        cairn_record_close(r);
        kit_closed_key(pack, mark);
        snprintf(text, sizeof(text), "%.32s", mark + strlen(LAYOUT_CLOSED));
        if (closed)
            kit_put(&k, mark, "", 0);
        else
            kit_remove(&k, pack);
        ck_ok(prepare(id, "one", meta, NULL, &m));
        CLEANUP_MANIFEST struct manifest *there = NULL;
        char gen[GEN_TEXT];
        gen_of(meta, gen);
        ck_ok(store_load_manifest(k.s, NULL, id, gen, &there, &err));
        for (uint32_t i = 0; i < manifest_info(there)->n_packs; i++) {
            char other[PACK_TEXT];
            util_hex(manifest_pack(there, i), PACK_ID_LEN, other);
            ck_assert_str_ne(other, text);
        }
        ck_ok(commit(id, "one", meta, m, NULL));
        kit_same(&k, id, "one");
    }
    kit_stop(&k);
}
END_TEST

/* ---- What was chunked before ----------------------------------------------------------------- */

static void what_the_background_knows_is_not_read_again(const struct kit_options *shape)
{
    struct background *bg = NULL;
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, shape);
    ck_ok(background_new(k.s, &bg, &err));
    kit_sample(&k, "one", 1);
    kit_fill(&k, "one", "memory-ranges", 3 * MIB + 5, MIB, 7);
    kit_truncate(&k, "one", "memory-ranges", 64 * MIB + 1);
    kit_fill(&k, "one", "nested/b", 2 * MIB, 0, 8);
    chunk(bg, CK_A, "one", "memory-ranges");
    chunk(bg, CK_A, "one", "nested/b");
    chunk(bg, CK_A, "one", "config.json"); /* too small */
    struct background_counts c = settled(bg);
    ck_assert_uint_eq(c.known, 2);
    ck_assert_uint_eq(c.failed, 0);
    ck_ok(prepare(CK_A, "one", "{}", bg, &m));
    background_counts(bg, &c);
    ck_assert_uint_eq(c.taken, 2);
    ck_assert_uint_lt(result.new_bytes, 2 * MIB); /* what the background left */
    ck_ok(commit(CK_A, "one", "{}", m, NULL));
    background_free(bg);
    kit_same(&k, CK_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}

START_TEST(test_staged__what_the_background_knows_is_not_read_again)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        what_the_background_knows_is_not_read_again(&shapes[i]);
}
END_TEST

START_TEST(test_staged__a_file_changed_since_is_chunked_again)
{
    struct background *bg = NULL;
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    struct stat st;
    kit_start(&k, &dir_store);
    ck_ok(background_new(k.s, &bg, &err));
    kit_fill(&k, "one", "said", 2 * MIB, 0, 1);
    kit_fill(&k, "one", "seen", 2 * MIB, 0, 2);
    kit_fill(&k, "one", "queued", 2 * MIB, 0, 3);
    chunk(bg, CK_A, "one", "said");
    chunk(bg, CK_A, "one", "seen");
    chunk(bg, CK_A, "one", "queued");
    settled(bg);
    /* One whose change the caller tells of, with the same times; one that only its times tell. */
    ck_assert_int_eq(stat(kit_path(&k, "one", "said"), &st), 0);
    background_forget(bg, &st);
    kit_fill(&k, "one", "said", 100, 1000, 4);
    usleep(20000);
    kit_fill(&k, "one", "seen", 100, MIB, 5);
    /* Written to while it is read, or before: whatever comes out is not used. */
    chunk(bg, CK_A, "one", "queued");
    ck_assert_int_eq(stat(kit_path(&k, "one", "queued"), &st), 0);
    background_forget(bg, &st);
    kit_fill(&k, "one", "queued", 100, MIB, 6);
    ck_ok(prepare(CK_A, "one", "{}", bg, &m));
    ck_ok(commit(CK_A, "one", "{}", m, NULL));
    struct background_counts c = settled(bg);
    ck_assert_uint_eq(c.taken, 0);
    background_free(bg);
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}
END_TEST

START_TEST(test_staged__what_the_background_stored_may_be_gone)
{
    struct background *bg = NULL;
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, &dir_store);
    ck_ok(background_new(k.s, &bg, &err));
    kit_fill(&k, "one", "memory", 2 * MIB, 0, 1);
    chunk(bg, CK_A, "one", "memory");
    settled(bg);
    kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    ck_ok(prepare(CK_A, "one", "{}", bg, &m));
    ck_ok(commit(CK_A, "one", "{}", m, NULL));
    background_free(bg);
    kit_same(&k, CK_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

START_TEST(test_staged__the_background_ends_in_the_middle_of_its_work)
{
    struct background *bg = NULL;
    size_t open_before;
    kit_start(&k, &dir_store);
    kit_sample(&k, "before", 1);
    ck_ok(kit_publish(&k, CK_B, "before", NULL, NULL, &err)); /* the index is open from now on */
    open_before = kit_descriptors();
    for (int round = 0; round < 5; round++) {
        ck_ok(background_new(k.s, &bg, &err));
        for (int i = 0; i < 4; i++) {
            char name[32];
            snprintf(name, sizeof(name), "f%d-%d", round, i);
            kit_fill(&k, "one", name, 4 * MIB, 0, (uint64_t)(round * 10 + i));
            chunk(bg, TP_A, "one", name);
        }
        usleep((useconds_t)round * 3000);
        background_free(bg);
    }
    ck_assert_uint_eq(kit_descriptors(), open_before);
    ck_ok(kit_publish(&k, TP_A, "one", NULL, NULL, &err));
    kit_same(&k, TP_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

#define ADDERS 4
#define ADDS   300

static int added_fd;

static void *add_again_and_again(void *arg)
{
    for (int i = 0; i < ADDS; i++)
        background_add(arg, added_fd, CK_A, "disk");
    return arg;
}

/* Two entries of one file would be found one at a time: forgetting would leave the other. */
START_TEST(test_staged__a_file_added_by_several_at_once_is_known_once)
{
    struct background *bg;
    struct stat st;
    pthread_t threads[ADDERS];
    kit_start(&k, &dir_store);
    kit_fill(&k, "one", "disk", 2 * MIB, 0, 7);
    added_fd = open(kit_path(&k, "one", "disk"), O_PATH | O_CLOEXEC);
    ck_assert_int_ge(added_fd, 0);
    ck_ok(background_new(k.s, &bg, &err));
    for (int i = 0; i < ADDERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add_again_and_again, bg), 0);
    for (int i = 0; i < ADDERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_gt(settled(bg).known_bytes, 0);
    ck_assert_int_eq(stat(kit_path(&k, "one", "disk"), &st), 0);
    background_forget(bg, &st);
    ck_assert_uint_eq(settled(bg).known_bytes, 0);
    background_free(bg);
    close(added_fd);
    kit_stop(&k);
}
END_TEST

/* A staging may have many, and they may stay for long. */
START_TEST(test_staged__what_is_known_costs_no_descriptors)
{
    enum { FILES = 32 };
    struct background *bg;
    size_t before = 0;
    kit_start(&k, &dir_store);
    ck_ok(background_new(k.s, &bg, &err));
    for (unsigned i = 0; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof(path), "disk%u", i);
        kit_fill(&k, "one", path, MIB, 0, 100 + i);
        chunk(bg, CK_A, "one", path);
        ck_assert_uint_eq(settled(bg).known, i + 1);
        before = i ? before : kit_descriptors();
    }
    ck_assert_uint_lt(kit_descriptors(), before + FILES / 4);
    background_free(bg);
    kit_stop(&k);
}
END_TEST

/* Nor may many that are saved at once. What does not fit is read when it is published. */
START_TEST(test_staged__few_wait_for_the_background)
{
    enum { FILES = 200 };
    struct background *bg;
    struct background_counts c;
    kit_start(&k, &dir_store);
    for (unsigned i = 0; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof(path), "disk%u", i);
        kit_write(&k, "one", path, "x", 1, MIB - 1);
        int fd = open(kit_path(&k, "one", path), O_RDWR | O_CLOEXEC);
        ck_assert_int_eq(posix_fallocate(fd, 0, MIB), 0);
        close(fd);
    }
    ck_ok(background_new(k.s, &bg, &err));
    for (unsigned i = 0; i < FILES; i++) {
        char path[16];
        snprintf(path, sizeof(path), "disk%u", i);
        chunk(bg, CK_A, "one", path);
        background_counts(bg, &c);
        ck_assert_uint_le(c.waiting, BACKGROUND_WAITING_MAX);
    }
    ck_assert_uint_ge(settled(bg).known, BACKGROUND_WAITING_MAX);
    background_free(bg);
    kit_stop(&k);
}
END_TEST

START_TEST(test_staged__on_a_full_disk_the_background_gives_up_and_the_publish_says_so)
{
    struct background *bg = NULL;
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true, .chunk_size = 65536});
    ck_ok(background_new(k.s, &bg, &err));
    kit_fill(&k, "one", "memory", 2 * MIB, 0, 1);
    ck_ok(backend_fault_add(k.s->backend,
                            &(struct fault_plan){.op = FAULT_UPLOAD_COMMIT,
                                                 .nth = 1,
                                                 .times = 2,
                                                 .error_class = CAIRN_NO_SPACE,
                                                 .sys_errno = ENOSPC},
                            &err));
    chunk(bg, CK_A, "one", "memory");
    struct background_counts c = settled(bg);
    ck_assert_uint_eq(c.failed, 1);
    ck_fails(prepare(CK_A, "one", "{}", bg, &m), CAIRN_NO_SPACE);
    ck_ok(prepare(CK_A, "one", "{}", bg, &m));
    ck_ok(commit(CK_A, "one", "{}", m, NULL));
    background_free(bg);
    kit_same(&k, CK_A, "one");
    kit_stop(&k);
}
END_TEST

/* ---- What files resemble --------------------------------------------------------------------- */

/* Bytes that nothing can make shorter; change: one byte in each of eight chunks is another. */
static void resembling(const char *name, uint64_t seed, bool change)
{
    kit_fill(&k, name, "memory", 4 * MIB, 0, seed);
    for (uint64_t i = 0; change && i < 8; i++)
        kit_write(&k, name, "memory", "!", 1, i * 7 * 65536 + 1000);
}

static uint64_t stored_by(struct background *bg, const char *id, const char *name, const char *meta)
{
    CLEANUP_STAGED_PREPARED struct staged_prepared *m = NULL;
    uint64_t before = kit_stored(&k);
    chunk(bg, id, name, "memory");
    settled(bg);
    ck_ok(prepare(id, name, meta, bg, &m));
    struct staged_commit c = {.meta = meta,
                              .meta_len = strlen(meta),
                              .from = {.from = kit_path(&k, name, NULL), .background = bg},
                              .prepared = m};
    ck_ok(staged_commit(k.s, NULL, id, &c, &result, &err));
    kit_same(&k, id, name);
    return kit_stored(&k) - before;
}

START_TEST(test_staged__a_checkpoint_that_resembles_one_is_stored_as_what_differs)
{
    struct background *bg = NULL;
    kit_start(&k, &dir_store);
    ck_ok(background_new(k.s, &bg, &err));
    resembling("one", 1, false);
    resembling("two", 1, true);
    resembling("other", 2, false);
    ck_assert_uint_gt(stored_by(bg, CK_A, "one", "{}"), 4 * MIB);
    ck_assert_uint_gt(stored_by(bg, CK_C, "other", "{}"), 4 * MIB);
    /* Eight chunks are 512 KiB. */
    ck_assert_uint_lt(stored_by(bg, CK_B, "two", "{}"), 64 * 1024);
    /* What it was encoded against may go. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    kit_same(&k, CK_B, "two");
    background_free(bg);
    kit_verify(&k);
    /* A process that published nothing knows one that was opened. */
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    CLEANUP_MANIFEST struct manifest *opened = NULL;
    char gen[GEN_TEXT];
    ck_ok(background_new(k.s, &bg, &err));
    ck_ok(store_load(k.s, NULL, CK_C, &meta, gen, &opened, &err));
    background_remember(bg, opened, 0);
    ck_ok(index_clear(k.s->index, &err)); /* as on a host whose index has not heard of it */
    resembling("three", 2, true);
    ck_assert_uint_lt(stored_by(bg, TP_A, "three", "{}"), 64 * 1024);
    background_free(bg);
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(staged, test_staged__a_file_added_by_several_at_once_is_known_once,
             test_staged__a_commit_from_the_store_that_failed_is_made_again,
             test_staged__a_first_half_names_no_dead_pack_where_nothing_locks,
             test_staged__a_checkpoint_that_resembles_one_is_stored_as_what_differs,
             test_staged__prepared_is_invisible_and_committed_is_there,
             test_staged__a_commit_needs_neither_manifest_nor_anything_else_of_the_first_half,
             test_staged__packs_closed_between_the_halves_are_not_referred_to,
             test_staged__the_digest_of_the_commit_lands_in_the_manifest,
             test_staged__what_cannot_be_committed_is_refused,
             test_staged__a_template_goes_back_to_a_generation_that_it_had,
             test_staged__generations_are_removed_one_by_one,
             test_staged__what_the_background_knows_is_not_read_again,
             test_staged__a_file_changed_since_is_chunked_again,
             test_staged__what_the_background_stored_may_be_gone,
             test_staged__the_background_ends_in_the_middle_of_its_work,
             test_staged__what_is_known_costs_no_descriptors,
             test_staged__few_wait_for_the_background,
             test_staged__on_a_full_disk_the_background_gives_up_and_the_publish_says_so)
