/* What the store holds, as a mount shows it: bytes, attributes, what is refused. */
#include "base/util.h"
#include "tests/mount/stage.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define MIB ((size_t)1 << 20)

static struct world w;
static char gen[17];

static const char *shown(const char *path)
{
    return stage_shown(&w, 0, STAGE_A, gen, path);
}

/* A record with a sparse image, a small file and one in a folder. */
static void begin(void)
{
    world_start(&w, 1, NULL);
    stage_file(&w, "memory", 3 * MIB, 2 * MIB + 100, 1, 64 * MIB + 5);
    stage_file(&w, "memory", 40 * MIB, 70000, 2, 0);
    stage_file(&w, "config.json", 0, 1234, 3, 0);
    stage_file(&w, "deep/er/file", 0, 70001, 4, 0);
    stage_file(&w, "empty", 0, 0, 5, 0);
    stage_publish(&w, STAGE_A, "{\"n\":1}", true, gen);
}

START_TEST(test_read__bytes_and_holes_are_those_published)
{
    begin();
    stage_same(stage_path(&w, "memory"), shown("memory"));
    stage_same(stage_path(&w, "config.json"), shown("config.json"));
    stage_same(stage_path(&w, "deep/er/file"), shown("deep/er/file"));
    stage_same(stage_path(&w, "empty"), shown("empty"));
    struct stat st;
    ck_sys(stat(shown("memory"), &st));
    ck_assert_int_eq(st.st_size, (off_t)(64 * MIB + 5));
    ck_assert_int_ge(st.st_blocks * 512, (off_t)(2 * MIB + 70100));
    ck_assert_int_lt(st.st_blocks * 512, (off_t)(3 * MIB));
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    ck_errno(lseek(fd, (off_t)(64 * MIB + 5), SEEK_DATA), ENXIO);
    ck_errno(lseek(fd, (off_t)(60 * MIB), SEEK_DATA), ENXIO);
    ck_assert_int_eq(lseek(fd, 0, SEEK_HOLE), 0);
    ck_assert_int_eq(lseek(fd, (off_t)(60 * MIB), SEEK_HOLE), (off_t)(60 * MIB));
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__maps_private_and_shared)
{
    begin();
    static uint8_t want[100];
    CLEANUP_FD int source = ck_sys(open(stage_path(&w, "memory"), O_RDONLY));
    ck_assert_int_eq(util_pread_full(source, want, 100, 4 * MIB), 100);
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    uint8_t *shared = mmap(NULL, 64 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    uint8_t *private = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    ck_assert_ptr_ne(private, MAP_FAILED);
    ck_assert_mem_eq(shared + 4 * MIB, want, 100);
    ck_assert_mem_eq(private + 4 * MIB, want, 100);
    memset(private + 4 * MIB, 0xee, 100);
    ck_assert_mem_eq(shared + 4 * MIB, want, 100);
    ck_assert(util_is_zero(shared + 50 * MIB, MIB));
    ck_errno((intptr_t)mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
    munmap(shared, 64 * MIB);
    munmap(private, 64 * MIB);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__past_the_page_cache_too)
{
    begin();
    CLEANUP_FD int source = ck_sys(open(stage_path(&w, "memory"), O_RDONLY));
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY | O_DIRECT));
    uint8_t *got = aligned_alloc(4096, 4 * MIB), *want = malloc(4 * MIB);
    for (uint64_t at = 0; at < 64 * MIB; at += 4 * MIB) {
        ck_assert_int_eq(util_pread_full(fd, got, 4 * MIB, at), (ssize_t)(4 * MIB));
        ck_assert_int_eq(util_pread_full(source, want, 4 * MIB, at), (ssize_t)(4 * MIB));
        ck_assert(memcmp(got, want, 4 * MIB) == 0);
    }
    free(got);
    free(want);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__changing_anything_is_refused)
{
    begin();
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    ck_errno(open(shown("memory"), O_WRONLY), EROFS);
    ck_errno(open(shown("memory"), O_RDWR), EROFS);
    ck_errno(open(shown("memory"), O_RDONLY | O_TRUNC), EROFS);
    ck_errno(open(shown("new"), O_CREAT | O_WRONLY, 0600), EROFS);
    ck_errno(truncate(shown("memory"), 5), EROFS);
    ck_errno(chmod(shown("memory"), 0600), EROFS);
    ck_errno(chown(shown("memory"), 1, 1), EROFS);
    ck_errno(utimensat(AT_FDCWD, shown("memory"), now, 0), EROFS);
    ck_errno(mkdir(shown("folder"), 0700), EROFS);
    ck_errno(mkfifo(shown("pipe"), 0700), EROFS);
    ck_errno(symlink("x", shown("link")), EROFS);
    ck_errno(rename(shown("memory"), shown("other")), EROFS);
    ck_errno(rename(shown("deep"), shown("other")), EROFS);
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    ck_errno(ftruncate(fd, 1), EINVAL); /* not open for writing */
    ck_errno(ioctl(fd, FICLONE, fd), EBADF);
    ck_assert_int_eq(fsync(fd), 0);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__links_lead_nowhere_and_attributes_are_not_kept)
{
    begin();
    char text[64];
    ck_errno(link(shown("memory"), stage_path(&w, "link")), EXDEV);
    ck_errno(link(shown("memory"), shown("link")), EXDEV);

    ck_errno(link(shown("memory"), world_path(&w, 0, STAGE_A "/link")), EXDEV);
    for (int i = 0; i < 2; i++) {
        const char *path = i ? world_path(&w, 0, STAGE_A) : shown("memory");
        ck_errno(setxattr(path, "user.a", "b", 1, 0), EOPNOTSUPP);
        ck_errno(getxattr(path, "user.a", text, sizeof(text)), EOPNOTSUPP);
        ck_errno(listxattr(path, text, sizeof(text)), EOPNOTSUPP);
        ck_errno(removexattr(path, "user.a"), EOPNOTSUPP);
    }
    world_stop(&w);
}
END_TEST

static void check_mode(const char *path, mode_t mode)
{
    struct stat st;
    ck_sys(stat(path, &st));
    ck_assert_msg(st.st_mode == mode, "%s: mode 0%o, not 0%o", path, st.st_mode, mode);
    ck_assert_uint_eq(st.st_uid, geteuid());
    ck_assert_uint_eq(st.st_gid, getegid());
}

START_TEST(test_read__modes_owners_and_small_files_are_fixed)
{
    begin();
    char name[128], text[128];
    check_mode(world_path(&w, 0, NULL), S_IFDIR | 0750);
    check_mode(world_path(&w, 0, STAGE_A), S_IFDIR | 0750);
    check_mode(world_path(&w, 0, STAGE_A "/meta.json"), S_IFREG | 0600);
    check_mode(shown(NULL), S_IFDIR | 0750);
    check_mode(shown("deep"), S_IFDIR | 0750);
    check_mode(shown("memory"), S_IFREG | 0644);
    snprintf(name, sizeof(name), STAGE_A "/digest-%s", gen);
    check_mode(world_path(&w, 0, name), S_IFREG | 0600);
    CLEANUP_FD int digest = ck_sys(open(world_path(&w, 0, name), O_RDONLY));
    ck_assert_int_eq(read(digest, text, sizeof(text)), 71);
    ck_assert(memcmp(text, "sha256:", 7) == 0);
    CLEANUP_FD int meta = ck_sys(open(world_path(&w, 0, STAGE_A "/meta.json"), O_RDONLY));
    ck_assert_int_eq(read(meta, text, sizeof(text)), 7);
    ck_assert_mem_eq(text, "{\"n\":1}", 7);
    char *map = mmap(NULL, 7, PROT_READ, MAP_PRIVATE, meta, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_mem_eq(map, "{\"n\":1}", 7);
    munmap(map, 7);
    close(util_steal_fd(&digest));
    close(util_steal_fd(&meta));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__names_have_their_limits)
{
    begin();
    char name[600];
    memset(name, 'a', sizeof(name));
    name[255] = 0;
    ck_errno(open(shown(name), O_RDONLY), ENOENT);
    ck_errno(open(world_path(&w, 0, name), O_RDONLY), ENOENT);
    name[255] = 'a';
    name[256] = 0;
    ck_errno(open(shown(name), O_RDONLY), ENAMETOOLONG);
    ck_errno(open(shown("memory/x"), O_RDONLY), ENOTDIR);
    ck_errno(open(shown("deep"), O_RDWR), EISDIR);
    ck_errno(stat(world_path(&w, 0, "ck_00000000000000AA"), &(struct stat){0}), ENOENT);
    ck_errno(stat(world_path(&w, 0, "packs"), &(struct stat){0}), ENOENT);
    world_stop(&w);
}
END_TEST

/* Pages of fd that are in the page cache. */
static size_t resident(int fd, size_t len)
{
    size_t pages = len / 4096, n = 0;
    uint8_t *seen = calloc(pages, 1);
    void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_sys(mincore(map, len, seen));
    for (size_t i = 0; i < pages; i++)
        n += seen[i] & 1;
    munmap(map, len);
    free(seen);
    return n;
}

START_TEST(test_read__one_content_is_one_inode)
{
    begin();
    char fork[17], again[17];
    stage_fork(&w, STAGE_A, STAGE_B, "{\"n\":2}", fork);
    stage_publish(&w, STAGE_T, "{\"n\":3}", false, again);
    struct stat a, b, c, d;
    CLEANUP_FD int first = ck_sys(open(shown("memory"), O_RDONLY));
    CLEANUP_FD int second = ck_sys(open(stage_shown(&w, 0, STAGE_B, fork, "memory"), O_RDONLY));
    ck_sys(fstat(first, &a));
    ck_sys(fstat(second, &b));
    ck_sys(stat(stage_shown(&w, 0, STAGE_T, again, "memory"), &c));
    ck_sys(stat(shown("config.json"), &d));
    ck_assert_uint_eq(a.st_ino, b.st_ino);
    ck_assert_uint_eq(a.st_ino, c.st_ino);
    ck_assert_uint_ne(a.st_ino, d.st_ino);
    /* What was read through the one is in the pages of the other. */
    uint8_t *room = malloc(2 * MIB);
    ck_assert_int_eq(util_pread_full(first, room, 2 * MIB, 3 * MIB), (ssize_t)(2 * MIB));
    ck_assert_uint_ge(resident(second, 64 * MIB), 2 * MIB / 4096);
    free(room);
    close(util_steal_fd(&first));
    close(util_steal_fd(&second));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__inode_numbers_outlive_the_mount)
{
    begin();
    struct stat before[3], after[3];
    for (int round = 0; round < 2; round++) {
        struct stat *st = round ? after : before;
        ck_sys(stat(shown("memory"), &st[0]));
        ck_sys(stat(shown("deep"), &st[1]));
        ck_sys(stat(world_path(&w, 0, STAGE_A), &st[2]));
        if (round)
            break;
        world_unmount(&w, 0);
        world_mount(&w, 0);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(before[i].st_ino, after[i].st_ino);
    world_stop(&w);
}
END_TEST

START_TEST(test_read__sixty_four_bits)
{
    world_start(&w, 1, NULL);
    const uint64_t stamps[] = {0,
                               ((uint64_t)1 << 31) - 4096,
                               (uint64_t)1 << 31,
                               ((uint64_t)1 << 32) - 4096,
                               (uint64_t)1 << 32,
                               (uint64_t)5 << 30,
                               ((uint64_t)64 << 30) - 4096};
    for (size_t i = 0; i < ARRAY_SIZE(stamps); i++)
        stage_file(&w, "memory", stamps[i], 4096, i, (uint64_t)64 << 30);
    stage_publish(&w, STAGE_A, "{}", false, gen);
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    struct stat st;
    ck_sys(fstat(fd, &st));
    ck_assert_int_eq(st.st_size, (off_t)64 << 30);
    ck_assert_int_lt(st.st_blocks * 512, (off_t)MIB);
    uint8_t *map = mmap(NULL, (size_t)64 << 30, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    uint8_t got[4096], want[4096];
    for (size_t i = 0; i < ARRAY_SIZE(stamps); i++) {
        testing_fill(want, sizeof(want), i);
        ck_assert_int_eq(util_pread_full(fd, got, sizeof(got), stamps[i]), 4096);
        ck_assert(memcmp(got, want, sizeof(got)) == 0);
        ck_assert(memcmp(map + stamps[i], want, sizeof(got)) == 0);
        ck_assert(util_is_zero(map + (stamps[i] ^ 8192 << 10), 4096));
    }
    munmap(map, (size_t)64 << 30);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_read__space_is_told)
{
    begin();
    struct statvfs here, beneath;
    ck_sys(statvfs(world_path(&w, 0, NULL), &here));
    ck_sys(statvfs(w.top, &beneath));
    ck_assert_uint_gt(here.f_blocks, 0);
    ck_assert_uint_gt(here.f_bavail, 0);
    ck_assert_uint_le(here.f_bavail * here.f_frsize, beneath.f_blocks * beneath.f_frsize);
    ck_assert_uint_eq(here.f_namemax, 255);
    world_stop(&w);
}
END_TEST

START_TEST(test_read__what_is_open_outlives_its_record)
{
    begin();
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    uint8_t *map = mmap(NULL, 64 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    stage_delete(&w, STAGE_A);
    sleep(2);
    ck_errno(open(shown("memory"), O_RDONLY), ENOENT);
    CLEANUP_FD int source = ck_sys(open(stage_path(&w, "memory"), O_RDONLY));
    uint8_t *want = mmap(NULL, 64 * MIB, PROT_READ, MAP_PRIVATE, source, 0);
    ck_assert_ptr_ne(want, MAP_FAILED);
    ck_assert(memcmp(map, want, 64 * MIB) == 0);
    munmap(map, 64 * MIB);
    munmap(want, 64 * MIB);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

TESTING_MAIN(mount_read, test_read__bytes_and_holes_are_those_published,
             test_read__maps_private_and_shared, test_read__past_the_page_cache_too,
             test_read__changing_anything_is_refused,
             test_read__links_lead_nowhere_and_attributes_are_not_kept,
             test_read__modes_owners_and_small_files_are_fixed, test_read__names_have_their_limits,
             test_read__one_content_is_one_inode, test_read__inode_numbers_outlive_the_mount,
             test_read__sixty_four_bits, test_read__space_is_told,
             test_read__what_is_open_outlives_its_record)
