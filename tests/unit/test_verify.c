#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/kit.h"
#include "tests/lib/samples.h"

#include <stdio.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;
static struct cairn_verify_result result;

/* What was found, a line each: "class object: message". */
static char text[65536];

static void add(void *ctx, int error_class, const char *object, const char *message)
{
    (void)ctx;
    ck_assert(object[0] && message[0]);
    size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, "%s %s: %s\n", cairn_class_name(error_class), object,
             message);
}

static int verify_ids(const char *const *ids, size_t n)
{
    struct cairn_verify_options o = {.ids = ids, .n_ids = n, .found = add};
    text[0] = 0;
    return cairn_verify(k.s, NULL, &o, &result, &err);
}

/* As many faults as different lines, and one that begins so and has this text. */
static void found(uint64_t errors, const char *beginning, const char *has)
{
    ck_ok(verify_ids(NULL, 0));
    char *rest = text;
    const char *before = "";
    uint64_t different = 0;
    bool there = false;
    for (char *line_at; (line_at = strsep(&rest, "\n")) && *line_at; before = line_at) {
        different += strcmp(line_at, before) != 0;
        there =
            there || (strncmp(line_at, beginning, strlen(beginning)) == 0 && strstr(line_at, has));
    }
    ck_assert_uint_ge(result.errors, errors);
    ck_assert_uint_eq(different, errors + result.unknown_keys);
    ck_assert_msg(there, "no \"%s\" with \"%s\"", beginning, has);
}

static void load(const char *id, struct manifest **m)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    ck_ok(store_load(k.s, NULL, id, &meta, gen, m, &err));
}

static char pack[KEY_MAX], a_key[KEY_MAX], b_key[KEY_MAX], line[KEY_MAX + 16];

/* A and its fork B share a pack; C has its own, with nothing in common. */
static void start(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem, .chunk_size = 4096});
    kit_sample(&k, "one", 1);
    kit_fill(&k, "two", "f", 200000, 0, 99);
    ck_ok(kit_publish(&k, CK_A, "one", "a", NULL, &err));
    ck_ok(kit_fork(&k, CK_A, CK_B, "b", &err));
    ck_ok(kit_publish(&k, CK_C, "two", "c", NULL, &err));
    kit_export_key(CK_A, "a", a_key);
    kit_export_key(CK_B, "b", b_key);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    load(CK_A, &m);
    ck_assert_uint_eq(manifest_info(m)->n_packs, 1);
    layout_pack(manifest_pack(m, 0), pack);
}

static const char *at(const char *class_name, const char *key)
{
    snprintf(line, sizeof(line), "%s %s: ", class_name, key);
    return line;
}

START_TEST(test_verify__a_whole_store_has_no_fault)
{
    start(false);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_eq(result.errors, 0);
    ck_assert_uint_eq(result.unknown_keys, 0);
    ck_assert_uint_eq(result.checked_records, 3);
    ck_assert_uint_eq(result.checked_packs, 2);
    struct cairn_stats st;
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(result.checked_chunks, st.chunks);
    ck_assert_str_eq(text, "");
    static const char *const one[] = {CK_B};
    ck_ok(verify_ids(one, 1));
    ck_assert_uint_eq(result.checked_records, 1);
    ck_assert_uint_eq(result.checked_packs, 0);
    static const char *const none[] = {"ck_00000000000000ee"}, *const bad[] = {"x"};
    ck_fails(verify_ids(none, 1), CAIRN_NOT_FOUND);
    ck_fails(verify_ids(bad, 1), CAIRN_INVALID);
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    struct cairn_verify_options o = {0};
    ck_fails(cairn_verify(k.s, &op, &o, &result, &err), CAIRN_TIMEOUT);
    kit_stop(&k);
}
END_TEST

static void damaged_chunk(bool mem)
{
    start(mem);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    load(CK_A, &m);
    struct chunk c;
    manifest_chunk(m, 7, &c);
    kit_damage(&k, pack, c.loc.offset + c.loc.stored_len - 1);
    char where[64];
    snprintf(where, sizeof(where), "offset %u", c.loc.offset);
    /* Both records suffer, and both are named. */
    found(2, at("corrupt", a_key), where);
    found(2, at("corrupt", b_key), where);
    static const char *const ids[] = {CK_B}, *const other[] = {CK_C}, *const both[] = {CK_B, CK_A};
    ck_ok(verify_ids(ids, 1));
    ck_assert_uint_eq(result.errors, 1);
    ck_ok(verify_ids(both, 2));
    ck_assert_uint_eq(result.errors, 2);
    ck_ok(verify_ids(other, 1));
    ck_assert_uint_eq(result.errors, 0);
    /* Without any record the pack is what is named. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
    found(1, at("corrupt", pack), where);
    kit_stop(&k);
}

START_TEST(test_verify__a_damaged_chunk_is_told_for_every_record_that_has_it)
{
    damaged_chunk(false);
    damaged_chunk(true);
}
END_TEST

START_TEST(test_verify__a_missing_pack_is_told_once_for_every_record)
{
    start(false);
    kit_reopen(&k);
    kit_remove(&k, pack);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_ptr_nonnull(strstr(text, a_key));
    ck_assert_ptr_nonnull(strstr(text, b_key));
    ck_assert_ptr_null(strstr(text, CK_C));
    ck_assert_ptr_nonnull(strstr(text, pack));
    kit_stop(&k);
}
END_TEST

START_TEST(test_verify__every_byte_of_pack_index_manifest_and_meta_counts)
{
    start(true);
    CLEANUP_BUF struct buf data = BUF_INIT(64 << 20);
    kit_get(&k, pack, &data);
    /* Header and index of the pack: nothing but verify and an index being built reads them. */
    for (uint64_t off = 0; off < PACK_HEADER_LEN; off += 3) {
        kit_damage(&k, pack, off);
        found(1, at("corrupt", pack), "");
        kit_damage(&k, pack, off);
    }
    for (uint64_t off = data.len - 2000; off < data.len; off += 13) {
        kit_damage(&k, pack, off);
        found(1, at("corrupt", pack), "");
        kit_damage(&k, pack, off);
    }
    buf_clear(&data);
    kit_get(&k, a_key, &data);
    for (uint64_t off = 0; off < data.len; off += 17) {
        kit_damage(&k, a_key, off);
        found(1, at("corrupt", a_key), "");
        kit_damage(&k, a_key, off);
    }
    /* Another meta names another generation, which has no export. */
    char meta[KEY_MAX], other[KEY_MAX];
    layout_meta(CK_A, meta);
    kit_put(&k, meta, "other", 5);
    kit_export_key(CK_A, "other", other);
    found(1, at("not_found", other), "no export");
    CLEANUP_FREE char *big = calloc(1, META_MAX + 1);
    kit_put(&k, meta, big, META_MAX + 1);
    found(1, at("corrupt", meta), "");
    kit_put(&k, meta, "a", 1);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_eq(result.errors, 0);
    kit_stop(&k);
}
END_TEST

/* Damage that the checksums of the formats do not show, because whoever made it sealed it again. */
START_TEST(test_verify__sealed_lies_are_found)
{
    start(true);
    CLEANUP_BUF struct buf data = BUF_INIT(64 << 20);
    kit_get(&k, a_key, &data);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    load(CK_A, &m);
    size_t len;
    const uint8_t *bytes = manifest_bytes(m, &len);
    /* The content key of a file, and the keyed hash of a chunk. */
    struct manifest_file f;
    manifest_file(m, 1, &f);
    const uint8_t *content = memmem(bytes, len, f.content, MANIFEST_CONTENT_LEN);
    ck_assert_ptr_nonnull(content);
    data.data[content - bytes] ^= 1;
    sample_reseal_manifest(data.data, data.len);
    kit_put(&k, a_key, data.data, data.len);
    found(1, at("corrupt", a_key), "");
    data.data[content - bytes] ^= 1;
    size_t xxh = (size_t)(manifest_chunk_xxh(m, 3) - bytes);
    data.data[xxh] ^= 1;
    sample_reseal_manifest(data.data, data.len);
    kit_put(&k, a_key, data.data, data.len);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_ge(result.errors, 1);
    ck_assert_ptr_nonnull(strstr(text, a_key));
    kit_put(&k, a_key, bytes, len);
    /* An uncommitted manifest is read too, but its packs may be gone. */
    char key[KEY_MAX];
    kit_export_key(CK_A, "uncommitted", key);
    kit_put(&k, key, bytes, len);
    found(1, at("corrupt", key), CK_A);
    kit_stop(&k);
}
END_TEST

START_TEST(test_verify__foreign_keys_are_named_and_no_fault)
{
    start(false);
    static const char *const foreign[] = {
        "notes.txt",  "records/ck_00000000000000aa/extra",         "records/readme",
        "packs/zz/x", "packs/00/11111111111111111111111111111111", "gc/closed/x",
        "other/a/b/c"};
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        kit_put(&k, foreign[i], "x", 1);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_eq(result.errors, 0);
    ck_assert_uint_eq(result.unknown_keys, ARRAY_SIZE(foreign));
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
        snprintf(line, sizeof(line), "ok %s: ", foreign[i]);
        ck_assert_msg(strstr(text, line), "%s is not named in %s", foreign[i], text);
    }
    kit_stop(&k);
}
END_TEST

START_TEST(test_verify__a_removal_cut_short_is_no_fault)
{
    start(false);
    char tomb[KEY_MAX], json[128], gen[GEN_TEXT];
    ck_ok(gen_of_meta("a", 1, gen, &err));
    layout_tomb(CK_A, tomb);
    snprintf(json, sizeof(json), "{\"id\":\"" CK_A "\",\"gens\":[\"%s\"]}", gen);
    kit_put(&k, tomb, json, strlen(json));
    kit_remove(&k, a_key);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_eq(result.errors, 0);
    kit_put(&k, tomb, "garbage", 7);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_ge(result.errors, 1);
    ck_assert_ptr_nonnull(strstr(text, tomb));
    kit_stop(&k);
}
END_TEST

START_TEST(test_verify__the_index_is_repaired)
{
    start(false);
    ck_ok(index_clear(k.s->index, &err));
    struct cairn_verify_options o = {.repair_index = true, .found = add};
    ck_ok(cairn_verify(k.s, NULL, &o, &result, &err));
    ck_assert_uint_eq(result.errors, 0);
    struct index_stats st;
    ck_ok(index_stats(k.s->index, &st, &err));
    ck_assert_uint_eq(st.packs, 2);
    ck_assert_uint_eq(st.chunks, result.checked_chunks);
    ck_ok(kit_publish(&k, TP_A, "two", NULL, NULL, &err));
    ck_assert_uint_eq(k.result.new_chunks, 0);
    /* A damaged pack is left out and told, the others are taken. */
    CLEANUP_BUF struct buf data = BUF_INIT(64 << 20);
    kit_get(&k, pack, &data);
    kit_damage(&k, pack, data.len - 1);
    text[0] = 0;
    ck_ok(cairn_verify(k.s, NULL, &o, &result, &err));
    ck_assert_uint_eq(result.errors, 1);
    ck_ok(index_stats(k.s->index, &st, &err));
    ck_assert_uint_eq(st.packs, 1);
    ck_ok(kit_publish(&k, TP_B, "two", NULL, NULL, &err));
    ck_assert_uint_eq(k.result.new_chunks, 0);
    kit_stop(&k);
}
END_TEST

START_TEST(test_verify__a_damaged_trace_is_told)
{
    char key[KEY_MAX], gen[GEN_TEXT];
    start(false);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    load(CK_A, &m);
    memcpy(gen, manifest_info(m)->gen, GEN_TEXT);
    layout_trace(CK_A, gen, key);
    kit_put(&k, key, "{\"files\":[],\"touched\":[]}", 25);
    ck_ok(verify_ids(NULL, 0));
    ck_assert_uint_eq(result.errors + result.unknown_keys, 0);
    kit_put(&k, key, "{\"files\":[],\"touched\":[7]}", 26);
    snprintf(line, sizeof(line), "corrupt %s", key);
    found(1, line, "no trace");
    /* Of a record that is asked for by its id only what it needs is looked at. */
    const char *const ids[] = {CK_A};
    ck_ok(verify_ids(ids, 1));
    ck_assert_uint_eq(result.errors, 0);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(verify, test_verify__a_damaged_trace_is_told, test_verify__a_whole_store_has_no_fault,
             test_verify__a_damaged_chunk_is_told_for_every_record_that_has_it,
             test_verify__a_missing_pack_is_told_once_for_every_record,
             test_verify__every_byte_of_pack_index_manifest_and_meta_counts,
             test_verify__sealed_lies_are_found, test_verify__foreign_keys_are_named_and_no_fault,
             test_verify__a_removal_cut_short_is_no_fault, test_verify__the_index_is_repaired)
