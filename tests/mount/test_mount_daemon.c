/* A sandbox daemon on the mounted root: its sequences, call by call, on one node and on two. */
#include "base/clock.h"
#include "base/util.h"
#include "store/layout.h"
#include "store/store.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define TP_A "tp_000000000000000000000000000000aa"
/* What another node sees at the latest. */
#define FRESH_NS (2 * NS_PER_S)

static struct cairn_error err;
static struct world w;
static char root[320], other[320], outside[320];

static void start(size_t nodes)
{
    world_start(&w, nodes, NULL);
    text(root, sizeof(root), "%s", world_path(&w, 0, NULL));
    text(other, sizeof(other), "%s", world_path(&w, 1, NULL));
    text(outside, sizeof(outside), "%.250s/outside", w.top);
    ck_sys(mkdir(outside, 0700));
}

static bool in_store(const char *id, const char *meta)
{
    char gen[GEN_TEXT], key[KEY_MAX];
    bool exists;
    struct cairn_store *s = world_store(&w);
    daemon_gen(meta, gen);
    layout_export(id, gen, key);
    ck_ok(backend_exists(s->backend, NULL, key, &exists, &err));
    cairn_close(s);
    return exists;
}

/* CAIRN_OK or why the record cannot be opened, for whoever has no mount. */
static int opens(const char *id)
{
    struct cairn_store *s = world_store(&w);
    struct cairn_record *r = NULL;
    int rc = cairn_record_open(s, NULL, id, &r, &err);
    cairn_record_close(r);
    cairn_close(s);
    return rc;
}

static void fetch_is(const char *at, const char *id, const char *want_meta, bool digest,
                     const struct image *im)
{
    char meta[4096], sum[80], export[1024];
    ck_assert_int_eq(daemon_fetch(at, id, meta, sum, export), 0);
    ck_assert_str_eq(meta, want_meta);
    ck_assert_uint_eq(strlen(sum), digest ? 71 : 0);
    tool_restore(export, outside, im);
}

static size_t listed(const char *at, const char *prefix)
{
    size_t n;
    ck_assert_int_eq(daemon_list(at, prefix, &n), 0);
    return n;
}

/* Until another node's change is here; the test's clock starts when it was made. */
static void within_two_seconds(bool (*is)(void))
{
    int64_t end = clock_monotonic() + FRESH_NS;
    bool yes = is(), late = false;
    while (!yes && !late) {
        late = clock_monotonic() >= end;
        usleep(20000);
        yes = is();
    }
    ck_assert(yes);
}

/* ---- One node -------------------------------------------------------------------------------- */

START_TEST(test_mount_daemon__a_checkpoint_is_saved_listed_restored_and_deleted)
{
    struct image im = IMAGE_SMALL(1);
    struct stat st;
    im.nested = true;
    start(1);
    daemon_start(root);
    ck_assert_uint_eq(listed(root, "ck_"), 0);
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{\"id\":\"a\"}", false), 0);
    ck_assert_uint_eq(listed(root, "ck_"), 1);
    ck_assert_uint_eq(listed(root, "tp_"), 0);
    fetch_is(root, CK_A, "{\"id\":\"a\"}", false, &im);
    ck_assert_int_eq(opens(CK_A), CAIRN_OK);
    /* The spool holds nothing of it any more. */
    ck_sys(stat(gen_path(root, CK_A, "export", "{\"id\":\"a\"}"), &st));
    ck_assert_uint_eq(st.st_mode, S_IFDIR | 0750);
    ck_errno(open(in(root, CK_A, "meta.json"), O_RDWR), EROFS);
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    ck_errno(stat(in(root, CK_A, NULL), &st), ENOENT);
    ck_assert_uint_eq(listed(root, "ck_"), 0);
    ck_assert_int_eq(opens(CK_A), CAIRN_NOT_FOUND);
    ck_assert_int_eq(daemon_delete(root, CK_A), ENOENT);
    /* The same id again. */
    im.seed = 2;
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{\"id\":\"a2\"}", true), 0);
    fetch_is(root, CK_A, "{\"id\":\"a2\"}", true, &im);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

START_TEST(test_mount_daemon__a_digest_is_that_of_the_export_everywhere)
{
    struct image im = IMAGE_SMALL(3);
    char sum[72], stage[512], meta[4096], got[80], export[1024];
    start(2);
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"d\":1}"), 0);
    ck_assert_int_eq(daemon_digest(stage, sum), 0);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, sum), 0);
    ck_assert_int_eq(daemon_remove_all(stage), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(daemon_fetch(i ? other : root, CK_A, meta, got, export), 0);
        ck_assert_str_eq(got, sum);
    }
    struct cairn_store *s = world_store(&w);
    struct cairn_record *r;
    struct cairn_record_info info;
    ck_ok(cairn_record_open(s, NULL, CK_A, &r, &err));
    cairn_record_info(r, &info);
    ck_assert_str_eq(info.digest, sum);
    cairn_record_close(r);
    cairn_close(s);
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_daemon__a_template_is_published_again_and_its_old_generation_ages)
{
    struct image one = IMAGE_SMALL(4), two = IMAGE_SMALL(5);
    struct stat before, after;
    char old[256];
    start(1);
    ck_assert_int_eq(daemon_save(root, TP_A, &one, "{\"n\":1}", true), 0);
    CLEANUP_FD int meta = ck_sys(open(in(root, TP_A, "meta.json"), O_RDONLY));
    CLEANUP_FD int memory = ck_sys(
        open(in(gen_path(root, TP_A, "export", "{\"n\":1}"), "memory-ranges", NULL), O_RDONLY));
    int64_t published = clock_realtime();
    ck_assert_int_eq(daemon_save(root, TP_A, &two, "{\"n\":2}", true), 0);
    fetch_is(root, TP_A, "{\"n\":2}", true, &two);
    /* What was open keeps its bytes. */
    ck_assert_int_eq(pread(meta, old, sizeof(old), 0), 7);
    ck_assert_mem_eq(old, "{\"n\":1}", 7);
    uint8_t data[4096], want[4096];
    image_memory(&one, 0, sizeof(want), want);
    ck_assert_int_eq(util_pread_full(memory, data, sizeof(data), 0), sizeof(data));
    ck_assert_mem_eq(data, want, sizeof(want));
    close(util_steal_fd(&meta));
    close(util_steal_fd(&memory));
    /* The old generation ages from now, and is not swept while it is young. */
    ck_sys(stat(gen_path(root, TP_A, "export", "{\"n\":1}"), &before));
    ck_assert_int_ge(before.st_mtim.tv_sec * NS_PER_S + before.st_mtim.tv_nsec,
                     published - NS_PER_S);
    ck_assert_int_eq(daemon_sweep(root, TP_A), 0);
    image_same(gen_path(root, TP_A, "export", "{\"n\":1}"), &one);
    /* An hour later, also for the next mount: nanoseconds are kept. */
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = before.st_mtim.tv_sec - 599, .tv_nsec = 123456789}};
    ck_sys(utimensat(AT_FDCWD, gen_path(root, TP_A, "export", "{\"n\":1}"), times, 0));
    world_unmount(&w, 0);
    world_mount(&w, 0);
    ck_sys(stat(gen_path(root, TP_A, "export", "{\"n\":1}"), &after));
    ck_assert_int_eq(after.st_mtim.tv_sec, times[1].tv_sec);
    ck_assert_int_eq(after.st_mtim.tv_nsec, 123456789);
    ck_assert(in_store(TP_A, "{\"n\":1}"));
    ck_assert_int_eq(daemon_remove_all(gen_path(root, TP_A, "export", "{\"n\":1}")), 0);
    ck_assert(!in_store(TP_A, "{\"n\":1}"));
    ck_errno(stat(gen_path(root, TP_A, "export", "{\"n\":1}"), &after), ENOENT);
    fetch_is(root, TP_A, "{\"n\":2}", true, &two);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

START_TEST(test_mount_daemon__what_is_refused_is_refused_with_the_right_errno)
{
    struct image im = IMAGE_SMALL(6);
    char memory[1024], stage[512], buf[8];
    start(1);
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{\"r\":1}", true), 0);
    text(memory, sizeof(memory), "%s/memory-ranges", gen_path(root, CK_A, "export", "{\"r\":1}"));
    ck_errno(open(memory, O_RDWR), EROFS);
    ck_errno(open(memory, O_WRONLY | O_TRUNC), EROFS);
    ck_errno(truncate(memory, 0), EROFS);
    ck_errno(chmod(memory, 0600), EROFS);
    ck_errno(chmod(in(root, CK_A, NULL), 0700), EROFS);
    ck_errno(open(in(gen_path(root, CK_A, "export", "{\"r\":1}"), "new", NULL), O_CREAT | O_WRONLY,
                  0600),
             EROFS);
    ck_errno(rename(memory, in(root, CK_A, "x")), EROFS);
    ck_errno(rename(in(root, CK_A, NULL), in(root, CK_B, NULL)), EPERM);
    ck_errno(getxattr(memory, "user.x", buf, sizeof(buf)), EOPNOTSUPP);
    ck_errno(setxattr(memory, "user.x", "y", 1, 0), EOPNOTSUPP);
    ck_errno(link(memory, in(outside, "l", NULL)), EXDEV);
    /* A record is committed by a rename, never by writing meta.json. */
    ck_sys(mkdir(in(root, CK_B, NULL), 0750));
    ck_errno(open(in(root, CK_B, "meta.json"), O_CREAT | O_WRONLY, 0600), EPERM);
    ck_errno(mkdir(in(root, CK_B, "meta.json"), 0700), EPERM);
    /* A meta.json whose export nobody published. */
    CLEANUP_FD int fd =
        ck_sys(open(in(root, CK_B, "meta.json.tmp"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    ck_assert_int_eq(write(fd, "{}", 2), 2);
    ck_errno(rename(in(root, CK_B, "meta.json.tmp"), in(root, CK_B, "meta.json")), EINVAL);
    ck_sys(unlink(in(root, CK_B, "meta.json.tmp")));
    ck_sys(rmdir(in(root, CK_B, NULL)));
    /* A checkpoint is published once; the staging stays as it was. */
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"r\":2}"), 0);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), EEXIST);
    image_same(in(stage, "export", NULL), &im);
    /* Something that is no export. */
    ck_sys(symlink("x", in(stage, "export", "link")));
    ck_errno(rename(in(stage, "export", NULL), gen_path(root, TP_A, "export", "{\"r\":3}")),
             ENOENT);
    ck_sys(mkdir(in(root, TP_A, NULL), 0750));
    ck_errno(rename(in(stage, "export", NULL), gen_path(root, TP_A, "export", "{\"r\":3}")),
             EINVAL);
    ck_sys(unlink(in(stage, "export", "link")));
    ck_sys(rename(in(stage, "export", NULL), gen_path(root, TP_A, "export", "{\"r\":3}")));
    image_same(gen_path(root, TP_A, "export", "{\"r\":3}"), &im);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_daemon__what_was_stored_through_a_mapping_is_published)
{
    struct image im = IMAGE_SMALL(7);
    char stage[512], path[1024], disk[1024];
    start(1);
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    text(path, sizeof(path), "%s/export/memory-ranges", stage);
    int fd = ck_sys(open(path, O_RDWR | O_CLOEXEC));
    /* Closed while it is mapped; what is stored after that counts as well. */
    uint8_t *p = mmap(NULL, im.memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    memset(p + 100, 'a', 10);
    close(fd);
    memset(p + im.memory - 10, 'z', 10);
    munmap(p, im.memory);
    /* Another mapping is still there when it is published, and after that. */
    text(disk, sizeof(disk), "%s/export/cow.raw", stage);
    fd = (int)ck_sys(open(disk, O_RDWR | O_CLOEXEC));
    uint8_t *q = mmap(NULL, im.disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(q, MAP_FAILED);
    close(fd);
    memset(q + 5 * 4096, 'q', 10);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    memset(q + 5 * 4096, 'x', 10);
    munmap(q, im.disk);
    fd = (int)ck_sys(open(in(gen_path(root, CK_A, "export", "{}"), "cow.raw", NULL), O_RDONLY));
    ck_assert_int_eq(pread(fd, disk, 10, 5 * 4096), 10);
    ck_assert_mem_eq(disk, "qqqqqqqqqq", 10);
    close(fd);
    CLEANUP_FD int got = ck_sys(open(
        in(gen_path(root, CK_A, "export", "{}"), "memory-ranges", NULL), O_RDONLY | O_CLOEXEC));
    static const int flags[] = {MAP_SHARED, MAP_PRIVATE};
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        p = mmap(NULL, im.memory, PROT_READ, flags[i], got, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        ck_assert_mem_eq(p + 100, "aaaaaaaaaa", 10);
        ck_assert_mem_eq(p + im.memory - 10, "zzzzzzzzzz", 10);
        munmap(p, im.memory);
    }
    close(util_steal_fd(&got));
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_daemon__staging_is_an_ordinary_tree)
{
    char stage[512], a[1024], b[1024], buf[16];
    struct stat st;
    start(1);
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    text(a, sizeof(a), "%s/a", stage);
    text(b, sizeof(b), "%s/b", stage);
    int fd = ck_sys(open(a, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
    ck_errno(open(a, O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    ck_assert_int_eq(pwrite(fd, "hello", 5, 1 << 20), 5);
    ck_sys(fstat(fd, &st));
    ck_assert_int_eq(st.st_size, (1 << 20) + 5);
    ck_assert_int_le(st.st_blocks, 32);
    ck_sys(fallocate(fd, FALLOC_FL_KEEP_SIZE, 2 << 20, 65536));
    ck_sys(fstat(fd, &st));
    ck_assert_int_eq(st.st_size, (1 << 20) + 5);
    ck_sys(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4096));
    ck_assert_int_eq(pread(fd, buf, 5, 1 << 20), 5);
    ck_assert_mem_eq(buf, "\0\0\0\0\0", 5);
    ck_sys(fchmod(fd, 0600));
    struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 1}, {.tv_sec = 2000, .tv_nsec = 987}};
    ck_sys(futimens(fd, times));
    ck_sys(fstat(fd, &st));
    ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
    ck_assert_int_eq(st.st_mtim.tv_nsec, 987);
    /* Renamed over, unlinked: what is open stays, and nothing of it is seen. */
    ck_sys(rename(a, b));
    ck_sys(unlink(b));
    ck_assert_int_eq(pwrite(fd, "still", 5, 0), 5);
    ck_assert_int_eq(pread(fd, buf, 5, 0), 5);
    ck_assert_mem_eq(buf, "still", 5);
    ck_sys(rmdir(stage));
    close(fd);
    /* Folders keep their times, and names that are like nothing of ours are no matter. */
    ck_sys(mkdir(in(root, "odd name", NULL), 0700));
    ck_sys(utimensat(AT_FDCWD, in(root, "odd name", NULL), times, 0));
    ck_sys(stat(in(root, "odd name", NULL), &st));
    ck_assert_int_eq(st.st_mtim.tv_nsec, 987);
    ck_sys(rmdir(in(root, "odd name", NULL)));
    world_stop(&w);
}
END_TEST

/* A listing of 5000 names, half of which go while it runs, and a remove of the rest. */
START_TEST(test_mount_daemon__removing_while_listing_skips_nothing)
{
    char stage[512];
    size_t seen = 0, n = 0;
    start(1);
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    for (int i = 0; i < 5000; i++) {
        char name[32];
        text(name, sizeof(name), "%05d", i);
        ck_sys(close(ck_sys(open(in(stage, name, NULL), O_CREAT | O_WRONLY | O_CLOEXEC, 0600))));
    }
    CLEANUP_DIR DIR *dir = opendir(stage);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        if (seen++ % 2 == 0)
            ck_sys(unlink(in(stage, d->d_name, NULL)));
    }
    ck_assert_uint_eq(seen, 5000);
    rewinddir(dir);
    for (const struct dirent *d; (d = readdir(dir));)
        n += d->d_name[0] != '.';
    ck_assert_uint_eq(n, 2500);
    closedir(util_steal(&dir));
    ck_assert_int_eq(daemon_remove_all(stage), 0);
    world_stop(&w);
}
END_TEST

START_TEST(test_mount_daemon__a_remove_half_done_leaves_the_generation_whole_for_others)
{
    struct image im = IMAGE_SMALL(8);
    char export[1024];
    struct stat st;
    im.nested = true;
    start(2);
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{}", true), 0);
    text(export, sizeof(export), "%s", gen_path(root, CK_A, "export", "{}"));
    CLEANUP_FD int fd = ck_sys(open(in(export, "memory-ranges", NULL), O_RDONLY | O_CLOEXEC));
    ck_errno(unlink(export), EISDIR);
    ck_errno(rmdir(export), ENOTEMPTY);
    ck_errno(rmdir(in(export, "data", NULL)), ENOTEMPTY);
    ck_sys(unlink(in(export, "memory-ranges", NULL)));
    ck_errno(stat(in(export, "memory-ranges", NULL), &st), ENOENT);
    ck_sys(unlink(in(export, "data", "extra")));
    ck_sys(rmdir(in(export, "data", NULL)));
    ck_errno(rmdir(export), ENOTEMPTY);
    ck_sys(unlink(gen_path(root, CK_A, "digest", "{}")));
    ck_errno(rmdir(in(root, CK_A, NULL)), ENOTEMPTY);
    fetch_is(other, CK_A, "{}", true, &im);
    /* The daemon died there; to the next mount the generation is whole as well. */
    uint8_t data[4096], want[4096];
    image_memory(&im, 0, sizeof(want), want);
    ck_assert_int_eq(util_pread_full(fd, data, sizeof(data), 0), sizeof(data));
    ck_assert_mem_eq(data, want, sizeof(want));
    close(util_steal_fd(&fd));
    world_unmount(&w, 0);
    world_mount(&w, 0);
    fetch_is(root, CK_A, "{}", true, &im);
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    ck_assert_int_eq(opens(CK_A), CAIRN_NOT_FOUND);
    world_stop(&w);
}
END_TEST

/* As shutil.rmtree does it: names once, then each must be there. */
static void strict_remove(const char *path)
{
    CLEANUP_DIR DIR *dir = opendir(path);
    ck_assert_msg(dir != NULL, "%s: %s", path, strerror(errno));
    for (const struct dirent *d; (d = readdir(dir));) {
        char below[2048];
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        text(below, sizeof(below), "%s/%s", path, d->d_name);
        if (d->d_type == DT_DIR)
            strict_remove(below);
        else
            ck_sys(unlink(below));
    }
    ck_sys(rmdir(path));
}

START_TEST(test_mount_daemon__a_tree_is_removed_by_whoever_minds_every_errno)
{
    struct image one = IMAGE_SMALL(9), two = IMAGE_SMALL(10);
    struct stat st;
    one.nested = true;
    start(1);
    ck_assert_int_eq(daemon_save(root, TP_A, &one, "{\"n\":1}", true), 0);
    ck_assert_int_eq(daemon_save(root, TP_A, &two, "{\"n\":2}", true), 0);
    strict_remove(in(root, TP_A, NULL));
    ck_errno(stat(in(root, TP_A, NULL), &st), ENOENT);
    ck_assert_int_eq(opens(TP_A), CAIRN_NOT_FOUND);
    ck_assert(!in_store(TP_A, "{\"n\":1}"));
    ck_assert_int_eq(daemon_save(root, TP_A, &one, "{\"n\":1}", true), 0);
    fetch_is(root, TP_A, "{\"n\":1}", true, &one);
    world_stop(&w);
}
END_TEST

/* ---- Two nodes ------------------------------------------------------------------------------- */

static bool a_is_there(void)
{
    struct stat st;
    return stat(in(other, CK_A, "meta.json"), &st) == 0;
}

static bool a_is_gone(void)
{
    struct stat st;
    return stat(in(other, CK_A, "meta.json"), &st) != 0 && errno == ENOENT;
}

START_TEST(test_mount_daemon__another_node_sees_records_and_no_stagings)
{
    struct image im = IMAGE_SMALL(11);
    char stage[512], name[512];
    struct stat st;
    start(2);
    ck_assert(!a_is_there());
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"two\":1}"), 0);
    text(name, sizeof(name), "%s", strrchr(stage, '/') + 1);
    ck_errno(stat(in(other, name, NULL), &st), ENOENT);
    daemon_start(other); /* would remove every staging that it sees */
    image_same(in(stage, "export", NULL), &im);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    within_two_seconds(a_is_there);
    fetch_is(other, CK_A, "{\"two\":1}", false, &im);
    ck_assert_uint_eq(listed(other, "ck_"), 1);
    /* Deleted there while it is mapped here. */
    CLEANUP_FD int fd =
        ck_sys(open(in(gen_path(other, CK_A, "export", "{\"two\":1}"), "memory-ranges", NULL),
                    O_RDONLY | O_CLOEXEC));
    uint8_t *p = mmap(NULL, im.memory, PROT_READ, MAP_PRIVATE, fd, 0), want[4096];
    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    within_two_seconds(a_is_gone);
    ck_assert_uint_eq(listed(other, "ck_"), 0);
    for (uint64_t off = 0; off < im.memory; off += 4096) {
        image_memory(&im, off, sizeof(want), want);
        ck_assert_mem_eq(p + off, want, sizeof(want));
    }
    munmap(p, im.memory);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

static _Noreturn void publish_in_turn(const char *at, unsigned who)
{
    for (unsigned i = 0; i < 6; i++) {
        struct image im = IMAGE_SMALL(100 * who + i);
        char meta[64];
        im.memory = 1 << 20;
        text(meta, sizeof(meta), "{\"who\":%u,\"i\":%u}", who, i);
        int e = daemon_save(at, TP_A, &im, meta, i % 2);
        if (e) {
            fprintf(stderr, "node %u: %s\n", who, strerror(e));
            _exit(1);
        }
    }
    _exit(0);
}

/* One writer a template is the rule; two break it and still get whole records. */
START_TEST(test_mount_daemon__two_nodes_publish_one_template_and_nobody_sees_half_of_it)
{
    struct image first = IMAGE_SMALL(12);
    char meta[4096], sum[80], export[1024];
    int status, done = 0, failed = 0;
    unsigned who, i;
    start(2);
    ck_assert_int_eq(daemon_save(root, TP_A, &first, "{}", false), 0);
    for (unsigned k = 1; k <= 2; k++)
        if (ck_sys(fork()) == 0)
            publish_in_turn(k == 1 ? root : other, k);
    while (done < 2) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        done += pid > 0;
        failed += pid > 0 && status != 0;
        int e = daemon_fetch(done % 2 ? root : other, TP_A, meta, sum, export);
        ck_assert_msg(e == 0, "fetch: %s", strerror(e));
        if (sscanf(meta, "{\"who\":%u,\"i\":%u}", &who, &i) == 2) {
            struct image im = IMAGE_SMALL(100 * who + i);
            im.memory = 1 << 20;
            image_same(export, &im);
        }
        usleep(10000);
    }
    ck_assert_int_eq(failed, 0);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

/* ---- Crashes --------------------------------------------------------------------------------- */

START_TEST(test_mount_daemon__a_staging_outlives_the_mount)
{
    struct image im = IMAGE_SMALL(13);
    char stage[512];
    struct stat st;
    start(1);
    ck_assert_int_eq(daemon_stage(root, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    world_kill(&w, 0);
    ck_errno(stat(in(root, "x", NULL), &st), ENOTCONN);
    world_mount(&w, 0);
    image_same(in(stage, "export", NULL), &im);
    ck_sys(mkdir(in(root, CK_A, NULL), 0750));
    ck_sys(rename(in(stage, "export", NULL), gen_path(root, CK_A, "export", "{}")));
    /* Between the two halves of a publish. */
    world_kill(&w, 0);
    world_mount(&w, 0);
    image_same(gen_path(root, CK_A, "export", "{}"), &im);
    ck_assert_int_eq(opens(CK_A), CAIRN_NOT_FOUND);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    fetch_is(root, CK_A, "{}", false, &im);
    /* A daemon that starts removes what is left. */
    daemon_start(root);
    ck_errno(stat(stage, &st), ENOENT);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

static uint64_t bytes_stored(void)
{
    struct cairn_stats st;
    struct cairn_store *s = world_store(&w);
    ck_ok(cairn_stats(s, NULL, &st, &err));
    cairn_close(s);
    return st.stored_bytes;
}

/* The image, but for one byte in each of some runs. */
static void save_changed(const char *at, const char *id, const struct image *im, const char *meta)
{
    char stage[512];
    ck_assert_int_eq(daemon_stage(at, id, stage), 0);
    ck_assert_int_eq(tool_export(stage, im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, meta), 0);
    int fd = (int)ck_sys(open(in(stage, "export", "memory-ranges"), O_RDWR | O_CLOEXEC));
    for (uint64_t off = 0; off < im->memory; off += 3 * 128 * 1024)
        ck_assert_int_eq(pwrite(fd, meta, 4, (off_t)off + 77), 4);
    close(fd);
    ck_assert_int_eq(daemon_publish(at, id, stage, NULL), 0);
    ck_assert_int_eq(daemon_remove_all(stage), 0);
}

/* Nobody says what came from what. */
START_TEST(test_mount_daemon__a_checkpoint_is_stored_as_what_differs_from_the_last)
{
    struct image im = IMAGE_SMALL(15);
    start(2);
    if (w.s3) { /* it would have to be fetched for that */
        world_stop(&w);
        return;
    }
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{}", false), 0);
    uint64_t first = bytes_stored();
    save_changed(root, CK_B, &im, "{\"b\":1}");
    /* Half of its chunks differ; so does the place of what tool_export writes first. */
    uint64_t second = bytes_stored() - first;
    ck_assert_uint_lt(second, first / 4);
    /* Restored on another node, and saved there. */
    fetch_is(other, CK_A, "{}", false, &im);
    save_changed(other, "ck_00000000000000cc", &im, "{\"c\":1}");
    ck_assert_uint_lt(bytes_stored() - first - second, first / 4);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

/* Descriptors of the mount on files of its spool. */
static size_t spool_descriptors(void)
{
    char folder[64], name[512], target[1024];
    size_t n = 0;
    text(folder, sizeof(folder), "/proc/%d/fd", (int)w.node[0].pid);
    CLEANUP_DIR DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *d; (d = readdir(dir));) {
        text(name, sizeof(name), "%s/%s", folder, d->d_name);
        ssize_t len = readlink(name, target, sizeof(target) - 1);
        if (len < 0)
            continue;
        target[len] = 0;
        n += strstr(target, "/mount/tree/") || strstr(target, "/mount/trash/");
    }
    return n;
}

START_TEST(test_mount_daemon__a_commit_leaves_nothing_open)
{
    start(1);
    for (unsigned i = 0; i < 10; i++) {
        struct image im = IMAGE_SMALL(i);
        char id[64], meta[64];
        im.memory = 1 << 20;
        text(id, sizeof(id), "ck_%016x", i);
        text(meta, sizeof(meta), "{\"i\":%u}", i);
        ck_assert_int_eq(daemon_save(root, id, &im, meta, true), 0);
    }
    int64_t end = clock_monotonic() + 20 * NS_PER_S;
    while (spool_descriptors()) {
        ck_assert_msg(clock_monotonic() < end, "%zu are open", spool_descriptors());
        usleep(50000);
    }
    world_stop(&w);
}
END_TEST

/* A file of the spool of node 0, as a mount that was killed may have left it. */
static void leave(const char *name, const char *bytes)
{
    char path[1024], info[64];
    struct cairn_store_info i;
    struct cairn_store *s = world_store(&w);
    cairn_store_info(s, &i);
    cairn_close(s);
    text(info, sizeof(info), "%s/mount", i.store_id);
    text(path, sizeof(path), "%s/%s", in(w.node[0].state, info, NULL), name);
    for (char *slash = strstr(path, "/mount/") + 7; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(path, 0700) != 0)
            ck_assert_int_eq(errno, EEXIST);
        *slash = '/';
    }
    CLEANUP_FD int fd = (int)ck_sys(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ck_assert_int_eq(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
}

START_TEST(test_mount_daemon__what_a_killed_mount_left_is_taken_away_or_kept)
{
    struct image im = IMAGE_SMALL(14);
    struct stat st;
    char gen[GEN_TEXT], name[256];
    start(1);
    ck_assert_int_eq(daemon_save(root, CK_A, &im, "{}", true), 0);
    world_unmount(&w, 0);
    daemon_gen("{}", gen);
    /* Killed between the commit and the spool's being cleaned. */
    text(name, sizeof(name), "tree/%s/export-%s/config.json", CK_A, gen);
    leave(name, "of the spool");
    text(name, sizeof(name), "tree/%s/digest-%s", CK_A, gen);
    leave(name, "of the spool");
    leave("trash/7/export/big", "gone in a moment");
    /* Killed in the middle of a remove. */
    leave("tree/" CK_B "/meta.json", "{}");
    /* Not committed: kept. */
    leave("tree/" TP_A "/export-0123456789abcdef/config.json", "kept");
    leave("tree/" TP_A "/meta.json.tmp", "kept");
    world_mount(&w, 0);
    fetch_is(root, CK_A, "{}", true, &im);
    ck_errno(stat(in(root, CK_B, "meta.json"), &st), ENOENT);
    ck_sys(stat(in(root, TP_A, "meta.json.tmp"), &st));
    ck_sys(stat(in(root, TP_A, "export-0123456789abcdef/config.json"), &st));
    ck_assert_uint_eq(listed(root, "ck_"), 1);
    ck_assert_int_eq(daemon_delete(root, CK_A), 0);
    ck_assert_int_eq(daemon_remove_all(in(root, TP_A, NULL)), 0);
    ck_assert_int_eq(daemon_remove_all(in(root, CK_B, NULL)), 0);
    world_stop(&w);
}
END_TEST

TESTING_MAIN(mount_daemon, test_mount_daemon__a_checkpoint_is_saved_listed_restored_and_deleted,
             test_mount_daemon__a_digest_is_that_of_the_export_everywhere,
             test_mount_daemon__a_template_is_published_again_and_its_old_generation_ages,
             test_mount_daemon__what_is_refused_is_refused_with_the_right_errno,
             test_mount_daemon__what_was_stored_through_a_mapping_is_published,
             test_mount_daemon__staging_is_an_ordinary_tree,
             test_mount_daemon__removing_while_listing_skips_nothing,
             test_mount_daemon__a_remove_half_done_leaves_the_generation_whole_for_others,
             test_mount_daemon__a_tree_is_removed_by_whoever_minds_every_errno,
             test_mount_daemon__another_node_sees_records_and_no_stagings,
             test_mount_daemon__two_nodes_publish_one_template_and_nobody_sees_half_of_it,
             test_mount_daemon__a_staging_outlives_the_mount,
             test_mount_daemon__a_checkpoint_is_stored_as_what_differs_from_the_last,
             test_mount_daemon__a_commit_leaves_nothing_open,
             test_mount_daemon__what_a_killed_mount_left_is_taken_away_or_kept)
