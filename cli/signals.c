#include "cli/signals.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>

static struct {
    sigset_t set; /* what is taken; set once */
    int signals;  /* a signalfd */
    int quit[2];  /* a pipe; its write end is closed to end the thread */
    pthread_t thread;
    bool running;
    struct cairn_cancel *cancel; /* borrowed */
    atomic_int taken;
} state = {.signals = -1, .quit = {-1, -1}};

void signals_block(void)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file too large for the limit is an error to be told */
    sigemptyset(&state.set);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct sigaction old;
        if (sigaction(wanted[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&state.set, wanted[i]);
    }
    pthread_sigmask(SIG_BLOCK, &state.set, NULL);
}

static void *take(void *arg)
{
    (void)arg;
    struct pollfd p[2] = {{.fd = state.signals, .events = POLLIN},
                          {.fd = state.quit[0], .events = POLLIN}};
    for (;;) {
        if (poll(p, 2, -1) < 0)
            continue;
        struct signalfd_siginfo info;
        if ((p[0].revents & POLLIN) &&
            read(state.signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            int none = 0;
            if (!atomic_compare_exchange_strong(&state.taken, &none, (int)info.ssi_signo))
                _exit(128 + (int)info.ssi_signo);
            cairn_cancel_fire(state.cancel);
        }
        if (p[1].revents)
            return NULL;
    }
}

int signals_start(struct cairn_cancel *cancel, struct cairn_error *err)
{
    state.cancel = cancel;
    state.signals = signalfd(-1, &state.set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (state.signals < 0)
        return error_sys(err, errno, "signalfd");
    if (pipe2(state.quit, O_CLOEXEC) != 0)
        return error_sys(err, errno, "pipe for signals");
    int e = pthread_create(&state.thread, NULL, take, NULL);
    if (e)
        return error_sys(err, e, "thread for signals");
    state.running = true;
    return CAIRN_OK;
}

void signals_stop(void)
{
    if (state.running) {
        /* The hang-up is what the thread waits for: unlike a write, a close always gets there. */
        close(state.quit[1]);
        state.quit[1] = -1;
        pthread_join(state.thread, NULL);
    }
    util_closep(&state.signals);
    util_closep(&state.quit[0]);
    util_closep(&state.quit[1]);
    state.signals = state.quit[0] = state.quit[1] = -1;
    state.running = false;
}

int signals_taken(void)
{
    return atomic_load(&state.taken);
}
