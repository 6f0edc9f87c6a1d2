/* Threads of a library leave signals to the program's own. */
#include "base/thread.h"
#include "tests/lib/testing.h"

#include <signal.h>

static void *see_mask(void *out)
{
    pthread_sigmask(SIG_SETMASK, NULL, out);
    return NULL;
}

START_TEST(test_thread__signals_are_blocked_in_it_and_only_there)
{
    sigset_t before, inside, after;
    pthread_t thread;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ck_assert_int_eq(thread_start(&thread, see_mask, &inside), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGCHLD};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        ck_assert_int_eq(sigismember(&inside, signals[i]), 1);
        ck_assert_int_eq(sigismember(&before, signals[i]), sigismember(&after, signals[i]));
        ck_assert_int_eq(sigismember(&after, signals[i]), 0);
    }
}
END_TEST

TESTING_MAIN(thread, test_thread__signals_are_blocked_in_it_and_only_there)
