/* Exports that are odd: huge and nearly empty, beyond 32 bits, with strange names, deep, with many
 * files, or not what their meta.json expects. */
#include "base/util.h"
#include "store/layout.h"
#include "store/store.h"
#include "store/tree.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define GIB  ((uint64_t)1 << 30)

static struct cairn_error err;
static struct world w;
static const char *root;
static char stage[512];

static void begin(const char *meta)
{
    world_start(&w, 1, NULL);
    root = w.node[0].dir;
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_sys(mkdir(in(stage, "export", NULL), 0755));
    ck_assert_int_eq(daemon_stage_meta(stage, meta), 0);
}

static int create(const char *name)
{
    return (int)ck_sys(
        open(in(stage, "export", name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

/* Bytes of all packs. */
static uint64_t stored(void)
{
    struct cairn_stats st;
    struct cairn_store *s = world_store(&w);
    ck_ok(cairn_stats(s, NULL, &st, &err));
    cairn_close(s);
    return st.stored_bytes;
}

static void stamp_of(uint64_t off, uint8_t out[4096])
{
    testing_fill(out, 4096, off + 1);
}

static void check_stamp(int fd, uint64_t off)
{
    uint8_t want[4096], got[4096];
    stamp_of(off, want);
    ck_assert_int_eq(util_pread_full(fd, got, sizeof(got), off), sizeof(got));
    ck_assert_mem_eq(got, want, sizeof(want));
}

/* By seeking past the end, as cp does, or by ftruncate. */
START_TEST(test_mount_exports__what_is_not_written_costs_nothing)
{
    static const uint64_t at[] = {0, 32 * GIB, 64 * GIB - 4096};
    struct stat st;
    uint8_t data[4096];
    begin("{}");
    for (int i = 0; i < 2; i++) {
        int fd = create(i ? "seek" : "truncate");
        if (!i)
            ck_sys(ftruncate(fd, (off_t)(64 * GIB)));
        for (size_t k = 0; k < ARRAY_SIZE(at); k++) {
            stamp_of(at[k], data);
            ck_sys(lseek(fd, (off_t)at[k], SEEK_SET));
            ck_assert_int_eq(write(fd, data, sizeof(data)), sizeof(data));
        }
        ck_sys(fstat(fd, &st));
        ck_assert_int_eq(st.st_size, (off_t)(64 * GIB));
        ck_assert_int_le(st.st_blocks, 128);
        close(fd);
    }
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    ck_assert_uint_lt(stored(), 1 << 20);
    for (int i = 0; i < 2; i++) {
        int fd = (int)ck_sys(open(
            in(gen_path(root, CK_A, "export", "{}"), i ? "seek" : "truncate", NULL), O_RDONLY));
        ck_sys(fstat(fd, &st));
        ck_assert_int_eq(st.st_size, (off_t)(64 * GIB));
        ck_assert_int_le(st.st_blocks, 3 * 128);
        for (size_t k = 0; k < ARRAY_SIZE(at); k++)
            check_stamp(fd, at[k]);
        ck_assert_int_eq(lseek(fd, 4 * GIB, SEEK_DATA), (off_t)(32 * GIB));
        ck_assert_int_gt(lseek(fd, (off_t)(32 * GIB), SEEK_HOLE), (off_t)(32 * GIB));
        close(fd);
    }
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_exports__offsets_have_64_bits)
{
    static const uint64_t borders[] = {(uint64_t)1 << 31, (uint64_t)1 << 32,
                                       5 * ((uint64_t)1 << 30)};
    const uint64_t size = 5 * GIB + GIB / 2;
    uint8_t data[4096];
    struct stat st;
    begin("{}");
    int fd = create("memory-ranges");
    ck_sys(ftruncate(fd, (off_t)size));
    for (uint64_t off = 0; off < size; off += 64 << 20) {
        stamp_of(off, data);
        ck_assert_int_eq(util_pwrite_full(fd, data, sizeof(data), off), sizeof(data));
    }
    for (size_t i = 0; i < ARRAY_SIZE(borders); i++) {
        stamp_of(borders[i] - 4096, data);
        ck_assert_int_eq(util_pwrite_full(fd, data, sizeof(data), borders[i] - 4096), sizeof(data));
    }
    close(fd);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    fd = (int)ck_sys(
        open(in(gen_path(root, CK_A, "export", "{}"), "memory-ranges", NULL), O_RDONLY));
    ck_sys(fstat(fd, &st));
    ck_assert_int_eq(st.st_size, (off_t)size);
    uint8_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    for (uint64_t off = 0; off < size; off += 64 << 20) {
        check_stamp(fd, off);
        stamp_of(off, data);
        ck_assert(memcmp(map + off, data, sizeof(data)) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(borders); i++) {
        check_stamp(fd, borders[i] - 4096);
        stamp_of(borders[i] - 4096, data);
        ck_assert(memcmp(map + borders[i] - 4096, data, sizeof(data)) == 0);
    }
    munmap(map, size);
    close(fd);
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_exports__names_are_bytes)
{
    char longest[256], too_long[257], deep[900] = "", path[2048], export[1024];
    memset(longest, 'n', 255);
    longest[255] = 0;
    memset(too_long, 'n', 256);
    too_long[256] = 0;
    const char *const names[] = {"\x01\r\n",     "\xff\xfe",   "caf\xc3\xa9",
                                 "cafe\xcc\x81", " ",          "-rf",
                                 longest,        "a&b<c>%2F+", "export-0123456789abcdef",
                                 "meta.json",    ".hidden"};
    begin("{}");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int fd = create(names[i]);
        ck_assert_int_eq(write(fd, names[i], strlen(names[i])), (ssize_t)strlen(names[i]));
        close(fd);
    }
    ck_errno(open(in(stage, "export", too_long), O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
    /* Which would leave a device. */
    ck_errno(renameat2(AT_FDCWD, in(stage, "export", "a&b<c>%2F+"), AT_FDCWD,
                       in(stage, "export", "x"), 1 << 2 /* RENAME_WHITEOUT */),
             EINVAL);
    for (int i = 0; i < 100; i++) {
        text(deep + strlen(deep), sizeof(deep) - strlen(deep), "%sd%d", i ? "/" : "", i);
        ck_sys(mkdir(in(stage, "export", deep), 0755));
    }
    text(path, sizeof(path), "%s/leaf", deep);
    close(create(path));
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    text(export, sizeof(export), "%s", gen_path(root, CK_A, "export", "{}"));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char got[300];
        int fd = (int)ck_sys(open(in(export, names[i], NULL), O_RDONLY));
        ck_assert_int_eq(read(fd, got, sizeof(got)), (ssize_t)strlen(names[i]));
        ck_assert_mem_eq(got, names[i], strlen(names[i]));
        close(fd);
    }
    ck_sys(access(in(export, path, NULL), R_OK));
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    /* Names of records are none of anybody's but records'. */
    ck_errno(open(in(root, CK_B, NULL), O_CREAT | O_WRONLY, 0600), EPERM);
    ck_errno(symlink("x", in(root, CK_B, NULL)), EPERM);
    ck_errno(mkdir(in(root, too_long, NULL), 0700), ENAMETOOLONG);
    world_stop(&w);
}
END_TEST

/* Threads of the mount get stacks that what goes down for ever runs out of. (Sanitizers need more.)
 */
static void small_stacks(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct rlimit stack;
    ck_sys(getrlimit(RLIMIT_STACK, &stack));
    stack.rlim_cur = 1 << 20;
    ck_sys(setrlimit(RLIMIT_STACK, &stack));
#endif
}

static void sync_folder(const char *path)
{
    CLEANUP_FD int fd = ck_sys(open(path, O_RDONLY | O_DIRECTORY));
    ck_sys(fsync(fd));
    ck_sys(fdatasync(fd));
}

START_TEST(test_mount_exports__every_folder_can_be_synced)
{
    begin("{}");
    close(create("file"));
    ck_sys(mkdir(in(stage, "export", "empty"), 0755));
    sync_folder(root);
    sync_folder(stage);
    sync_folder(in(stage, "export", NULL));
    sync_folder(in(stage, "export", "empty"));
    ck_sys(mkdir(in(root, CK_A, NULL), 0750));
    sync_folder(in(root, CK_A, NULL));
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    sync_folder(in(root, CK_A, NULL));
    sync_folder(gen_path(root, CK_A, "export", "{}"));
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_exports__a_bottomless_one_is_refused)
{
    small_stacks();
    begin("{}");
    int fd = create("open"); /* somebody writes: what was mapped is written back first */
    int at = (int)ck_sys(open(in(stage, "export", NULL), O_RDONLY | O_DIRECTORY));
    for (int i = 0; i < 5500; i++) {
        if (mkdirat(at, "d", 0700) != 0 && (errno == EMFILE || errno == ENFILE))
            break;
        int below = (int)ck_sys(openat(at, "d", O_RDONLY | O_DIRECTORY));
        close(at);
        at = below;
    }
    close(at);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), ENAMETOOLONG);
    close(fd);
    ck_ok(tree_remove(AT_FDCWD, stage, &err)); /* which needs little of the stack */
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_exports__thousands_of_files_come_and_go)
{
    enum { FILES = 2000 };
    struct stat st;
    char name[64], got[64], export[1024];
    begin("{}");
    for (int i = 0; i < 20; i++) {
        text(name, sizeof(name), "d%d", i);
        ck_sys(mkdir(in(stage, "export", name), 0755));
    }
    for (int i = 0; i < FILES; i++) {
        text(name, sizeof(name), "d%d/%d", i % 20, i);
        int fd = create(name);
        ck_assert_int_eq(write(fd, name, strlen(name)), (ssize_t)strlen(name));
        close(fd);
    }
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    text(export, sizeof(export), "%s", gen_path(root, CK_A, "export", "{}"));
    for (int i = 0; i < FILES; i += 97) {
        text(name, sizeof(name), "d%d/%d", i % 20, i);
        int fd = (int)ck_sys(open(in(export, name, NULL), O_RDONLY));
        ck_assert_int_eq(read(fd, got, sizeof(got)), (ssize_t)strlen(name));
        ck_assert_mem_eq(got, name, strlen(name));
        close(fd);
    }
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    ck_errno(stat(in(root, CK_A, NULL), &st), ENOENT);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

START_TEST(test_mount_exports__a_meta_that_expects_more_is_not_committed)
{
    const char *meta = "{\"cairn_expect\":{\"memory-ranges\":4194304}}";
    struct image im = IMAGE_SMALL(1);
    begin(meta);
    ck_sys(rmdir(in(stage, "export", NULL)));
    im.memory = (4 << 20) - 4096;
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), EINVAL);
    ck_errno(open(in(root, CK_A, "meta.json"), O_RDONLY), ENOENT);
    /* Made good where it lies now. */
    ck_sys(truncate(in(gen_path(root, CK_A, "export", meta), "memory-ranges", NULL), 4 << 20));
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

/* Written to between the two renames, and while the first of them runs. */
START_TEST(test_mount_exports__an_export_that_changes_is_published_as_it_is_in_the_end)
{
    struct image im = IMAGE_SMALL(2);
    char memory[1024], got[8];
    begin("{}");
    ck_sys(rmdir(in(stage, "export", NULL)));
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_sys(mkdir(in(root, CK_A, NULL), 0750));
    ck_sys(rename(in(stage, "export", NULL), gen_path(root, CK_A, "export", "{}")));
    text(memory, sizeof(memory), "%s/memory-ranges", gen_path(root, CK_A, "export", "{}"));
    int fd = (int)ck_sys(open(memory, O_RDWR | O_CLOEXEC));
    ck_assert_int_eq(pwrite(fd, "changed", 7, 100), 7);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    /* What is written now reaches nobody. */
    ck_assert_int_eq(pwrite(fd, "in vain", 7, 100), 7);
    ck_assert_int_eq(pread(fd, got, 7, 100), 7);
    ck_assert_mem_eq(got, "in vain", 7);
    close(fd);
    fd = (int)ck_sys(open(memory, O_RDONLY | O_CLOEXEC));
    ck_assert_int_eq(pread(fd, got, 7, 100), 7);
    ck_assert_mem_eq(got, "changed", 7);
    close(fd);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

TESTING_MAIN(mount_exports, test_mount_exports__what_is_not_written_costs_nothing,
             test_mount_exports__offsets_have_64_bits, test_mount_exports__names_are_bytes,
             test_mount_exports__every_folder_can_be_synced,
             test_mount_exports__a_bottomless_one_is_refused,
             test_mount_exports__thousands_of_files_come_and_go,
             test_mount_exports__a_meta_that_expects_more_is_not_committed,
             test_mount_exports__an_export_that_changes_is_published_as_it_is_in_the_end)
