/* Shared fetches killed at each step, and two processes of one state directory held up at the worst
 * places (base/step.h). Each child opens a store of its own; the parent has none open when it
 * forks.
 */
#include "base/util.h"
#include "store/gens.h"
#include "store/pin_keeper.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static struct cairn_error err;
static struct kit k;

static void start(void)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    cairn_close(k.s);
    k.s = NULL;
}

static void stop(void)
{
    kit_stop(&k);
}

/* What a child does: fetch, let go, make room, fetch again, remove. */
static void live_a_life(void)
{
    struct cairn_fetch_shared_result r;
    k.s = kit_open(&k);
    if (cairn_fetch_shared(k.s, NULL, CK_A, NULL, &r, &err))
        _exit(10);
    if (cairn_lease_release(k.s, r.lease, &err))
        _exit(11);
    cairn_fetch_shared_result_release(&r);
    if (!gens_clear(k.s->gens))
        _exit(12);
    if (cairn_fetch_shared(k.s, NULL, CK_A, NULL, &r, &err))
        _exit(13);
    cairn_fetch_shared_result_release(&r);
    cairn_close(k.s);
}

static pid_t spawn(const char *variable, const char *value, void (*life)(void))
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    if (variable)
        setenv(variable, value, 1);
    life();
    _exit(0);
}

static int end_of(pid_t pid)
{
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static unsigned names_in(const char *below, const char *prefix)
{
    char path[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/cache/gens/%s", k.s->state, below);
    CLEANUP_DIR DIR *dir = opendir(path);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            n += strncmp(d->d_name, prefix, strlen(prefix)) == 0;
    return n;
}

static void fetch_and_compare(struct cairn_fetch_shared_result *r)
{
    struct cairn_record *record = NULL;
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, NULL, r, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &record, &err));
    kit_same_folder(record, r->path);
    cairn_record_close(record);
}

/* Whatever was left: nothing half made stays, what is found is whole, and everything works. */
static void is_sound(const char *where)
{
    struct cairn_fetch_shared_result r;
    k.s = kit_open(&k);
    ck_assert_msg(names_in("", ".tmp-") == 0, "%s", where);
    ck_assert_msg(names_in(CK_A, "") <= 1, "%s", where);
    fetch_and_compare(&r);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(cairn_lease_release(k.s, r.lease, &err));
    cairn_fetch_shared_result_release(&r);
    ck_assert_msg(names_in(CK_A, "") == 0, "%s", where);
    ck_assert_msg(names_in("", ".tmp-") == 0, "%s", where);
}

START_TEST(test_shared_steps__a_kill_at_each_step_leaves_nothing_half)
{
    static const char *const steps[] = {
        "shared.found:1",      "gens.made:1",    "tree.made:1",           "fetch.created:2",
        "fetch.batch:1",       "tree.built:1",   "tree.renamed:1",        "shared.fetched:1",
        "gens.frozen:1",       "gens.sealed:1",  "shared.looked-again:1", "gens.installed:1",
        "gens.renamed-away:1", "gens.removed:1", "gens.installed:2"};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        start();
        int status = end_of(spawn("CAIRN_STEP_KILL", steps[i], live_a_life));
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s: not passed",
                      steps[i]);
        is_sound(steps[i]);
        stop();
    }
}
END_TEST

/* ---- Two processes --------------------------------------------------------------------------- */

static char go[300], reached[320];

static pid_t spawn_paused(const char *step, void (*life)(void))
{
    char spec[400];
    const char *control = testing_tmpdir();
    snprintf(go, sizeof(go), "%.250s/go", control);
    snprintf(reached, sizeof(reached), "%s.reached", go);
    snprintf(spec, sizeof(spec), "%s:1:%s", step, go);
    pid_t pid = spawn("CAIRN_STEP_PAUSE", spec, life);
    for (int i = 0; i < 3000 && access(reached, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_int_eq(access(reached, F_OK), 0);
    return pid;
}

static void let_go_on(void)
{
    CLEANUP_FD int fd = open(go, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
}

static void only_fetch(void)
{
    struct cairn_fetch_shared_result r;
    k.s = kit_open(&k);
    if (cairn_fetch_shared(k.s, NULL, CK_A, NULL, &r, &err))
        _exit(10);
    cairn_fetch_shared_result_release(&r);
    cairn_close(k.s);
}

/* What a living process makes is not what a dead one left, at whichever step. */
START_TEST(test_shared_steps__what_another_makes_is_left_alone)
{
    static const char *const steps[] = {"fetch.created", "tree.built", "gens.frozen", "gens.sealed",
                                        "shared.looked-again"};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        start();
        pid_t pid = spawn_paused(steps[i], only_fetch);
        k.s = kit_open(&k); /* cleans */
        ck_assert_uint_eq(names_in("", ".tmp-"), 1);
        ck_assert(!gens_clear(k.s->gens));
        let_go_on();
        ck_assert_int_eq(end_of(pid), 0);
        ck_assert_uint_eq(names_in("", ".tmp-"), 0);
        ck_assert_uint_eq(names_in(CK_A, ""), 1);
        struct cairn_fetch_shared_result r;
        fetch_and_compare(&r);
        ck_assert(r.ready);
        cairn_fetch_shared_result_release(&r);
        stop();
    }
}
END_TEST

/* Two processes make the same at once: the second to finish uses the first one's. */
START_TEST(test_shared_steps__the_second_to_finish_uses_the_first_ones)
{
    struct cairn_fetch_shared_result r;
    start();
    pid_t pid = spawn_paused("shared.fetched", only_fetch);
    k.s = kit_open(&k);
    fetch_and_compare(&r);
    ck_assert(!r.ready);
    let_go_on();
    ck_assert_int_eq(end_of(pid), 0);
    ck_assert_uint_eq(names_in(CK_A, ""), 1);
    ck_assert_uint_eq(names_in("", ".tmp-"), 0);
    ck_assert_int_eq(access(r.path, F_OK), 0);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

static void only_clear(void)
{
    k.s = kit_open(&k);
    if (!gens_clear(k.s->gens))
        _exit(10);
    cairn_close(k.s);
}

/* While one removes, the other fetches: it gets a whole one of its own, which stays. */
START_TEST(test_shared_steps__a_removal_elsewhere_takes_only_what_it_saw)
{
    struct cairn_fetch_shared_result r;
    start();
    k.s = kit_open(&k);
    fetch_and_compare(&r);
    cairn_close(k.s);
    cairn_fetch_shared_result_release(&r);
    pid_t pid = spawn_paused("gens.renamed-away", only_clear);
    k.s = kit_open(&k);
    fetch_and_compare(&r);
    ck_assert(!r.ready);
    let_go_on();
    ck_assert_int_eq(end_of(pid), 0);
    ck_assert_int_eq(access(r.path, F_OK), 0);
    ck_assert_uint_eq(names_in(CK_A, ""), 1);
    ck_assert_uint_eq(names_in("", ".tmp-"), 0);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

/* ---- Pins ------------------------------------------------------------------------------------ */

static void hold_for_long(void)
{
    struct cairn_config config = {.state = k.state, .workers = 2, .generation_grace_seconds = 0.1};
    struct backend *b = NULL;
    struct cairn_fetch_shared_result r;
    if (backend_dir_open(k.root, &b, &err) || store_new(b, &config, NULL, &k.s, &err) ||
        cairn_fetch_shared(k.s, NULL, CK_A, NULL, &r, &err))
        _exit(10);
    for (;;)
        pause();
}

/* Killed just after its first pin, or in the middle of putting them again and again: one pin is
 * left, which is whole, and goes when twice the grace is over. */
START_TEST(test_shared_steps__the_pin_of_the_killed_is_left_to_sweeps)
{
    static const char *const steps[] = {"keeper.put:1", "backend.temp-written:3", "keeper.put:5"};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        start();
        int status = end_of(spawn("CAIRN_STEP_KILL", steps[i], hold_for_long));
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s", steps[i]);
        k.s = kit_open(&k);
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 1);
        struct cairn_gc_config config;
        struct cairn_gc_result result;
        cairn_gc_config_init(&config);
        ck_ok(cairn_gc(k.s, NULL, &config, NULL, &result, &err));
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 1);
        config.grace_ns = 1000;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        ck_ok(cairn_gc(k.s, NULL, &config, NULL, &result, &err));
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
        stop();
    }
}
END_TEST

TESTING_MAIN(shared_steps, test_shared_steps__a_kill_at_each_step_leaves_nothing_half,
             test_shared_steps__what_another_makes_is_left_alone,
             test_shared_steps__the_second_to_finish_uses_the_first_ones,
             test_shared_steps__a_removal_elsewhere_takes_only_what_it_saw,
             test_shared_steps__the_pin_of_the_killed_is_left_to_sweeps)
