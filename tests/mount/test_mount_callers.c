/* Callers that get signals, or are killed, while they wait: whose call fails, and what becomes of a
 * commit. On the fault server, which is slow when it is told to be. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/bucket.h"
#include "tests/mount/daemon.h"
#include "tests/mount/stage.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static struct world w;
static const char *root;
static char stage[512], gen[17];

static void begin(void)
{
    world_trace(false);
    bucket_start(&w, 1);
    root = w.node[0].dir;
}

static void end(void)
{
    bucket_stop_verified(&w);
}

/* ---- Commits --------------------------------------------------------------------------------- */

static void stage_image(const struct image *im, const char *meta)
{
    ck_assert_int_eq(daemon_stage(root, STAGE_A, stage), 0);
    ck_assert_int_eq(tool_export(stage, im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, meta), 0);
}

static void is_saved(const struct image *im)
{
    char meta[4096], sum[80], export[1024];
    ck_assert_int_eq(daemon_fetch(root, STAGE_A, meta, sum, export), 0);
    image_same(export, im);
}

/* Whether the spool has something of the record. */
static bool is_in_spool(void)
{
    char command[1024], line[8] = "";
    snprintf(command, sizeof(command), "find %s/*/mount/tree/%s -name 'export-*' 2>/dev/null",
             w.node[0].state, STAGE_A);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    bool any = fgets(line, sizeof(line), f);
    while (fgets(line, sizeof(line), f))
        ;
    pclose(f);
    return any;
}

/* Until the server has it, which answers the PUT late. */
static void until_committed(void)
{
    char key[512];
    int64_t end_ns = clock_monotonic() + 60 * NS_PER_S;
    text(key, sizeof(key), "%s/records/%s/meta.json", w.store + strlen("s3://bucket/"), STAGE_A);
    while (!s3fs_has(fs, key)) {
        ck_assert_msg(clock_monotonic() < end_ns, "%s was not put", key);
        poll(NULL, 0, 10);
    }
}

static pid_t publish_aside(void)
{
    pid_t pid = (pid_t)ck_sys(fork());
    if (pid == 0)
        _exit(daemon_publish(root, STAGE_A, stage, NULL) ? 1 : 0);
    return pid;
}

/* The commit is carried out, and its caller killed before it hears of that. */
static void kill_in_commit(const struct image *im)
{
    stage_image(im, "{}");
    rule("PUT key=meta.json times=1 do delay=2000");
    pid_t pid = publish_aside();
    until_committed();
    ck_sys(kill(pid, SIGKILL));
    int status;
    ck_sys(waitpid(pid, &status, 0));
    ck_assert(WIFSIGNALED(status));
}

START_TEST(test_mount_callers__a_commit_goes_on_when_its_caller_is_killed)
{
    struct image im = IMAGE_SMALL(1);
    begin();
    kill_in_commit(&im);
    int64_t end_ns = clock_monotonic() + 60 * NS_PER_S;
    while (is_in_spool()) {
        ck_assert_msg(clock_monotonic() < end_ns, "what was committed stays in the spool");
        poll(NULL, 0, 50);
    }
    is_saved(&im);
    end();
}
END_TEST

START_TEST(test_mount_callers__who_commits_once_more_hears_how_the_first_went)
{
    struct image im = IMAGE_SMALL(2);
    char tmp[600], meta[600];
    begin();
    kill_in_commit(&im);
    text(tmp, sizeof(tmp), "%s/%s/meta.json.tmp", root, STAGE_A);
    text(meta, sizeof(meta), "%s/%s/meta.json", root, STAGE_A);
    ck_assert_int_eq(rename(tmp, meta), 0);
    ck_assert(!is_in_spool());
    is_saved(&im);
    end();
}
END_TEST

START_TEST(test_mount_callers__a_commit_whose_answers_are_lost_is_no_failure)
{
    struct image im = IMAGE_SMALL(3);
    setenv("CAIRN_TEST_PUBLISH_MS", "6000", 1);
    begin();
    stage_image(&im, "{}");
    rule("PUT key=meta.json do nothing stored");
    ck_assert_int_eq(daemon_publish(root, STAGE_A, stage, NULL), 0);
    ck_assert(!is_in_spool());
    is_saved(&im);
    end();
}
END_TEST

/* Somebody else has committed the same meta.json with another export meanwhile, and the store is
 * too slow to say so: that is no commit of this one, which would be gone. */
START_TEST(test_mount_callers__a_commit_of_the_same_meta_by_others_is_not_taken_for_it)
{
    struct image im = IMAGE_SMALL(4);
    char tmp[600], meta[600];
    setenv("CAIRN_TEST_PUBLISH_MS", "4000", 1);
    begin();
    stage_image(&im, "{}");
    rule("PUT key=meta.json times=1 do status=403 code=AccessDenied");
    ck_assert_int_ne(daemon_publish(root, STAGE_A, stage, NULL), 0);
    s3fs_clear(fs);
    stage_file(&w, "memory", 0, 65536, 9, MIB);
    stage_publish(&w, STAGE_A, "{}", false, gen);
    rule("GET key=export- do status=503 code=SlowDown");
    text(tmp, sizeof(tmp), "%s/%s/meta.json.tmp", root, STAGE_A);
    text(meta, sizeof(meta), "%s/%s/meta.json", root, STAGE_A);
    ck_assert_int_ne(rename(tmp, meta), 0);
    ck_assert(is_in_spool());
    s3fs_clear(fs);
    ck_assert_int_ne(rename(tmp, meta), 0);
    ck_assert_int_eq(errno, EEXIST);
    ck_assert(is_in_spool());
    end();
}
END_TEST

/* ---- Signals --------------------------------------------------------------------------------- */

static void nothing(int signo)
{
    (void)signo;
}

/* Looks up what nobody knows of here, under a rain of signals: how that went, as an exit status.
 * (What the kernel reads into its pages is nobody's, and it tells of no signals there.) */
static int look_under_signals(const char *path)
{
    struct sigaction sa = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    struct itimerval often = {{.tv_usec = 20000}, {.tv_usec = 20000}};
    struct stat st;
    if (sigaction(SIGALRM, &sa, NULL) != 0 || setitimer(ITIMER_REAL, &often, NULL) != 0)
        return 100;
    int e = stat(path, &st) == 0 ? 0 : errno;
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    return e;
}

/* In a process of its own; apart: which is in a PID namespace of its own. */
static pid_t look_aside(const char *id, bool apart)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s", stage_shown(&w, 0, id, gen, "memory"));
    CLEANUP_FD int own = ck_sys(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    if (apart)
        ck_sys(unshare(CLONE_NEWPID));
    pid_t pid = (pid_t)ck_sys(fork());
    if (pid == 0)
        _exit(look_under_signals(path));
    ck_sys(setns(own, CLONE_NEWPID));
    return pid;
}

/* Two records of the same meta. */
static void publish_two(void)
{
    stage_file(&w, "memory", 0, 65536, 1, MIB);
    stage_publish(&w, STAGE_A, "{}", false, gen);
    stage_publish(&w, STAGE_B, "{}", false, gen);
}

static void waits_whatever_signals_come(bool apart)
{
    int status;
    rule("ANY key=records/ times=1 do delay=1500");
    ck_sys(waitpid(look_aside(STAGE_A, apart), &status, 0));
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "look: %s",
                  WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "died");
    s3fs_clear(fs);
}

/* One who is killed while the server is silent is gone long before that is given up. */
static void can_be_killed(bool apart)
{
    int status;
    s3fs_reset_stats(fs);
    rule("ANY key=records/ do hole");
    pid_t pid = look_aside(STAGE_B, apart);
    int64_t end_ns = clock_monotonic() + 60 * NS_PER_S;
    while (!counts().requests) {
        ck_assert(clock_monotonic() < end_ns);
        poll(NULL, 0, 10);
    }
    int64_t killed = clock_monotonic();
    ck_sys(kill(pid, SIGKILL));
    ck_sys(waitpid(pid, &status, 0));
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_lt(clock_monotonic() - killed, 15 * NS_PER_S);
    s3fs_clear(fs);
}

START_TEST(test_mount_callers__one_in_a_namespace_below_is_seen)
{
    if (geteuid() != 0)
        return;
    begin();
    publish_two();
    waits_whatever_signals_come(true);
    can_be_killed(true);
    end();
}
END_TEST

START_TEST(test_mount_callers__one_that_cannot_be_seen_is_taken_for_alive)
{
    if (geteuid() != 0)
        return;
    world_apart(true);
    begin();
    publish_two();
    waits_whatever_signals_come(false);
    end();
}
END_TEST

START_TEST(test_mount_callers__one_that_cannot_be_seen_is_given_up_in_the_end)
{
    if (geteuid() != 0)
        return;
    setenv("CAIRN_TEST_UNSEEN_MS", "300", 1);
    world_apart(true);
    begin();
    publish_two();
    can_be_killed(false);
    end();
}
END_TEST

TESTING_MAIN(mount_callers, test_mount_callers__a_commit_goes_on_when_its_caller_is_killed,
             test_mount_callers__who_commits_once_more_hears_how_the_first_went,
             test_mount_callers__a_commit_whose_answers_are_lost_is_no_failure,
             test_mount_callers__a_commit_of_the_same_meta_by_others_is_not_taken_for_it,
             test_mount_callers__one_in_a_namespace_below_is_seen,
             test_mount_callers__one_that_cannot_be_seen_is_taken_for_alive,
             test_mount_callers__one_that_cannot_be_seen_is_given_up_in_the_end)
