/* Sizes at which 32-bit arithmetic breaks, in files that cost next to nothing. */
#include "base/util.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static struct cairn_error err;
static struct kit k;

static void manifest_is_small(const char *id)
{
    char prefix[KEY_MAX];
    snprintf(prefix, sizeof(prefix), "records/%s/export-", id);
    CLEANUP_BUF struct buf manifest = BUF_INIT(MIB);
    kit_get(&k, kit_first(&k, prefix), &manifest);
    ck_assert_uint_lt(manifest.len, KIB);
}

/* len bytes at off of the record's file are what seed gives; next to them are zeros. */
static void is_at(struct cairn_record *r, const char *path, size_t len, uint64_t off, uint64_t seed)
{
    static uint8_t want[4096], is[4096 + 32];
    int64_t i = cairn_record_find(r, path);
    ck_assert_int_ge(i, 0);
    struct cairn_file f;
    cairn_record_file(r, (uint64_t)i, &f);
    testing_fill(want, len, seed);
    uint64_t from = off >= 16 ? off - 16 : 0;
    size_t lead = (size_t)(off - from), got;
    ck_ok(cairn_record_pread(r, NULL, (uint64_t)i, is, lead + len + 16, from, &got, &err));
    ck_assert_uint_eq(got, off + len + 16 <= f.size ? lead + len + 16 : f.size - from);
    ck_assert(util_is_zero(is, lead));
    ck_assert_int_eq(memcmp(is + lead, want, len), 0);
    ck_assert(util_is_zero(is + lead + len, got - lead - len));
}

START_TEST(test_publish_large__64_gib_with_three_writes_cost_three_pages)
{
    kit_start(&k, NULL);
    static const uint64_t at[] = {0, 32 * GIB, 64 * GIB - 4096};
    kit_truncate(&k, "one", "memory", 64 * GIB);
    for (size_t i = 0; i < ARRAY_SIZE(at); i++)
        kit_fill(&k, "one", "memory", 4096, at[i], i);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert_double_lt(k.result.seconds, 10);
    ck_assert_uint_eq(k.result.logical_bytes, 64 * GIB);
    ck_assert_uint_eq(k.result.chunks, 3);
    manifest_is_small(CK_A);
    ck_assert_uint_lt(kit_stored(&k), MIB);
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    for (size_t i = 0; i < ARRAY_SIZE(at); i++)
        is_at(r, "memory", 4096, at[i], i);
    ck_assert_uint_eq(cairn_record_seek(r, 0, 65536, false), 32 * GIB);
    ck_assert_uint_eq(cairn_record_seek(r, 0, 32 * GIB, true), 32 * GIB + 65536);
    struct cairn_fetch_result f;
    char target[300];
    snprintf(target, sizeof(target), "%s/out", k.stage);
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &f, &err));
    ck_assert_double_lt(f.seconds, 10);
    cairn_record_close(r);
    struct stat st;
    ck_assert_int_eq(stat(kit_path(&k, "out", "memory"), &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, 64 * GIB);
    ck_assert_uint_lt((uint64_t)st.st_blocks * 512, MIB);
    /* A fork that wrote one page more. */
    kit_fill(&k, "one", "memory", 4096, 48 * GIB + 12345, 9);
    uint64_t before = kit_stored(&k);
    ck_ok(kit_publish(&k, CK_B, "one", NULL, CK_A, &err));
    ck_assert_uint_lt(kit_stored(&k) - before, 64 * KIB);
    ck_ok(cairn_record_open(k.s, NULL, CK_B, &r, &err));
    is_at(r, "memory", 4096, 48 * GIB + 12345, 9);
    is_at(r, "memory", 4096, 64 * GIB - 4096, 2);
    cairn_record_close(r);
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

/* A folder whose file system takes a file of this size: the usual one, or a tmpfs. */
static const char *roomy_folder(uint64_t size)
{
    static const char *const places[] = {NULL, "/dev/shm"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (places[i])
            setenv("TMPDIR", places[i], 1);
        const char *dir = testing_tmpdir();
        char path[300];
        snprintf(path, sizeof(path), "%s/probe", dir);
        CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
            return dir;
    }
    return NULL;
}

START_TEST(test_publish_large__16_tib_less_a_page)
{
    const uint64_t size = 16 * KIB * GIB - 4096;
    if (!roomy_folder(size))
        return; /* no file system here has such files */
    kit_start(&k, NULL);
    kit_truncate(&k, "one", "disk", size);
    kit_fill(&k, "one", "disk", 4096, 0, 1);
    kit_fill(&k, "one", "disk", 4096, 8 * KIB * GIB - 2048, 2);
    kit_fill(&k, "one", "disk", 4096, size - 4096, 3);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert_double_lt(k.result.seconds, 10);
    ck_assert_uint_eq(k.result.logical_bytes, size);
    ck_assert_uint_eq(k.result.chunks, 4);
    manifest_is_small(CK_A);
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    is_at(r, "disk", 4096, 0, 1);
    is_at(r, "disk", 4096, 8 * KIB * GIB - 2048, 2);
    is_at(r, "disk", 4096, size - 4096, 3);
    struct cairn_fetch_result f;
    char target[300];
    snprintf(target, sizeof(target), "%s/out", k.stage);
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &f, &err));
    ck_assert_double_lt(f.seconds, 10);
    cairn_record_close(r);
    CLEANUP_FD int fd = open(kit_path(&k, "out", "disk"), O_RDONLY | O_CLOEXEC);
    uint8_t want[4096], is[4096];
    testing_fill(want, sizeof(want), 3);
    ck_assert_int_eq(util_pread_full(fd, is, sizeof(is), size - 4096), 4096);
    ck_assert_int_eq(memcmp(want, is, sizeof(is)), 0);
    kit_stop(&k);
}
END_TEST

/* ---- Stamps ---- */

#define STAMPS_SIZE (5 * GIB + GIB / 2)

/* Where a stamp of eight bytes, its own offset, is written. */
static size_t stamps(uint64_t *at)
{
    size_t n = 0;
    for (uint64_t off = 64 * MIB; off < STAMPS_SIZE; off += 64 * MIB)
        if (off != 2 * GIB && off != 4 * GIB && off != 5 * GIB)
            at[n++] = off;
    static const uint64_t edges[] = {2 * GIB, 4 * GIB, 5 * GIB};
    for (size_t i = 0; i < ARRAY_SIZE(edges); i++) {
        at[n++] = edges[i] - 4096;
        at[n++] = edges[i] - 8;
        at[n++] = edges[i];
        at[n++] = edges[i] + 8;
    }
    at[n++] = 0;
    at[n++] = STAMPS_SIZE - 8;
    return n;
}

static uint64_t stamp(uint64_t off)
{
    return off ^ 0xa5a5a5a5a5a5a5a5u;
}

START_TEST(test_publish_large__stamps_are_where_they_were)
{
    uint64_t at[256];
    kit_start(&k, &(struct kit_options){.chunk_size = 4096});
    size_t n = stamps(at);
    kit_truncate(&k, "one", "disk", STAMPS_SIZE);
    for (size_t i = 0; i < n; i++) {
        uint64_t v = stamp(at[i]);
        kit_write(&k, "one", "disk", &v, sizeof(v), at[i]);
    }
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_assert_double_lt(k.result.seconds, 10);
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        size_t got;
        ck_ok(cairn_record_pread(r, NULL, 0, &v, sizeof(v), at[i], &got, &err));
        ck_assert_uint_eq(got, sizeof(v));
        ck_assert_uint_eq(v, stamp(at[i]));
    }
    char target[300];
    snprintf(target, sizeof(target), "%s/out", k.stage);
    struct cairn_fetch_result f;
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &f, &err));
    CLEANUP_FD int fd = open(kit_path(&k, "out", "disk"), O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;
        ck_assert_int_eq(util_pread_full(fd, &v, sizeof(v), at[i]), sizeof(v));
        ck_assert_uint_eq(v, stamp(at[i]));
    }
    /* Nothing else: each run of data that the record knows holds a stamp, and so on to the end. */
    uint64_t runs = 0;
    for (uint64_t off = 0; (off = cairn_record_seek(r, 0, off, false)) < STAMPS_SIZE; runs++)
        off = cairn_record_seek(r, 0, off, true);
    ck_assert_uint_eq(runs, n - 9);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(publish_large, test_publish_large__64_gib_with_three_writes_cost_three_pages,
             test_publish_large__16_tib_less_a_page, test_publish_large__stamps_are_where_they_were)
