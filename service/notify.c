#include "service/notify.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static bool address_of(struct sockaddr_un *a, socklen_t *len)
{
    const char *name = getenv("NOTIFY_SOCKET");
    size_t n = name ? strlen(name) : 0;
    if (!n || n >= sizeof(a->sun_path) || (*name != '/' && *name != '@'))
        return false;
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(a->sun_path, name, n);
    if (*name == '@')
        a->sun_path[0] = 0; /* abstract: its name has no end but the length's */
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return true;
}

void notify_send(const char *text)
{
    static atomic_bool complained;
    struct sockaddr_un a;
    socklen_t len;
    if (!address_of(&a, &len))
        return;
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&a, len) >= 0)
        return;
    if (!atomic_exchange(&complained, true))
        log_line(LOG_LEVEL_WARNING, "notify: errno=%d message=\"NOTIFY_SOCKET does not answer\"",
                 errno);
}

void notify_reloading(void)
{
    char text[64];
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             clock_monotonic() / (int64_t)1000);
    notify_send(text);
}

int64_t notify_watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    unsigned long long v = strtoull(usec, NULL, 10);
    return v && v < (unsigned long long)INT64_MAX / 1000 ? (int64_t)v * 1000 / 2 : 0;
}
