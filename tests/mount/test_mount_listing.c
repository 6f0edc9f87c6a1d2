/* Listings that others change meanwhile, records that cannot be read, and how soon what another
 * node did is seen. */
#include "base/util.h"
#include "store/layout.h"
#include "tests/mount/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct cairn_error err;
static struct world w;
static char gen[17];

/* getdents64(2): a struct of the kernel's. */
struct entry {
    uint64_t ino;
    int64_t off;
    unsigned short len;
    unsigned char type;
    char name[];
};

#define BATCH 1024 /* bytes: a few names at a time */

struct seen {
    char names[4096][40];
    unsigned char types[4096];
    size_t n;
};

/* One more batch; false at the end. */
static bool batch(int fd, struct seen *seen)
{
    char buf[BATCH] __attribute__((aligned(8)));
    long n = ck_sys(syscall(SYS_getdents64, fd, buf, sizeof(buf)));
    for (long at = 0; at < n;) {
        const struct entry *e = (const struct entry *)(buf + at);
        if (e->name[0] != '.') {
            ck_assert_uint_lt(seen->n, ARRAY_SIZE(seen->names));
            seen->types[seen->n] = e->type;
            snprintf(seen->names[seen->n++], sizeof(seen->names[0]), "%.39s", e->name);
        }
        at += e->len;
    }
    return n > 0;
}

static size_t count(const struct seen *seen, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < seen->n; i++)
        n += strcmp(seen->names[i], name) == 0;
    return n;
}

static void record_id(char id[32], unsigned i)
{
    snprintf(id, 32, "ck_%016x", i);
}

#define RECORDS 120u

static void fork_many(struct cairn_store *s)
{
    char id[32], meta[64], fork[CAIRN_GEN_TEXT];
    for (unsigned i = 0; i < RECORDS; i++) {
        record_id(id, i);
        int n = snprintf(meta, sizeof(meta), "{\"n\":%u}", i);
        ck_ok(cairn_fork(s, NULL, STAGE_T, id, meta, (size_t)n, fork, &err));
    }
}

START_TEST(test_listing__is_complete_while_records_go)
{
    static struct seen seen;
    char id[32];
    world_start(&w, 1, NULL);
    stage_file(&w, "f", 0, 100, 1, 0);
    stage_publish(&w, STAGE_T, "{}", false, gen);
    struct cairn_store *s = world_store(&w);
    fork_many(s);
    int fd = ck_sys(open(world_path(&w, 0, NULL), O_RDONLY | O_DIRECTORY));
    ck_assert(batch(fd, &seen));
    ck_assert_uint_gt(seen.n, 5);
    ck_assert_uint_lt(seen.n, RECORDS / 2);
    for (unsigned i = 0; i < RECORDS; i += 2) {
        record_id(id, i);
        ck_ok(cairn_delete(s, NULL, id, &err));
    }
    while (batch(fd, &seen))
        ;
    close(fd);
    for (unsigned i = 1; i < RECORDS; i += 2) {
        record_id(id, i);
        ck_assert_uint_eq(count(&seen, id), 1);
    }
    for (size_t i = 0; i < seen.n; i++) {
        ck_assert_uint_eq(count(&seen, seen.names[i]), 1);
        ck_assert_uint_eq(seen.types[i], DT_DIR);
    }
    cairn_close(s);
    world_stop(&w);
}
END_TEST

START_TEST(test_listing__shows_what_is_there_with_its_type)
{
    static struct seen root, record, export;
    char name[64];
    world_start(&w, 1, NULL);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "many/f%03u", i);
        stage_file(&w, name, 0, i % 3, i, 0);
    }
    stage_file(&w, "many-not", 0, 5, 1, 0);
    stage_publish(&w, STAGE_A, "{}", true, gen);
    struct seen *seen[3] = {&root, &record, &export};
    const char *path[3] = {world_path(&w, 0, NULL), world_path(&w, 0, STAGE_A),
                           stage_shown(&w, 0, STAGE_A, gen, "many")};
    for (int i = 0; i < 3; i++) {
        int fd = ck_sys(open(path[i], O_RDONLY | O_DIRECTORY));
        while (batch(fd, seen[i]))
            ;
        /* Again from its start. */
        size_t n = seen[i]->n;
        ck_sys(lseek(fd, 0, SEEK_SET));
        seen[i]->n = 0;
        while (batch(fd, seen[i]))
            ;
        ck_assert_uint_eq(seen[i]->n, n);
        close(fd);
    }
    ck_assert_uint_eq(root.n, 1);
    ck_assert_uint_eq(count(&root, STAGE_A), 1);
    ck_assert_uint_eq(record.n, 3);
    ck_assert_uint_eq(count(&record, "meta.json"), 1);
    snprintf(name, sizeof(name), "export-%s", gen);
    ck_assert_uint_eq(count(&record, name), 1);
    snprintf(name, sizeof(name), "digest-%s", gen);
    ck_assert_uint_eq(count(&record, name), 1);
    ck_assert_uint_eq(export.n, 300);
    for (size_t i = 0; i < export.n; i++)
        ck_assert_uint_eq(export.types[i], DT_REG);
    world_stop(&w);
}
END_TEST

/* ---- Records that cannot be read ------------------------------------------------------------- */

static void spoil(const char *id, const char *which, bool remove)
{
    char key[KEY_MAX], path[1024];
    layout_export(id, which, key);
    snprintf(path, sizeof(path), "%s/%s", w.store, key);
    if (remove) {
        ck_sys(unlink(path));
        return;
    }
    ck_sys(chmod(path, 0600));
    CLEANUP_FD int fd = ck_sys(open(path, O_RDWR));
    ck_assert_int_eq(util_pwrite_full(fd, "damage", 6, 20), 6);
}

START_TEST(test_listing__survives_records_that_cannot_be_read)
{
    static struct seen seen;
    char damaged[17], lost[17], path[256];
    world_start(&w, 1, NULL);
    if (w.s3)
        return; /* what lies in a bucket is damaged elsewhere */
    stage_file(&w, "f", 0, 100000, 1, 0);
    stage_publish(&w, STAGE_A, "{\"n\":1}", false, damaged);
    stage_publish(&w, STAGE_B, "{\"n\":2}", false, lost);
    stage_publish(&w, STAGE_T, "{\"n\":3}", false, gen);
    spoil(STAGE_A, damaged, false);
    spoil(STAGE_B, lost, true);
    int fd = ck_sys(open(world_path(&w, 0, NULL), O_RDONLY | O_DIRECTORY));
    while (batch(fd, &seen))
        ;
    close(fd);
    ck_assert_uint_eq(count(&seen, STAGE_A), 1);
    ck_assert_uint_eq(count(&seen, STAGE_B), 1);
    ck_assert_uint_eq(count(&seen, STAGE_T), 1);
    /* What is damaged has its meta and says so where its files are wanted; what lost its manifest
     * is no record, which whoever lists passes over. */
    close(ck_sys(open(world_path(&w, 0, STAGE_A "/meta.json"), O_RDONLY)));
    ck_sys(stat(stage_shown(&w, 0, STAGE_A, damaged, NULL), &(struct stat){0}));
    ck_errno(open(stage_shown(&w, 0, STAGE_A, damaged, "f"), O_RDONLY), EIO);
    ck_errno(open(stage_shown(&w, 0, STAGE_A, damaged, NULL), O_RDONLY | O_DIRECTORY), EIO);
    ck_errno(open(world_path(&w, 0, STAGE_B "/meta.json"), O_RDONLY), ENOENT);
    ck_errno(open(stage_shown(&w, 0, STAGE_B, lost, NULL), O_RDONLY), ENOENT);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s", i == 0 ? STAGE_A : i == 1 ? STAGE_B : STAGE_T);
        fd = ck_sys(open(world_path(&w, 0, path), O_RDONLY | O_DIRECTORY));
        static struct seen inner;
        inner.n = 0;
        while (batch(fd, &inner))
            ;
        close(fd);
        ck_assert_uint_eq(count(&inner, "meta.json"), i != 1);
    }
    stage_same(stage_path(&w, "f"), stage_shown(&w, 0, STAGE_T, gen, "f"));
    world_stop(&w);
}
END_TEST

START_TEST(test_listing__a_damaged_chunk_is_an_error_of_its_own_pages)
{
    char path[1024];
    world_start(&w, 1, NULL);
    if (w.s3)
        return;
    stage_file(&w, "f", 0, 8 << 20, 1, 0);
    stage_file(&w, "g", 0, 8 << 20, 2, 0);
    stage_publish(&w, STAGE_A, "{}", false, gen);
    snprintf(path, sizeof(path),
             "p=$(find %s/packs -type f | head -n 1); chmod 600 $p; printf xxxx | dd of=$p bs=1 "
             "seek=1000000 conv=notrunc status=none",
             w.store);
    ck_assert_int_eq(system(path), 0);
    uint8_t buf[4096], want[4096];
    size_t failed = 0;
    const char *names[] = {"f", "g"};
    for (int i = 0; i < 2; i++) {
        CLEANUP_FD int fd = ck_sys(open(stage_shown(&w, 0, STAGE_A, gen, names[i]), O_RDONLY));
        CLEANUP_FD int source = ck_sys(open(stage_path(&w, names[i]), O_RDONLY));
        for (uint64_t at = 0; at < 8 << 20; at += 65536) {
            ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
            ck_assert_int_eq(util_pread_full(source, want, sizeof(want), at), 4096);
            ssize_t n = util_pread_full(fd, buf, sizeof(buf), at);
            if (n < 0) {
                ck_assert_int_eq(errno, EIO);
                failed++;
            } else {
                ck_assert(memcmp(buf, want, sizeof(buf)) == 0);
            }
        }
    }
    ck_assert_uint_eq(failed, 1);
    world_stop(&w);
}
END_TEST

/* ---- Freshness ------------------------------------------------------------------------------- */

static void read_meta(size_t node, const char *id, char out[64])
{
    char path[128];
    snprintf(path, sizeof(path), "%s/meta.json", id);
    CLEANUP_FD int fd = ck_sys(open(world_path(&w, node, path), O_RDONLY));
    ssize_t n = ck_sys(read(fd, out, 63));
    out[n] = 0;
}

START_TEST(test_listing__what_others_do_is_seen_within_two_seconds)
{
    char first[17], second[17], meta[64];
    world_start(&w, 2, NULL);
    stage_file(&w, "f", 0, 100000, 1, 0);
    stage_publish(&w, STAGE_T, "{\"n\":1}", true, first);
    stage_publish(&w, STAGE_B, "{\"n\":9}", true, gen);
    for (size_t node = 0; node < 2; node++) {
        ck_errno(stat(world_path(&w, node, STAGE_A), &(struct stat){0}), ENOENT);
        ck_errno(stat(world_path(&w, node, STAGE_A "/meta.json"), &(struct stat){0}), ENOENT);
        read_meta(node, STAGE_T, meta);
        ck_assert_str_eq(meta, "{\"n\":1}");
        stage_same(stage_path(&w, "f"), stage_shown(&w, node, STAGE_B, gen, "f"));
    }
    stage_file(&w, "f", 0, 100000, 2, 0);
    stage_publish(&w, STAGE_T, "{\"n\":2}", true, second);
    stage_fork(&w, STAGE_T, STAGE_A, "{\"n\":3}", first);
    stage_delete(&w, STAGE_B);
    sleep(2);
    for (size_t node = 0; node < 2; node++) {
        read_meta(node, STAGE_T, meta);
        ck_assert_str_eq(meta, "{\"n\":2}");
        /* Whoever sees the meta sees what it names. */
        stage_same(stage_path(&w, "f"), stage_shown(&w, node, STAGE_T, second, "f"));
        read_meta(node, STAGE_A, meta);
        ck_assert_str_eq(meta, "{\"n\":3}");
        stage_same(stage_path(&w, "f"), stage_shown(&w, node, STAGE_A, first, "f"));
        ck_errno(stat(world_path(&w, node, STAGE_B), &(struct stat){0}), ENOENT);
        ck_errno(open(world_path(&w, node, STAGE_B "/meta.json"), O_RDONLY), ENOENT);
        ck_errno(open(stage_shown(&w, node, STAGE_B, gen, "f"), O_RDONLY), ENOENT);
    }
    world_stop(&w);
}
END_TEST

START_TEST(test_listing__an_open_meta_keeps_its_bytes)
{
    char first[17], got[64] = "";
    world_start(&w, 1, NULL);
    stage_file(&w, "f", 0, 1000, 1, 0);
    stage_publish(&w, STAGE_T, "{\"n\":1}", false, first);
    int fd = ck_sys(open(world_path(&w, 0, STAGE_T "/meta.json"), O_RDONLY));
    stage_publish(&w, STAGE_T, "{\"n\":2}", false, gen);
    sleep(2);
    char now[64];
    read_meta(0, STAGE_T, now);
    ck_assert_str_eq(now, "{\"n\":2}");
    ck_assert_int_eq(pread(fd, got, sizeof(got), 0), 7);
    ck_assert_mem_eq(got, "{\"n\":1}", 7);
    close(fd);
    /* The superseded generation is there for those who know it. */
    stage_same(stage_path(&w, "f"), stage_shown(&w, 0, STAGE_T, first, "f"));
    world_stop(&w);
}
END_TEST

TESTING_MAIN(mount_listing, test_listing__is_complete_while_records_go,
             test_listing__shows_what_is_there_with_its_type,
             test_listing__survives_records_that_cannot_be_read,
             test_listing__a_damaged_chunk_is_an_error_of_its_own_pages,
             test_listing__what_others_do_is_seen_within_two_seconds,
             test_listing__an_open_meta_keeps_its_bytes)
