#include "base/util.h"
#include "store/digest.h"
#include "store/manifest.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct kit k;

static const struct kit_options shapes[] = {
    {.chunk_size = 4096},
    {.chunk_size = 65536},
    {.chunk_size = 1 << 20},
    {.chunk_size = 4096, .compression = CAIRN_COMPRESSION_NONE},
    {.chunk_size = 65536, .compression = CAIRN_COMPRESSION_NONE},
    {.chunk_size = 1 << 20, .compression = CAIRN_COMPRESSION_NONE},
    {.mem = true, .chunk_size = 65536},
    {.mem = true, .chunk_size = 4096, .compression = CAIRN_COMPRESSION_NONE, .no_index = true},
};

/* An export with a file for each way to be odd about chunks. */
static void odd_sizes(uint32_t cs)
{
    static uint8_t zeros[2 << 20];
    kit_sample(&k, "one", 1);
    kit_fill(&k, "one", "one-byte", 1, 0, 1);
    kit_fill(&k, "one", "chunk-1", cs - 1, 0, 2);
    kit_fill(&k, "one", "chunk", cs, 0, 3);
    kit_fill(&k, "one", "chunk+1", cs + 1, 0, 4);
    kit_fill(&k, "one", "holes", 1, 0, 5);
    kit_fill(&k, "one", "holes", 10, (uint64_t)3 * cs - 5, 6); /* across a border */
    kit_truncate(&k, "one", "holes", (uint64_t)7 * cs + 3);
    kit_write(&k, "one", "zeros", zeros, (size_t)cs + 10, 0);
    kit_fill(&k, "one", "zero-middle", cs, 0, 7);
    kit_write(&k, "one", "zero-middle", zeros, cs, cs);
    kit_fill(&k, "one", "zero-middle", cs, (uint64_t)2 * cs, 8);
    kit_fill(&k, "one", "zero-tail", cs, 0, 9);
    kit_write(&k, "one", "zero-tail", zeros, 100, cs);
    kit_truncate(&k, "one", "hole-only", (uint64_t)100 * cs + 1);
    kit_fill(&k, "one", "nested/\xff\xfe/x", 10, 0, 10);
}

static void every_shape_comes_back_as_it_was(const struct kit_options *shape)
{
    kit_start(&k, shape);
    uint32_t cs = shape->chunk_size;
    odd_sizes(cs);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert(!k.result.unchanged);
    ck_assert_uint_ge(k.result.chunks, k.result.new_chunks);
    kit_same(&k, CK_A, "one");
    kit_verify(&k);
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    struct cairn_file f;
    cairn_record_file(r, (uint64_t)cairn_record_find(r, "zeros"), &f);
    ck_assert_uint_eq(f.data_bytes, 0);
    cairn_record_file(r, (uint64_t)cairn_record_find(r, "zero-middle"), &f);
    ck_assert_uint_eq(f.data_bytes, 2 * cs);
    cairn_record_file(r, (uint64_t)cairn_record_find(r, "hole-only"), &f);
    ck_assert_uint_eq(f.data_bytes, 0);
    cairn_record_file(r, (uint64_t)cairn_record_find(r, "holes"), &f);
    ck_assert_uint_eq(f.data_bytes, 3 * cs);
    cairn_record_close(r);
    if (shape->compression == CAIRN_COMPRESSION_NONE)
        ck_assert_uint_eq(k.result.stored_bytes, k.result.new_bytes);
    /* Again under another id: with an index nothing is new. */
    uint64_t packs = kit_objects(&k, LAYOUT_PACKS);
    ck_ok(kit_publish(&k, CK_B, "one", NULL, shape->no_index ? CK_A : NULL, &err));
    ck_assert_uint_eq(k.result.new_chunks, 0);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), packs);
    kit_same(&k, CK_B, "one");
    kit_stop(&k);
}

START_TEST(test_publish__every_shape_comes_back_as_it_was)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        every_shape_comes_back_as_it_was(&shapes[i]);
}
END_TEST

static unsigned encodings(const char *id, unsigned count[3])
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, id, &meta, gen, &m, &err));
    memset(count, 0, 3 * sizeof(count[0]));
    for (uint32_t i = 0; i < manifest_info(m)->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        count[c.loc.encoding]++;
        if (c.loc.encoding == CHUNK_ZSTD_BASE)
            ck_assert_uint_ne(c.base.encoding, CHUNK_ZSTD_BASE);
    }
    return manifest_info(m)->n_chunks;
}

START_TEST(test_publish__a_parent_leaves_only_what_changed_to_store)
{
    kit_start(&k, &(struct kit_options){.no_index = true});
    const uint32_t cs = CHUNK_SIZE_DEFAULT;
    for (uint32_t i = 0; i < 64; i++)
        kit_fill(&k, "one", "memory", cs, (uint64_t)i * cs, i);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    unsigned n[3];
    encodings(CK_A, n);
    ck_assert_uint_eq(n[CHUNK_RAW], 64);
    /* One page of each of three chunks, three generations long: no base has a base. */
    static const char *const ids[] = {CK_A, CK_B, CK_C, "ck_00000000000000dd"};
    for (int g = 1; g < 4; g++) {
        for (int i = 0; i < 3; i++)
            kit_fill(&k, "one", "memory", 4096, (uint64_t)(10 + i) * cs + (uint64_t)g * 4096,
                     (uint64_t)(100 * g + i));
        uint64_t before = kit_stored(&k);
        ck_ok(kit_publish(&k, ids[g], "one", NULL, ids[g - 1], &err));
        ck_assert_uint_eq(k.result.chunks, 64);
        ck_assert_uint_eq(k.result.new_chunks, 3);
        ck_assert_uint_eq(k.result.new_bytes, 3 * cs);
        /* About the pages, not the chunks. */
        ck_assert_uint_lt(k.result.stored_bytes, (uint64_t)3 * (unsigned)g * 4096 + 3000);
        ck_assert_uint_lt(kit_stored(&k) - before, (uint64_t)3 * (unsigned)g * 4096 + 5000);
        encodings(ids[g], n);
        ck_assert_uint_eq(n[CHUNK_ZSTD_BASE], 3);
        kit_same(&k, ids[g], "one");
    }
    kit_verify(&k);
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    ck_ok(cairn_record_open(k.s, NULL, CK_B, &r, &err));
    cairn_record_info(r, &info);
    ck_assert_str_eq(info.parent_id, CK_A);
    cairn_record_close(r);
    /* The parent's removal does not hurt the child. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    kit_same(&k, ids[3], "one");
    kit_stop(&k);
}
END_TEST

START_TEST(test_publish__a_parent_of_another_shape_does_no_harm)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    kit_fill(&k, "one", "gone", 100000, 0, 3);
    kit_fill(&k, "one", "tail", 65536 + 100, 0, 4);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_sample(&k, "two", 1);
    kit_fill(&k, "two", "tail", 65536 + 50, 0, 4); /* the last chunk is a beginning of the old */
    kit_fill(&k, "two", "new", 1000, 0, 5);
    ck_ok(kit_publish(&k, CK_B, "two", NULL, CK_A, &err));
    kit_same(&k, CK_B, "two");
    ck_fails(kit_publish(&k, CK_C, "two", NULL, "ck_00000000000000ee", &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "parent"));
    ck_fails(kit_publish(&k, CK_C, "two", NULL, "no-id", &err), CAIRN_INVALID);
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

/* ---- Meta ---- */

static void meta_rules(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    CLEANUP_FREE char *big = malloc(META_MAX + 1);
    ck_assert_ptr_nonnull(big);
    memset(big, ' ', META_MAX + 1);
    struct cairn_publish_options o = {
        .from = kit_path(&k, "one", NULL), .meta = big, .meta_len = META_MAX + 1};
    ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_INVALID);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    o.meta_len = META_MAX;
    ck_ok(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err));
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    cairn_record_info(r, &info);
    ck_assert_uint_eq(info.meta_len, META_MAX);
    ck_assert_int_eq(memcmp(info.meta, big, META_MAX), 0);
    cairn_record_close(r);
    /* An empty meta is one, too. */
    ck_ok(kit_publish(&k, CK_B, "one", "", NULL, &err));
    kit_same(&k, CK_B, "one");

    ck_ok(kit_publish(&k, TP_A, "one", "{\"n\":1}", NULL, &err));
    uint64_t objects = kit_objects(&k, "");
    ck_ok(kit_publish(&k, TP_A, "one", "{\"n\":1}", NULL, &err));
    ck_assert(k.result.unchanged);
    ck_assert_uint_eq(k.result.new_bytes, 0);
    ck_fails(kit_publish(&k, TP_A, "two", "{\"n\":1}", NULL, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "each generation needs its own meta.json"));
    /* One file more, one less, a hole where data was: all another export. */
    kit_sample(&k, "more", 1);
    kit_fill(&k, "more", "z", 1, 0, 1);
    ck_fails(kit_publish(&k, TP_A, "more", "{\"n\":1}", NULL, &err), CAIRN_INVALID);
    kit_sample(&k, "hole", 1);
    kit_truncate(&k, "hole", "memory", 1000);
    kit_truncate(&k, "hole", "memory", 500000);
    ck_fails(kit_publish(&k, TP_A, "hole", "{\"n\":1}", NULL, &err), CAIRN_INVALID);
    kit_sample(&k, "longer", 1);
    kit_truncate(&k, "longer", "disks/cow.raw", (8 << 20) + 1);
    ck_fails(kit_publish(&k, TP_A, "longer", "{\"n\":1}", NULL, &err), CAIRN_INVALID);
    ck_assert_uint_eq(kit_objects(&k, ""), objects);
    kit_same(&k, TP_A, "one");
    kit_stop(&k);
}

START_TEST(test_publish__meta_rules)
{
    meta_rules(false);
    meta_rules(true);
}
END_TEST

static void a_checkpoint_is_published_once(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    uint64_t objects = kit_objects(&k, "");
    ck_fails(kit_publish(&k, CK_A, "two", "2", NULL, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    ck_fails(kit_publish(&k, CK_A, "one", "2", NULL, &err), CAIRN_BUSY);
    ck_assert_uint_eq(kit_objects(&k, ""), objects);
    kit_same(&k, CK_A, "one");
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_assert(k.result.unchanged);
    /* A life after its removal. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(kit_publish(&k, CK_A, "two", "2", NULL, &err));
    kit_same(&k, CK_A, "two");
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    kit_same(&k, CK_A, "one");
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
    kit_stop(&k);
}

START_TEST(test_publish__a_checkpoint_is_published_once)
{
    a_checkpoint_is_published_once(false);
    a_checkpoint_is_published_once(true);
}
END_TEST

static void a_template_gets_a_new_generation_and_the_old_stays_readable(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    struct cairn_record *old = NULL;
    ck_ok(cairn_record_open(k.s, NULL, TP_A, &old, &err));
    ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
    char key[KEY_MAX];
    kit_export_key(TP_A, "1", key);
    ck_assert(kit_has(&k, key));
    kit_export_key(TP_A, "2", key);
    ck_assert(kit_has(&k, key));
    kit_same(&k, TP_A, "two");
    kit_same_folder(old, kit_path(&k, "one", NULL));
    struct cairn_record_info info;
    cairn_record_info(old, &info);
    char was[GEN_TEXT];
    snprintf(was, sizeof(was), "%s", info.gen);
    cairn_record_close(old);
    /* The generation before is the parent of this one. */
    ck_ok(cairn_record_open(k.s, NULL, TP_A, &old, &err));
    cairn_record_info(old, &info);
    ck_assert_str_eq(info.parent_gen, was);
    ck_assert_str_eq(info.parent_id, TP_A);
    cairn_record_close(old);
    /* Back to the first meta: that is the first generation again. */
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    kit_same(&k, TP_A, "one");
    kit_verify(&k);
    kit_stop(&k);
}

START_TEST(test_publish__a_template_gets_a_new_generation_and_the_old_stays_readable)
{
    a_template_gets_a_new_generation_and_the_old_stays_readable(false);
    a_template_gets_a_new_generation_and_the_old_stays_readable(true);
}
END_TEST

START_TEST(test_publish__expectations_are_held_before_any_change)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    struct cairn_expect good[] = {{"memory", 500000 - 500000 % 32 + 32}, {"disks/empty", 0}};
    struct stat st;
    ck_assert_int_eq(stat(kit_path(&k, "one", "memory"), &st), 0);
    good[0].size = (uint64_t)st.st_size;
    struct cairn_publish_options o = {
        .from = kit_path(&k, "one", NULL), .expect = good, .n_expect = 2};
    struct cairn_expect wrong = {"memory", 1}, missing = {"no/file", 0};
    o.expect = &wrong;
    o.n_expect = 1;
    ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "memory"));
    o.expect = &missing;
    ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "no/file"));
    static const char *const bad[] = {"{\"cairn_expect\":{\"memory\":1}}",
                                      "{\"cairn_expect\":{\"none\":0}}",
                                      "{\"cairn_expect\":{\"memory\":\"1\"}}",
                                      "{\"cairn_expect\":{\"memory\":-1}}",
                                      "{\"cairn_expect\":{\"memory\":1},\"x\":\"\\u0000\"}",
                                      "{\"cairn_expect\":{\"memory\":1,\"memory\":2}}",
                                      " {\"cairn_expect\":{\"memory\":1},\"x\":1e999}",
                                      "\xef\xbb\xbf{\"cairn_expect\":{\"memory\":1}}",
                                      "{\"cairn_expect\":[\"memory\"]}",
                                      "{\"cairn_expect\":{\"disks\":0}}",
                                      "{\"cairn_expect\":{\"disks/empty\":0.5}}",
                                      "{\"cairn_expect\":{\"../memory\":0}}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_fails(kit_publish(&k, CK_A, "one", bad[i], NULL, &err), CAIRN_INVALID);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    o.expect = good;
    o.n_expect = 2;
    ck_ok(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err));
    char meta[100];
    snprintf(meta, sizeof(meta), "{\"x\":1,\"cairn_expect\":{\"memory\":%llu,\"disks/empty\":0}}",
             (unsigned long long)good[0].size);
    ck_ok(kit_publish(&k, CK_B, "one", meta, NULL, &err));
    /* A meta that is no JSON, or names it elsewhere, expects nothing. */
    ck_ok(kit_publish(&k, CK_C, "one", "\"cairn_expect\":{\"none\":0}", NULL, &err));
    kit_stop(&k);
}
END_TEST

START_TEST(test_publish__files_of_somebody_else_are_refused_before_any_change)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    struct cairn_publish_options o = {
        .from = kit_path(&k, "one", NULL), .owned = true, .owner = geteuid() + 1};
    ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EACCES);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    o.owner = geteuid();
    ck_ok(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err));
    kit_same(&k, CK_A, "one");
    if (geteuid() == 0) {
        /* One file is enough. */
        ck_assert_int_eq(chown(kit_path(&k, "one", "disks/empty"), 12345, 0), 0);
        ck_fails(cairn_publish(k.s, NULL, CK_B, &o, &k.result, &err), CAIRN_PERMANENT);
        ck_assert_ptr_nonnull(strstr(err.message, "disks/empty"));
        o.owned = false;
        ck_ok(cairn_publish(k.s, NULL, CK_B, &o, &k.result, &err));
    }
    kit_stop(&k);
}
END_TEST

START_TEST(test_publish__refusals_change_nothing)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    ck_fails(kit_publish(&k, "ck_xyz", "one", NULL, NULL, &err), CAIRN_INVALID);
    ck_fails(kit_publish(&k, "../ck_00000000000000aa", "one", NULL, NULL, &err), CAIRN_INVALID);
    ck_fails(kit_publish(&k, CK_A, "none", NULL, NULL, &err), CAIRN_NOT_FOUND);
    struct cairn_publish_options o = {0};
    ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_INVALID);
    ck_assert_int_eq(symlink("memory", kit_path(&k, "one", "link")), 0);
    ck_fails(kit_publish(&k, CK_A, "one", NULL, NULL, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "link"));
    ck_assert_int_eq(unlink(kit_path(&k, "one", "link")), 0);
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    o.from = kit_path(&k, "one", NULL);
    ck_fails(cairn_publish(k.s, &op, CK_A, &o, &k.result, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    /* A NULL err keeps the class. */
    ck_assert_int_eq(cairn_publish(k.s, &op, CK_A, &o, &k.result, NULL), CAIRN_TIMEOUT);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_stop(&k);
}
END_TEST

/* ---- Digest ---- */

static void digest_is(const char *id, const char *want)
{
    struct cairn_publish_options o = {.from = kit_path(&k, "d", NULL), .digest = true};
    ck_ok(cairn_publish(k.s, NULL, id, &o, &k.result, &err));
    ck_assert_str_eq(k.result.digest, want);
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    cairn_record_info(r, &info);
    ck_assert_str_eq(info.digest, want);
    cairn_record_close(r);
    /* With everything known by the parent, and by the same meta again. */
    o.parent = id;
    o.meta = "again";
    o.meta_len = 5;
    ck_ok(cairn_publish(k.s, NULL, TP_B, &o, &k.result, &err));
    ck_assert_str_eq(k.result.digest, want);
    ck_ok(cairn_publish(k.s, NULL, TP_B, &o, &k.result, &err));
    ck_assert(k.result.unchanged);
    ck_assert_str_eq(k.result.digest, want);
    ck_ok(cairn_delete(k.s, NULL, TP_B, &err));
    char cmd[512];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", kit_path(&k, "d", NULL));
    ck_assert_int_eq(system(cmd), 0);
}

static void text(const char *path, uint64_t count, int value, const char *tail)
{
    uint8_t *data = malloc(count + strlen(tail) + 1);
    ck_assert_ptr_nonnull(data);
    memset(data, value, count);
    memcpy(data + count, tail, strlen(tail));
    kit_write(&k, "d", path, data, count + strlen(tail), 0);
    free(data);
}

/* The values that the sandbox daemons of this field compute for the same exports. */
static void digests_equal_the_published_vectors(const struct kit_options *shape)
{
    const uint64_t piece = DIGEST_PIECE;
    kit_start(&k, shape);
    text("nested/a.bin", 0, 0, "a");
    text("z.bin", 0, 0, "z");
    digest_is("ck_0000000000000001",
              "sha256:ad65b315de70e494c767969e65fc5de65c73846c4ebcdc7051abe08b056637ad");
    ck_assert_int_eq(mkdir(kit_path(&k, "d", NULL), 0700), 0);
    digest_is("ck_0000000000000002",
              "sha256:d451f7060cefab8fe2518e1dc41bc14df1eef087b74b00846a41356c0859f71e");
    text("empty.bin", 0, 0, "");
    digest_is("ck_0000000000000003",
              "sha256:e3a1004a091d5fbaf95fb995f6999355a060a04949e1c3c9d8e886abcd933251");
    /* Zeros are the same whether they are data or a hole. */
    text("zeros.bin", piece + 1, 0, "");
    digest_is("ck_0000000000000004",
              "sha256:c8b0e6c2646989f30a7c4be302cee636215f291d0716a03dd2dc958d06a82bd0");
    kit_truncate(&k, "d", "zeros.bin", piece + 1);
    digest_is("ck_0000000000000005",
              "sha256:c8b0e6c2646989f30a7c4be302cee636215f291d0716a03dd2dc958d06a82bd0");
    kit_truncate(&k, "d", "zeros.bin", piece);
    digest_is("ck_0000000000000006",
              "sha256:dca4e1ba8c0c8964e0b47f33b7754b67f41e7dfcc6bda3342b8a964daac015de");
    text("big.bin", piece, 'a', "b");
    digest_is("ck_0000000000000007",
              "sha256:d6aba4c9ea1dfbace830a37704633339e4e485654542569c878e70b7cf088bff");
    text("boundary.bin", piece - 1, 'x', "");
    digest_is("ck_0000000000000008",
              "sha256:9463427f8626e0b65863b401d333d32ad8e0b11efb34db7f502798aea753fc7e");
    text("boundary.bin", piece, 'x', "y");
    digest_is("ck_0000000000000009",
              "sha256:da8dd289e7d66408bd7d202642f180f2c22bc508cf0fe1d6e9f0e0b7967f6a5e");
    text("config.json", 0, 0, "{}");
    kit_truncate(&k, "d", "cow.raw", 4096);
    text("memory-ranges", 0, 0, "guest-pages");
    text("snapshot.json", 0, 0, "{\"version\":1}\n");
    text("state.json", 0, 0, "");
    digest_is("ck_000000000000000a",
              "sha256:fb111027ca558c098a859af0bed5d44c43c555ff029443784893e84e6571b380");
    kit_stop(&k);
}

START_TEST(test_publish__digests_equal_the_published_vectors)
{
    digests_equal_the_published_vectors(&shapes[1]);
    digests_equal_the_published_vectors(&shapes[7]);
}
END_TEST

TESTING_MAIN(publish, test_publish__every_shape_comes_back_as_it_was,
             test_publish__a_parent_leaves_only_what_changed_to_store,
             test_publish__a_parent_of_another_shape_does_no_harm, test_publish__meta_rules,
             test_publish__a_checkpoint_is_published_once,
             test_publish__a_template_gets_a_new_generation_and_the_old_stays_readable,
             test_publish__expectations_are_held_before_any_change,
             test_publish__files_of_somebody_else_are_refused_before_any_change,
             test_publish__refusals_change_nothing,
             test_publish__digests_equal_the_published_vectors)
