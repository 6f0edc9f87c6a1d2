#include "base/step.h"

#ifdef CAIRN_STEPS

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether this is the passing that spec ("NAME:N" or "NAME:N:rest") asks for. *count is guarded by
 * lock. */
static bool is_due(const char *spec, const char *name, unsigned *count)
{
    size_t n = strlen(name);
    if (!spec || strncmp(spec, name, n) != 0 || spec[n] != ':')
        return false;
    return ++*count == strtoul(spec + n + 1, NULL, 10);
}

static void pause_until(const char *file)
{
    char reached[4096];
    snprintf(reached, sizeof(reached), "%s.reached", file);
    int fd = open(reached, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    for (int i = 0; i < 6000 && access(file, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

void step_pass(const char *name)
{
    static unsigned kills, pauses;
    const char *log = getenv("CAIRN_STEP_LOG");
    if (log) {
        int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        char line[256];
        int n = snprintf(line, sizeof(line), "%s\n", name);
        if (fd >= 0) {
            (void)!write(fd, line, (size_t)n);
            close(fd);
        }
    }
    pthread_mutex_lock(&lock);
    bool kill_now = is_due(getenv("CAIRN_STEP_KILL"), name, &kills);
    bool pause_now = is_due(getenv("CAIRN_STEP_PAUSE"), name, &pauses);
    pthread_mutex_unlock(&lock);
    if (kill_now)
        kill(getpid(), SIGKILL);
    if (pause_now) {
        const char *spec = strchr(getenv("CAIRN_STEP_PAUSE"), ':');
        const char *file = spec ? strchr(spec + 1, ':') : NULL;
        if (file)
            pause_until(file + 1);
    }
}

#endif
