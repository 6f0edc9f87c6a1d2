/* The socket that the service listens on, and the locks that keep it to one process. */
#ifndef CAIRN_SERVICE_SOCKET_H
#define CAIRN_SERVICE_SOCKET_H

#include "base/error.h"

#include <sys/types.h>

/* The kernel's bound on the path of a socket, without its NUL. Longer ones could be bound by a
 * detour, but no client could say them. */
#define SOCKET_PATH_MAX 107

struct listener {
    int fd;     /* listening, not blocking; owned; -1: none */
    int lock;   /* of <path>.lock; owned */
    char *path; /* owned */
    dev_t dev;  /* of the socket's name, so that nobody else's is taken away */
    ino_t ino;
};
#define LISTENER_INIT ((struct listener){.fd = -1, .lock = -1})

/* A flock on dir/name, held until *fd is closed or the process ends. Busy: another process has it,
 * which err names. */
CAIRN_MUST_CHECK int socket_lock(const char *dir, const char *name, int *fd,
                                 struct cairn_error *err);

/* Listen on path with exactly this mode, whatever the umask, and group (a name or a number; NULL:
 * as it comes). The socket is never more accessible than that. A socket left by a process that died
 * is replaced; one that somebody listens on is busy, and anything else there is invalid. */
CAIRN_MUST_CHECK int listener_open(const char *path, mode_t mode, const char *group,
                                   struct listener *out, struct cairn_error *err);
/* Take the name away, if it is still ours. */
void listener_unlink(struct listener *l);
/* Listen no more, but keep the lock. */
void listener_shut(struct listener *l);
void listener_close(struct listener *l); /* all of it */

#endif
