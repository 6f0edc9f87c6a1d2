/* Preloaded by counts.sh: valgrind up to 3.19 does not know openat2(2), so here it becomes
 * openat(2). What the resolve flags forbid is then allowed: for counting on trees of one's own,
 * nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARGS 6

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    long a[ARGS];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < ARGS; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_openat2) {
        const struct open_how *how = (const struct open_how *)a[2];
        return openat((int)a[0], (const char *)a[1], (int)how->flags, (mode_t)how->mode);
    }

    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
