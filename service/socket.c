#include "service/socket.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == SOCKET_PATH_MAX + 1, "sun_path");

static int lock_path(const char *path, int *fd, struct cairn_error *err)
{
    CLEANUP_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (lock < 0)
        return error_sys(err, errno, "open %s", path);
    char text[32] = "";
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK)
            return error_sys(err, errno, "lock %s", path);
        ssize_t n = pread(lock, text, sizeof(text) - 1, 0);
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        return error_set(err, CAIRN_BUSY, EWOULDBLOCK,
                         "another instance is running (process %ld holds %s)", pid, path);
    }
    (void)!fchmod(lock, 0600); /* whatever the umask left of it */
    /* For the message above only. */
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(lock, 0) == 0)
        (void)util_pwrite_full(lock, text, (size_t)n, 0);
    *fd = util_steal_fd(&lock);
    return CAIRN_OK;
}

int socket_lock(const char *dir, const char *name, int *fd, struct cairn_error *err)
{
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        path = NULL;
        return error_oom(err, "path");
    }
    return lock_path(path, fd, err);
}

static int find_group(const char *group, gid_t *out, struct cairn_error *err)
{
    *out = (gid_t)-1;
    if (!group)
        return CAIRN_OK;
    char *end;
    unsigned long number = strtoul(group, &end, 10);
    if (*group >= '0' && *group <= '9' && !*end && number < (gid_t)-1) {
        *out = (gid_t)number;
        return CAIRN_OK;
    }
    struct group g, *found = NULL;
    size_t size = 64 * 1024;
    CLEANUP_FREE char *text = malloc(size);
    if (!text)
        return error_oom(err, "group");
    int e = getgrnam_r(group, &g, text, size, &found);
    if (e)
        return error_sys(err, e, "group %.64s", group);
    if (!found)
        return error_set(err, CAIRN_INVALID, EINVAL, "there is no group %.64s", group);
    *out = g.gr_gid;
    return CAIRN_OK;
}

static int address_of(const char *path, struct sockaddr_un *out, struct cairn_error *err)
{
    size_t n = strlen(path);
    if (n > SOCKET_PATH_MAX)
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG,
                         "the path of the socket has %zu bytes, but the kernel takes at most %d: "
                         "choose a shorter one (%.80s…)",
                         n, SOCKET_PATH_MAX, path);
    if (*path != '/')
        return error_set(err, CAIRN_INVALID, EINVAL, "the path of the socket must be absolute: %s",
                         path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, path, n + 1);
    return CAIRN_OK;
}

/* Whoever holds the lock of the path looks at what is there. */
static int clear_path(const struct sockaddr_un *a, struct cairn_error *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st))
        return errno == ENOENT ? CAIRN_OK : error_sys(err, errno, "stat %s", a->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, CAIRN_INVALID, EEXIST, "%s is there and is no socket", a->sun_path);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_sys(err, errno, "socket");
    if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno == EAGAIN)
        return error_set(err, CAIRN_BUSY, EADDRINUSE, "another process listens on %s", a->sun_path);
    if (errno != ECONNREFUSED)
        return error_sys(err, errno, "connect to %s, to see whether anybody listens", a->sun_path);
    if (unlink(a->sun_path) && errno != ENOENT)
        return error_sys(err, errno, "unlink the old %s", a->sun_path);
    return CAIRN_OK;
}

/* The mode before bind is what the name gets, less the umask: nothing. It is widened only when the
 * group is right, and nobody is let in before listen. */
static int bind_and_listen(const struct sockaddr_un *a, mode_t mode, gid_t gid,
                           struct listener *out, struct cairn_error *err)
{
    const char *path = a->sun_path;
    struct stat st;
    if (fchmod(out->fd, 0))
        return error_sys(err, errno, "mode of a socket");
    if (bind(out->fd, (const struct sockaddr *)a, sizeof(*a)))
        return error_sys(err, errno, "bind to %s", path);
    if (lstat(path, &st))
        return error_sys(err, errno, "stat %s", path);
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    if (gid != (gid_t)-1 && chown(path, (uid_t)-1, gid))
        return error_sys(err, errno, "give %s to group %u", path, (unsigned)gid);
    if (chmod(path, mode & 0777))
        return error_sys(err, errno, "mode of %s", path);
    if (listen(out->fd, SOMAXCONN))
        return error_sys(err, errno, "listen on %s", path);
    return CAIRN_OK;
}

int listener_open(const char *path, mode_t mode, const char *group, struct listener *out,
                  struct cairn_error *err)
{
    struct listener l = LISTENER_INIT;
    struct sockaddr_un a;
    gid_t gid;
    CLEANUP_FREE char *lock = NULL;
    int rc = address_of(path, &a, err);
    if (!rc)
        rc = find_group(group, &gid, err);
    if (!rc && asprintf(&lock, "%s.lock", path) < 0) {
        lock = NULL;
        rc = error_oom(err, "path");
    }
    if (!rc && !(l.path = strdup(path)))
        rc = error_oom(err, "path");
    if (!rc)
        rc = lock_path(lock, &l.lock, err);
    if (!rc)
        rc = clear_path(&a, err);
    if (!rc && (l.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        rc = error_sys(err, errno, "socket");
    if (!rc)
        rc = bind_and_listen(&a, mode, gid, &l, err);
    if (rc) {
        listener_close(&l);
        return rc;
    }
    *out = l;
    return CAIRN_OK;
}

void listener_unlink(struct listener *l)
{
    struct stat st;
    if (l->ino && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        (void)!unlink(l->path);
    l->ino = 0;
}

void listener_shut(struct listener *l)
{
    listener_unlink(l);
    util_closep(&l->fd);
    l->fd = -1;
}

void listener_close(struct listener *l)
{
    listener_shut(l);
    util_closep(&l->lock);
    free(l->path);
    *l = LISTENER_INIT;
}
