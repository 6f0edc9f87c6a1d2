/* The mount dies at each named step of a publish and of a removal (a build with -Dsteps=true): what
 * was there before or what was to be is there afterwards, whole, and the same calls lead to the
 * end. */
#include "base/util.h"
#include "tests/mount/daemon.h"

#include <stdio.h>
#include <sys/stat.h>

#define TP_A "tp_000000000000000000000000000000aa"

static struct world w;
static const char *root;

static const char *const saving[] = {
    "pack.filled",     "pack.durable",     "pack.indexed",       "ingest.batch",
    "staged.ingested", "staged.prepared",  "mount.export-moved", "commit.begin",
    "commit.staged",   "commit.manifest",  "commit.checked",     "commit.committed",
    "commit.looked",   "staged.committed", "mount.committed",    "mount.cleaned"};
static const char *const removing[] = {"remove.begin", "remove.tomb", "remove.exports",
                                       "remove.meta", "mount.removed"};
/* Of a superseded generation. */
static const char *const ageing[] = {"staged.buried", "mount.removed"};

static const struct image one = IMAGE_SMALL(1), two = IMAGE_SMALL(2);

static void mount_to_die_at(const char *step)
{
    static char plan[64];
    text(plan, sizeof(plan), "%s:1", step);
    world_kill_at(plan);
    world_mount(&w, 0);
    world_kill_at(NULL);
}

/* 0: there is no such record; else the number in its meta.json, its export being whole. */
static int shown(void)
{
    char meta[4096], sum[80], export[1024];
    int n, e = daemon_fetch(root, TP_A, meta, sum, export);
    if (e == ENOENT)
        return 0;
    ck_assert_int_eq(e, 0);
    ck_assert_int_eq(sscanf(meta, "{\"n\":%d}", &n), 1);
    image_same(export, n == 1 ? &one : &two);
    return n;
}

static void begin(void)
{
    world_kill_at(NULL);
    world_start(&w, 1, NULL);
    root = w.node[0].dir;
    ck_assert_int_eq(daemon_save(root, TP_A, &one, "{\"n\":1}", true), 0);
    world_unmount(&w, 0);
}

static void end(void)
{
    world_stop(&w);
    world_verify(&w);
}

static void die_saving(const char *step)
{
    begin();
    mount_to_die_at(step);
    int e = daemon_save(root, TP_A, &two, "{\"n\":2}", true);
    world_died(&w, 0);
    world_mount(&w, 0);
    int n = shown();
    ck_assert_msg(n == 2 || (n == 1 && e), "%s: %d is there after %s", step, n, strerror(e));
    daemon_start(root);
    ck_assert_int_eq(shown(), n);
    ck_assert_int_eq(daemon_save(root, TP_A, &two, "{\"n\":2}", true), 0);
    ck_assert_int_eq(shown(), 2);
    ck_assert_int_eq(daemon_delete(root, TP_A), 0);
    ck_assert_int_eq(shown(), 0);
    end();
}

START_TEST(test_mount_steps__a_publish)
{
    for (size_t i = 0; i < ARRAY_SIZE(saving); i++)
        die_saving(saving[i]);
}
END_TEST

static void die_removing(const char *step)
{
    struct stat st;
    begin();
    mount_to_die_at(step);
    (void)daemon_delete(root, TP_A);
    world_died(&w, 0);
    world_mount(&w, 0);
    int n = shown();
    ck_assert(n == 0 || n == 1);
    int e = daemon_delete(root, TP_A);
    ck_assert_msg(e == 0 || (n == 0 && e == ENOENT), "%s: %s", step, strerror(e));
    ck_errno(stat(in(root, TP_A, NULL), &st), ENOENT);
    ck_assert_int_eq(daemon_save(root, TP_A, &two, "{\"n\":2}", true), 0);
    ck_assert_int_eq(shown(), 2);
    end();
}

START_TEST(test_mount_steps__a_removal)
{
    for (size_t i = 0; i < ARRAY_SIZE(removing); i++)
        die_removing(removing[i]);
}
END_TEST

static void die_ageing(const char *step)
{
    char old[1024];
    struct stat st;
    begin();
    world_mount(&w, 0);
    ck_assert_int_eq(daemon_save(root, TP_A, &two, "{\"n\":2}", true), 0);
    world_unmount(&w, 0);
    mount_to_die_at(step);
    text(old, sizeof(old), "%s", gen_path(root, TP_A, "export", "{\"n\":1}"));
    (void)daemon_remove_all(old);
    world_died(&w, 0);
    world_mount(&w, 0);
    ck_assert_int_eq(shown(), 2);
    if (stat(old, &st) == 0)
        image_same(old, &one);
    ck_assert_int_eq(daemon_remove_all(old), 0);
    ck_errno(stat(old, &st), ENOENT);
    ck_assert_int_eq(shown(), 2);
    end();
}

START_TEST(test_mount_steps__the_removal_of_a_superseded_generation)
{
    for (size_t i = 0; i < ARRAY_SIZE(ageing); i++)
        die_ageing(ageing[i]);
}
END_TEST

TESTING_MAIN(mount_steps, test_mount_steps__a_publish, test_mount_steps__a_removal,
             test_mount_steps__the_removal_of_a_superseded_generation)
