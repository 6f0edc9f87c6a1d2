#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}
