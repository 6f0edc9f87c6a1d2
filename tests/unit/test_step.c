/* Only a build with -Dsteps=true has steps; in any other this checks that STEP is nothing. */
#include "base/step.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static char folder[300];

/* A child passes a, b, a, c, each with its own log line. */
static int run_child(const char *name, const char *value)
{
    snprintf(folder, sizeof(folder), "%s", testing_tmpdir());
    char log[400];
    snprintf(log, sizeof(log), "%s/log", folder);
    fflush(stdout);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        setenv("CAIRN_STEP_LOG", log, 1);
        if (name)
            setenv(name, value, 1);
        STEP("a");
        STEP("b");
        STEP("a");
        STEP("c");
        _exit(7);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void expect_log(const char *want)
{
    char log[400], text[100] = "";
    snprintf(log, sizeof(log), "%s/log", folder);
    FILE *f = fopen(log, "re");
    if (f) {
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = 0;
        fclose(f);
    }
    ck_assert_str_eq(text, want);
}

#ifdef CAIRN_STEPS

START_TEST(test_step__passings_are_logged)
{
    int status = run_child(NULL, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect_log("a\nb\na\nc\n");
}
END_TEST

START_TEST(test_step__the_nth_passing_kills)
{
    int status = run_child("CAIRN_STEP_KILL", "a:2");
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_log("a\nb\na\n");
    status = run_child("CAIRN_STEP_KILL", "a:3");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    status = run_child("CAIRN_STEP_KILL", "aa:1");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
END_TEST

START_TEST(test_step__a_pause_ends_when_the_file_is_there)
{
    char file[300], spec[400], reached[400];
    snprintf(file, sizeof(file), "%s/go", testing_tmpdir());
    snprintf(spec, sizeof(spec), "b:1:%s", file);
    snprintf(reached, sizeof(reached), "%s.reached", file);
    FILE *f = fopen(file, "we");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    int status = run_child("CAIRN_STEP_PAUSE", spec);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    ck_assert_int_eq(access(reached, F_OK), 0);
}
END_TEST

TESTING_MAIN(step, test_step__passings_are_logged, test_step__the_nth_passing_kills,
             test_step__a_pause_ends_when_the_file_is_there)

#else

START_TEST(test_step__costs_nothing_in_other_builds)
{
    int status = run_child("CAIRN_STEP_KILL", "a:1");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect_log("");
}
END_TEST

TESTING_MAIN(step, test_step__costs_nothing_in_other_builds)

#endif
