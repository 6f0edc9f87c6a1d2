#include "fuse/caller.h"

#include "base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool caller_can_be_seen(void)
{
    char text[32];
    ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    return strtol(text, NULL, 10) == (long)getpid();
}

static uint64_t signals(const char *status, const char *field)
{
    const char *at = strstr(status, field);
    return at ? strtoull(at + strlen(field), NULL, 16) : 0;
}

/* proc(5): a thread that is to die has SIGKILL pending. */
enum caller caller_look(pid_t thread)
{
    char path[64], text[2048];
    if (thread <= 0)
        return CALLER_UNSEEN;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : util_pread_full(fd, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return CALLER_UNSEEN;
    text[n] = 0;
    uint64_t set = signals(text, "SigPnd:") | signals(text, "ShdPnd:");
    return set & (uint64_t)1 << (SIGKILL - 1) ? CALLER_DYING : CALLER_ALIVE;
}
