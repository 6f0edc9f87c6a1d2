/* A collector that takes everything the moment nobody refers to it, beside daemons that publish
 * through mounts: chunks stored in the background have no reference yet, and may go at any time
 * before the commit. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define RECORDS 4

static struct cairn_error err;
static struct world w;

static struct cairn_gc_result sweep(struct cairn_store *s)
{
    /* No grace at all: a generation may go as soon as it is superseded, a pack with it. */
    struct cairn_gc_config c = {
        .grace_ns = 0, .visibility_ns = 0, .young_ns = 0, .dead_margin_ns = 0};
    struct cairn_gc_result r;
    int rc = cairn_gc(s, NULL, &c, NULL, &r, &err);
    ck_assert_msg(rc == CAIRN_OK || r.aborted, "%s", err.message);
    return r;
}

START_TEST(test_mount_collect__packs_of_a_staging_go_before_it_is_published)
{
    struct image im = IMAGE_SMALL(1);
    char stage[512], meta[4096], sum[80], export[1024];
    struct cairn_gc_result r;
    uint64_t deleted = 0;
    world_start(&w, 1, NULL);
    struct cairn_store *s = world_store(&w);
    /* A sweep of a store without any record is not to be had. */
    ck_assert_int_eq(daemon_save(w.node[0].dir, "ck_00000000000000aa", &im, "{}", false), 0);
    im.seed = 2;
    ck_assert_int_eq(daemon_stage(w.node[0].dir, "ck_00000000000000bb", stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"b\":1}"), 0);
    for (int i = 0; i < 100 && !deleted; i++) {
        r = sweep(s);
        deleted += r.packs_deleted;
        poll(NULL, 0, 20);
    }
    ck_assert_uint_gt(deleted, 0);
    ck_assert_int_eq(daemon_publish(w.node[0].dir, "ck_00000000000000bb", stage, NULL), 0);
    ck_assert_int_eq(daemon_fetch(w.node[0].dir, "ck_00000000000000bb", meta, sum, export), 0);
    image_same(export, &im);
    cairn_close(s);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

/* Between the two renames: the generation is a root, so its packs stay. */
START_TEST(test_mount_collect__what_was_published_stays_until_it_is_committed)
{
    struct image im = IMAGE_SMALL(3);
    char stage[512], meta[4096], sum[80], export[1024];
    world_start(&w, 1, NULL);
    struct cairn_store *s = world_store(&w);
    ck_assert_int_eq(daemon_save(w.node[0].dir, "ck_00000000000000aa", &im, "{}", false), 0);
    im.seed = 4;
    ck_assert_int_eq(daemon_stage(w.node[0].dir, "ck_00000000000000bb", stage), 0);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"b\":1}"), 0);
    ck_sys(mkdir(in(w.node[0].dir, "ck_00000000000000bb", NULL), 0750));
    ck_sys(rename(in(stage, "export", NULL),
                  gen_path(w.node[0].dir, "ck_00000000000000bb", "export", "{\"b\":1}")));
    /* With young_ns 0 even the manifest is old enough to go: then all is stored again. */
    for (int i = 0; i < 6; i++) {
        sweep(s);
        poll(NULL, 0, 20);
    }
    ck_assert_int_eq(daemon_publish(w.node[0].dir, "ck_00000000000000bb", stage, NULL), 0);
    ck_assert_int_eq(daemon_fetch(w.node[0].dir, "ck_00000000000000bb", meta, sum, export), 0);
    image_same(export, &im);
    cairn_close(s);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

static _Noreturn void save_for_a_while(size_t node, unsigned who, int64_t until)
{
    for (unsigned i = 0; clock_monotonic() < until; i++) {
        struct image im = IMAGE_SMALL(who * 1000 + i % 3); /* what was deleted comes again */
        char id[64], meta[64], got[4096], sum[80], export[1024];
        text(id, sizeof(id), "ck_%016x", who);
        text(meta, sizeof(meta), "{\"i\":%u}", i);
        im.memory = 2 << 20;
        int e = daemon_save(w.node[node].dir, id, &im, meta, i % 2);
        /* Sweeps without any grace, one after the other, may outrun a writer; it says so. */
        if (e == EAGAIN) {
            e = daemon_remove_all(in(w.node[node].dir, id, NULL));
            if (!e)
                continue;
        }
        if (!e)
            e = daemon_fetch(w.node[node].dir, id, got, sum, export);
        if (!e)
            image_same(export, &im);
        if (!e)
            e = daemon_delete(w.node[node].dir, id);
        if (e) {
            fprintf(stderr, "%s: %s\n", id, strerror(e));
            _exit(1);
        }
    }
    _exit(0);
}

START_TEST(test_mount_collect__sweeps_without_grace_and_daemons_go_together)
{
    struct image im = IMAGE_SMALL(5);
    char meta[4096], sum[80], export[1024];
    int done = 0, status;
    uint64_t deleted = 0;
    world_start(&w, 2, NULL);
    ck_assert_int_eq(daemon_save(w.node[0].dir, "ck_00000000000000aa", &im, "{}", false), 0);
    int64_t until = clock_monotonic() + 3 * NS_PER_S;
    pid_t pids[RECORDS];
    for (unsigned r = 0; r < RECORDS; r++)
        if ((pids[r] = (pid_t)ck_sys(fork())) == 0)
            save_for_a_while(r % 2, r + 1, until);
    /* Not before: a process with threads does not fork well. */
    struct cairn_store *s = world_store(&w);
    while (clock_monotonic() < until) {
        deleted += sweep(s).packs_deleted;
        poll(NULL, 0, 10);
    }
    for (; done < RECORDS; done++) {
        ck_sys(waitpid(pids[done], &status, 0));
        ck_assert_int_eq(status, 0);
    }
    ck_assert_uint_gt(deleted, 0);
    ck_assert_int_eq(daemon_fetch(w.node[1].dir, "ck_00000000000000aa", meta, sum, export), 0);
    image_same(export, &im);
    cairn_close(s);
    world_stop(&w);
    world_verify(&w);
}
END_TEST

TESTING_MAIN(mount_collect, test_mount_collect__packs_of_a_staging_go_before_it_is_published,
             test_mount_collect__what_was_published_stays_until_it_is_committed,
             test_mount_collect__sweeps_without_grace_and_daemons_go_together)
