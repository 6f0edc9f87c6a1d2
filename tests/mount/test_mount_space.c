/* Full disks beneath the mount: what does not fit is refused with ENOSPC, nothing is lost, and the
 * same call succeeds once there is room. */
#include "base/util.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"

static struct world w;
static char small[320], stage[512];

/* A file system of its own of some MiB. */
static void make_small(unsigned mib)
{
    char options[64];
    text(small, sizeof(small), "%s", testing_tmpdir());
    text(options, sizeof(options), "size=%um", mib);
    ck_sys(mount("small", small, "tmpfs", 0, options));
}

static void grow_small(unsigned mib)
{
    char options[64];
    text(options, sizeof(options), "size=%um", mib);
    ck_sys(mount("small", small, "tmpfs", MS_REMOUNT, options));
}

static void end(void)
{
    world_stop(&w);
    ck_sys(umount2(small, MNT_DETACH));
}

static void stage_image(const char *id, const struct image *im, const char *meta)
{
    ck_assert_int_eq(daemon_stage(w.node[0].dir, id, stage), 0);
    ck_assert_int_eq(tool_export(stage, im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, meta), 0);
}

static void is_saved(const char *id, const struct image *im)
{
    char meta[4096], sum[80], export[1024];
    ck_assert_int_eq(daemon_fetch(w.node[0].dir, id, meta, sum, export), 0);
    image_same(export, im);
}

START_TEST(test_mount_space__a_full_store_refuses_the_rename_and_keeps_the_staging)
{
    struct image im = {.seed = 1, .memory = 24 << 20, .disk = 8 << 20};
    make_small(6);
    world_start_at(&w, 1, small, NULL);
    stage_image(CK_A, &im, "{}");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(daemon_publish(w.node[0].dir, CK_A, stage, NULL), ENOSPC);
        image_same(in(stage, "export", NULL), &im);
    }
    grow_small(32);
    ck_assert_int_eq(daemon_publish(w.node[0].dir, CK_A, stage, NULL), 0);
    is_saved(CK_A, &im);
    end();
}
END_TEST

/* Full between the two renames: the export is published, meta.json is not. */
START_TEST(test_mount_space__a_full_store_refuses_the_commit_and_keeps_what_was_published)
{
    struct image im = IMAGE_SMALL(2);
    char filler[512];
    make_small(16);
    world_start_at(&w, 1, small, NULL);
    stage_image(CK_A, &im, "{\"n\":1}");
    ck_sys(mkdir(in(w.node[0].dir, CK_A, NULL), 0750));
    ck_sys(rename(in(stage, "export", NULL), gen_path(w.node[0].dir, CK_A, "export", "{\"n\":1}")));
    text(filler, sizeof(filler), "%s/tmp/filler", small);
    int fd = (int)ck_sys(open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    static char zeros[4096];
    while (write(fd, zeros, sizeof(zeros)) > 0)
        ;
    ck_assert_int_eq(errno, ENOSPC);
    close(fd);
    ck_assert_int_eq(daemon_publish(w.node[0].dir, CK_A, stage, NULL), ENOSPC);
    image_same(gen_path(w.node[0].dir, CK_A, "export", "{\"n\":1}"), &im);
    ck_sys(unlink(filler));
    ck_sys(rename(in(w.node[0].dir, CK_A, "meta.json.tmp"), in(w.node[0].dir, CK_A, "meta.json")));
    is_saved(CK_A, &im);
    end();
    /* Also to those who have no mount: what lay on the small disk is gone with it. */
}
END_TEST

START_TEST(test_mount_space__a_full_spool_is_told_to_whoever_writes)
{
    struct image large = {.seed = 3, .memory = 96 << 20, .disk = 8 << 20};
    struct image small_one = IMAGE_SMALL(4);
    make_small(16);
    world_start_at(&w, 1, NULL, small);
    ck_assert_int_eq(daemon_stage(w.node[0].dir, CK_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, &large), ENOSPC);
    ck_assert_int_eq(daemon_remove_all(stage), 0);
    ck_assert_int_eq(daemon_save(w.node[0].dir, CK_B, &small_one, "{}", true), 0);
    is_saved(CK_B, &small_one);
    /* What is committed leaves its room in the spool to others. */
    for (unsigned i = 0; i < 16; i++) {
        char id[64], meta[64];
        text(id, sizeof(id), "ck_%016x", i + 1);
        text(meta, sizeof(meta), "{\"n\":%u}", i);
        ck_assert_int_eq(daemon_save(w.node[0].dir, id, &small_one, meta, false), 0);
    }
    world_verify(&w);
    end();
}
END_TEST

TESTING_MAIN(mount_space, test_mount_space__a_full_store_refuses_the_rename_and_keeps_the_staging,
             test_mount_space__a_full_store_refuses_the_commit_and_keeps_what_was_published,
             test_mount_space__a_full_spool_is_told_to_whoever_writes)
