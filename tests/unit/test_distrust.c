/* Nothing that was seen once is taken for true the second time: bytes read again, manifests loaded
 * again, the index's memory of damaged packs, names that an earlier process left. */
#include "base/hash.h"
#include "base/util.h"
#include "store/pack_set.h"
#include "store/relocate.h"
#include "store/remove.h"
#include "store/tomb.h"
#include "tests/lib/kit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define META_A "{\"id\":\"a\"}"
#define META_B "{\"id\":\"b\"}"

static struct cairn_error err;
static struct kit k;

static void all_packs(const struct manifest *m, struct pack_set *out)
{
    for (uint32_t i = 0; i < manifest_info(m)->n_packs; i++)
        ck_ok(pack_set_add(out, manifest_pack(m, i), &err));
}

static struct manifest *load(const char *id)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(CAIRN_META_MAX);
    char gen[GEN_TEXT];
    struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, id, &meta, gen, &m, &err));
    return m;
}

/* ---- relocate.c ---- */

/* A bit flips on the way in each single read of a pack, one after the other, while chunks move. */
START_TEST(test_relocate__stores_only_bytes_that_were_verified)
{
    const struct kit_options opt = {.mem = true, .faulty = true};
    kit_start(&k, &opt);
    static const uint8_t text[200000] = "compresses well";
    kit_fill(&k, "x", "raw", 150000, 0, 1);
    kit_write(&k, "x", "encoded", text, sizeof(text), 0);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    CLEANUP_MANIFEST struct manifest *m = load(CK_A);
    CLEANUP_PACK_SET struct pack_set packs = {0};
    all_packs(m, &packs);
    char key[KEY_MAX];
    kit_export_key(CK_A, META_A, key);
    for (unsigned nth = 1, fired = 1; fired; nth++) {
        ck_assert_uint_lt(nth, 100);
        backend_fault_clear(k.s->backend);
        const struct fault_plan flip = {
            .op = FAULT_READ, .kind = FAULT_FLIP, .nth = nth, .key_part = "packs/", .keep = 77};
        ck_ok(backend_fault_add(k.s->backend, &flip, &err));
        CLEANUP_MANIFEST struct manifest *moved = NULL;
        ck_ok(relocate_chunks(k.s, NULL, m, &packs, &moved, &err));
        fired = backend_fault_fired(k.s->backend);
        backend_fault_clear(k.s->backend);
        size_t len;
        const uint8_t *data = manifest_bytes(moved, &len);
        kit_put(&k, key, data, len);
        kit_same(&k, CK_A, "x");
    }
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

/* ---- fetch.c ---- */

/* Swap the numbers of chunks 0 and 1, each the whole of a file of its own: the same export. */
static void renumber(uint8_t *data, size_t len)
{
    uint64_t extents = get_le64(data + 88), chunks = get_le64(data + 96);
    uint8_t room[64];
    memcpy(room, data + chunks, 64);
    memcpy(data + chunks, data + chunks + 64, 64);
    memcpy(data + chunks + 64, room, 64);
    put_le32(data + extents + 12, 1);
    put_le32(data + extents + 16 + 12, 0);
    ck_ok(hash_sha256(data, len - 32, data + len - 32, &err));
}

START_TEST(test_fetch__follows_a_manifest_that_numbers_its_chunks_anew)
{
    const struct kit_options opt = {.compression = CAIRN_COMPRESSION_NONE};
    kit_start(&k, &opt);
    kit_fill(&k, "x", "a", 65536, 0, 1);
    kit_fill(&k, "x", "b", 65536, 0, 2);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    CLEANUP_MANIFEST struct manifest *m = load(CK_A);
    CLEANUP_MANIFEST struct manifest *moved = NULL;
    CLEANUP_PACK_SET struct pack_set packs = {0};
    all_packs(m, &packs);
    ck_assert_uint_eq(packs.n, 1);
    char key[KEY_MAX], pack[KEY_MAX];
    kit_export_key(CK_A, META_A, key);
    snprintf(pack, sizeof(pack), "%s", kit_first(&k, "packs/"));
    ck_ok(relocate_chunks(k.s, NULL, m, &packs, &moved, &err));
    kit_reopen(&k);
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    size_t len;
    const uint8_t *bytes = manifest_bytes(moved, &len);
    CLEANUP_FREE uint8_t *data = malloc(len);
    memcpy(data, bytes, len);
    renumber(data, len);
    kit_put(&k, key, data, len);
    kit_remove(&k, pack);
    char target[512];
    snprintf(target, sizeof(target), "%s/out", k.stage);
    struct cairn_fetch_result result;
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &result, &err));
    kit_same_folder(r, target);
    /* The same by the way that looks each chunk up. */
    kit_same_folder(r, kit_path(&k, "x", NULL));
    char a[600], b[600];
    static uint8_t got[65536], want[65536];
    for (const char *name = "ab"; *name; name++) {
        snprintf(a, sizeof(a), "%s/%c", target, *name);
        snprintf(b, sizeof(b), "%s/x/%c", k.stage, *name);
        FILE *f = fopen(a, "re"), *g = fopen(b, "re");
        ck_assert(f && g);
        ck_assert_uint_eq(fread(got, 1, sizeof(got), f), sizeof(got));
        ck_assert_uint_eq(fread(want, 1, sizeof(want), g), sizeof(want));
        ck_assert_mem_eq(got, want, sizeof(got));
        fclose(f);
        fclose(g);
    }
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* ---- chunk_io.c ---- */

START_TEST(test_chunk_io__what_was_found_damaged_is_stored_again)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", 200000, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    kit_damage(&k, kit_first(&k, "packs/"), 5000);
    kit_reopen(&k);
    const struct cairn_verify_options opt = {0};
    struct cairn_verify_result result;
    ck_ok(cairn_verify(k.s, NULL, &opt, &result, &err));
    ck_assert_uint_gt(result.errors, 0);
    ck_ok(kit_publish(&k, CK_B, "x", META_B, NULL, &err));
    kit_same(&k, CK_B, "x");
    kit_stop(&k);
}
END_TEST

/* ---- commit.c ---- */

START_TEST(test_commit__a_pack_that_was_cut_short_is_stored_again)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", 200000, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", k.root, kit_first(&k, "packs/"));
    ck_assert_int_eq(truncate(path, 5000), 0);
    kit_reopen(&k);
    ck_ok(kit_publish(&k, CK_B, "x", META_B, CK_A, &err));
    kit_same(&k, CK_B, "x");
    ck_fails(kit_fork(&k, CK_A, CK_C, NULL, &err), CAIRN_CORRUPT);
    kit_stop(&k);
}
END_TEST

/* ---- backend_dir_record.c ---- */

/* A writer was killed between the rename of meta.json and the fsync of its folder, whose mark is
 * still there. Who then says "it is published" must have made it so. */
START_TEST(test_backend_dir_record__lock_makes_durable_what_a_killed_writer_committed)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", 5000, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    char folder[512];
    struct stat st;
    snprintf(folder, sizeof(folder), "%s/records/" CK_A, k.root);
    ck_assert_int_eq(stat(folder, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(chmod(folder, 01700), 0);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    ck_assert(k.result.unchanged);
    ck_assert_int_eq(stat(folder, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    kit_stop(&k);
}
END_TEST

/* ---- hold.c ---- */

/* A removal holds the lock from its look for a hold to its last step. */
START_TEST(test_hold__is_not_promised_while_a_writer_is_at_work)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", 5000, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    int lock;
    ck_ok(k.s->backend->ops->lock(k.s->backend, NULL, CK_A, &lock, &err));
    ck_fails(cairn_hold(k.s, NULL, CK_A, &err), CAIRN_BUSY);
    k.s->backend->ops->unlock(k.s->backend, CK_A, lock);
    ck_ok(cairn_hold(k.s, NULL, CK_A, &err));
    ck_fails(cairn_delete(k.s, NULL, CK_A, &err), CAIRN_BUSY);
    ck_fails(cairn_hold(k.s, NULL, CK_B, &err), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(kit_objects(&k, "records/"), 2);
    kit_stop(&k);
}
END_TEST

/* A removal was killed after its tombstone: any sweep will finish it, without a look at holds. */
START_TEST(test_hold__is_not_promised_for_what_a_sweep_will_remove)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", 5000, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
    CLEANUP_MANIFEST struct manifest *m = load(CK_A);
    CLEANUP_TOMB struct tomb t = {0};
    ck_ok(tomb_add_gen(&t, manifest_info(m)->gen, &err));
    ck_ok(tomb_put(k.s, NULL, CK_A, &t, &err));
    ck_fails(cairn_hold(k.s, NULL, CK_A, &err), CAIRN_BUSY);
    ck_ok(remove_finish(k.s, NULL, CK_A, &err));
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(kit_objects(&k, "holds/"), 0);
    kit_stop(&k);
}
END_TEST

/* ---- store.c ---- */

/* The generation was superseded and swept between the reads of meta.json and of its manifest, and
 * the next look at meta.json fails: the record may well be there. */
START_TEST(test_store__a_look_that_failed_is_no_absence)
{
    const struct kit_options opt = {.faulty = true};
    kit_start(&k, &opt);
    kit_fill(&k, "x", "a", 5000, 0, 1);
    ck_ok(kit_publish(&k, TP_A, "x", META_A, NULL, &err));
    backend_fault_clear(k.s->backend);
    const struct fault_plan swept = {.op = FAULT_GET,
                                     .kind = FAULT_FAIL,
                                     .nth = 1,
                                     .key_part = "/export-",
                                     .error_class = CAIRN_NOT_FOUND};
    const struct fault_plan fails = {.op = FAULT_GET,
                                     .kind = FAULT_FAIL,
                                     .nth = 2,
                                     .key_part = "/meta.json",
                                     .error_class = CAIRN_TRANSIENT};
    ck_ok(backend_fault_add(k.s->backend, &swept, &err));
    ck_ok(backend_fault_add(k.s->backend, &fails, &err));
    struct cairn_record *r = NULL;
    ck_fails(cairn_record_open(k.s, NULL, TP_A, &r, &err), CAIRN_TRANSIENT);
    ck_assert_uint_eq(backend_fault_fired(k.s->backend), 2);
    backend_fault_clear(k.s->backend);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(distrust, test_relocate__stores_only_bytes_that_were_verified,
             test_fetch__follows_a_manifest_that_numbers_its_chunks_anew,
             test_chunk_io__what_was_found_damaged_is_stored_again,
             test_commit__a_pack_that_was_cut_short_is_stored_again,
             test_backend_dir_record__lock_makes_durable_what_a_killed_writer_committed,
             test_hold__is_not_promised_while_a_writer_is_at_work,
             test_hold__is_not_promised_for_what_a_sweep_will_remove,
             test_store__a_look_that_failed_is_no_absence)
