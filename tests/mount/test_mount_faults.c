/* Publishing into a bucket that fails: whichever request goes wrong, the rename says so, the
 * staging stays, and the same calls made again succeed. On the fault server. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/bucket.h"
#include "tests/mount/daemon.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CK_A "ck_00000000000000aa"

static struct world w;
static const char *root;
static char stage[512];

static void begin(void)
{
    bucket_start(&w, 1);
    root = w.node[0].dir;
}

static void end(void)
{
    bucket_stop_verified(&w);
}

static void stage_image(const char *id, const struct image *im, const char *meta)
{
    ck_assert_int_eq(daemon_stage(root, id, stage), 0);
    ck_assert_int_eq(tool_export(stage, im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, meta), 0);
}

static void is_saved(const char *id, const struct image *im)
{
    char meta[4096], sum[80], export[1024];
    ck_assert_int_eq(daemon_fetch(root, id, meta, sum, export), 0);
    image_same(export, im);
}

/* Where the export is after a publish that failed. */
static const char *where_is_it(const char *id, const char *meta)
{
    struct stat st;
    const char *published = gen_path(root, id, "export", meta);
    return stat(in(stage, "export", NULL), &st) == 0 ? in(stage, "export", NULL) : published;
}

/* A publish under a rule, and what follows. */
static bool refuse(unsigned number, const char *line)
{
    char id[64], meta[64];
    struct image im = IMAGE_SMALL(number);
    text(id, sizeof(id), "ck_%016x", number);
    text(meta, sizeof(meta), "{\"k\":%u}", number);
    rule(line);
    stage_image(id, &im, meta);
    int e = daemon_publish(root, id, stage, NULL);
    s3fs_clear(fs);
    if (e) {
        ck_assert_msg(e == EACCES || e == EPERM || e == EIO, "%s: %s", line, strerror(e));
        image_same(where_is_it(id, meta), &im);
        ck_assert_int_eq(daemon_publish(root, id, stage, NULL), 0);
    }
    is_saved(id, &im);
    ck_assert_int_eq(daemon_remove_all(stage), 0);
    return e != 0;
}

START_TEST(test_mount_faults__whichever_put_is_refused_the_publish_can_be_made_again)
{
    unsigned failed = 0;
    char line[128];
    begin();
    /* Twice: credentials are looked up anew in between. At least the pack, the manifest twice, and
     * meta.json. */
    for (unsigned k = 0; k < 5; k++) {
        text(line, sizeof(line), "PUT skip=%u times=2 do status=403", k);
        failed += refuse(1 + k, line);
    }
    ck_assert_uint_ge(failed, 4);
    /* Carried out, but the answer says otherwise. */
    ck_assert(refuse(10, "PUT key=/export- times=2 do status=403 stored"));
    ck_assert(refuse(11, "PUT key=meta.json times=2 do status=403 stored"));
    end();
}
END_TEST

START_TEST(test_mount_faults__passing_trouble_is_no_trouble)
{
    struct image im = IMAGE_SMALL(7);
    begin();
    rule("ANY pct=20 do status=500 code=InternalError");
    stage_image(CK_A, &im, "{}");
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    s3fs_clear(fs);
    is_saved(CK_A, &im);
    end();
}
END_TEST

static pid_t publish_aside(void)
{
    pid_t pid = (pid_t)ck_sys(fork());
    if (pid == 0)
        _exit(daemon_publish(root, CK_A, stage, NULL) ? 1 : 0);
    return pid;
}

/* Until a PUT of what holds this text came and was left without an answer. */
static void until_stuck(void)
{
    int64_t end_ns = clock_monotonic() + 30 * NS_PER_S;
    do {
        poll(NULL, 0, 20);
        ck_assert_int_lt(clock_monotonic(), end_ns);
    } while (!counts().put);
    poll(NULL, 0, 100);
}

START_TEST(test_mount_faults__a_rename_that_waits_can_be_killed_and_made_again)
{
    static const char *const rules[] = {"PUT key=/export- do hole", "PUT key=meta.json do hole"};
    struct image im = IMAGE_SMALL(8);
    begin();
    stage_image(CK_A, &im, "{}");
    poll(NULL, 0, 500); /* chunks are stored in the background by then */
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        int status;
        rule(rules[i]);
        s3fs_reset_stats(fs);
        pid_t pid = publish_aside();
        until_stuck();
        /* Others are not kept from anything. */
        size_t n;
        ck_assert_int_eq(daemon_list(root, "tp_", &n), 0);
        int64_t killed = clock_monotonic();
        ck_sys(kill(pid, SIGKILL));
        ck_sys(waitpid(pid, &status, 0));
        ck_assert_int_lt(clock_monotonic() - killed, 10 * NS_PER_S);
        s3fs_clear(fs);
        image_same(where_is_it(CK_A, "{}"), &im);
    }
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    is_saved(CK_A, &im);
    end();
}
END_TEST

START_TEST(test_mount_faults__a_mount_killed_in_a_rename_goes_on_where_it_was)
{
    struct image im = IMAGE_SMALL(9);
    int status;
    begin();
    stage_image(CK_A, &im, "{}");
    rule("PUT key=meta.json do hole");
    s3fs_reset_stats(fs);
    pid_t pid = publish_aside();
    until_stuck();
    world_kill(&w, 0);
    ck_sys(waitpid(pid, &status, 0));
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    s3fs_clear(fs);
    world_mount(&w, 0);
    image_same(where_is_it(CK_A, "{}"), &im);
    ck_assert_int_eq(daemon_publish(root, CK_A, stage, NULL), 0);
    is_saved(CK_A, &im);
    end();
}
END_TEST

TESTING_MAIN(mount_faults,
             test_mount_faults__whichever_put_is_refused_the_publish_can_be_made_again,
             test_mount_faults__passing_trouble_is_no_trouble,
             test_mount_faults__a_rename_that_waits_can_be_killed_and_made_again,
             test_mount_faults__a_mount_killed_in_a_rename_goes_on_where_it_was)
