#include "fuse/mountpoint.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* ---- What is mounted ------------------------------------------------------------------------- */

/* getmntent(3) leaves octal escapes of mountinfo's kind decoded; /proc/self/mounts has the same. */
static bool top_mount(const char *dir, char type[64])
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    bool found = false;
    struct mntent entry;
    CLEANUP_FREE char *room = malloc(16384);
    while (f && room && getmntent_r(f, &entry, room, 16384)) {
        if (strcmp(entry.mnt_dir, dir) != 0)
            continue;
        snprintf(type, 64, "%s", entry.mnt_type);
        found = true;
    }
    if (f)
        endmntent(f);
    return found;
}

/* realpath(3) of a folder that cannot be looked at itself (a dead mount): that of its parent, and
 * its name. */
static char *absolute(const char *dir)
{
    char *whole = realpath(dir, NULL);
    if (whole || errno != ENOTCONN)
        return whole;
    CLEANUP_FREE char *copy = strdup(dir);
    if (!copy)
        return NULL;
    size_t n = strlen(copy);
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    if (slash)
        *slash = 0;
    CLEANUP_FREE char *parent = realpath(slash ? (slash == copy ? "/" : copy) : ".", NULL);
    if (!parent || asprintf(&whole, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) < 0)
        return NULL;
    return whole;
}

/* ---- What may be mounted on ------------------------------------------------------------------ */

static bool lies_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    if (strcmp(folder, "/") == 0)
        return true;
    return strncmp(path, folder, n) == 0 && (path[n] == 0 || path[n] == '/');
}

/* The nearest folder of path that exists, resolved. *all: it is path itself. */
static char *resolved(const char *path, bool *all)
{
    CLEANUP_FREE char *copy = strdup(path);
    *all = true;
    while (copy) {
        char *whole = realpath(*copy ? copy : "/", NULL);
        char *slash = strrchr(copy, '/');
        if (whole || !slash)
            return whole;
        *slash = 0;
        *all = false;
    }
    return NULL;
}

static int check_apart(const char *dir, const char *const *apart, size_t n, struct cairn_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!apart[i])
            continue;
        bool all;
        CLEANUP_FREE char *other = resolved(apart[i], &all);
        if (!other)
            return error_sys(err, errno, "resolving %s", apart[i]);
        if (lies_in(other, dir) || (all && lies_in(dir, other)))
            return error_set(err, CAIRN_INVALID, EINVAL,
                             "the mount point %s and %s lie in each other", dir, other);
    }
    return CAIRN_OK;
}

static int check_empty(const char *dir, struct cairn_error *err)
{
    CLEANUP_DIR DIR *d = opendir(dir);
    if (!d)
        return error_sys(err, errno, "opening the mount point %s", dir);
    const struct dirent *e;
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            return error_set(err, CAIRN_INVALID, ENOTEMPTY,
                             "the mount point %s is not empty: it holds %s", dir, e->d_name);
    return CAIRN_OK;
}

static int take_dead_away(const char *dir, struct cairn_error *err)
{
    char type[64];
    if (!top_mount(dir, type) || strcmp(type, MOUNTPOINT_TYPE) != 0)
        return error_set(err, CAIRN_BUSY, EBUSY, "on %s there is a dead mount that is not ours",
                         dir);
    log_line(LOG_LEVEL_NOTICE, "mount: taking the dead mount on %s away", dir);
    return mountpoint_detach(dir, err);
}

/* Asks whoever serves it: what the kernel remembers of a mount that died just now is worth nothing.
 */
static int look(const char *dir, mode_t *mode)
{
    struct statx st;
    if (statx(AT_FDCWD, dir, AT_STATX_FORCE_SYNC, STATX_TYPE, &st) != 0)
        return -1;
    *mode = st.stx_mode;
    return 0;
}

int mountpoint_prepare(const char *dir, const char *const *apart, size_t n_apart, char **out,
                       struct cairn_error *err)
{
    CLEANUP_FREE char *whole = absolute(dir);
    char type[64];
    mode_t mode;
    if (!whole)
        return error_sys(err, errno, "mount point %s", dir);
    int rc = CAIRN_OK;
    for (int tries = 0; !rc && look(whole, &mode); tries++) {
        int e = errno;
        if (e != ENOTCONN || tries == 8)
            return error_sys(err, e, "mount point %s", whole);
        rc = take_dead_away(whole, err);
    }
    if (!rc && !S_ISDIR(mode))
        rc = error_set(err, CAIRN_INVALID, ENOTDIR, "the mount point %s is no folder", whole);
    if (!rc)
        rc = check_apart(whole, apart, n_apart, err);
    if (!rc && top_mount(whole, type) && strncmp(type, "fuse", 4) == 0)
        rc = error_set(err, CAIRN_BUSY, EBUSY, "something is mounted on %s already (%s)", whole,
                       type);
    if (!rc)
        rc = check_empty(whole, err);
    if (!rc)
        *out = util_steal(&whole);
    return rc;
}

/* ---- The system's side ----------------------------------------------------------------------- */

int mountpoint_mount(const char *dir, int *device, struct cairn_error *err)
{
    CLEANUP_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, errno, "opening /dev/fuse");
    char options[128];
    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other,default_permissions", fd,
             (unsigned)geteuid(), (unsigned)getegid());
    if (mount("cairn", dir, MOUNTPOINT_TYPE, MS_NODEV | MS_NOSUID, options)) {
        int e = errno;
        return error_sys(err, e, "mounting on %s", dir);
    }
    *device = util_steal_fd(&fd);
    return CAIRN_OK;
}

/* fusermount3 tells by its exit code only; what it says goes to nobody: a mount that is in use is
 * tried again. */
static int fusermount(const char *dir, bool lazy, struct cairn_error *err)
{
    char program[] = "fusermount3", unmount[] = "-u", quiet[] = "-q", detach[] = "-z", end[] = "--";
    CLEANUP_FREE char *target = strdup(dir);
    if (!target)
        return error_oom(err, "unmount");
    char *argv[] = {
        program, unmount, quiet, lazy ? detach : end, lazy ? end : target, lazy ? target : NULL,
        NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int e = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (e)
        return error_sys(err, e, "running fusermount3");
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_sys(err, errno, "waiting for fusermount3");
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return error_set(err, CAIRN_BUSY, EBUSY, "fusermount3 could not unmount %s", dir);
    return CAIRN_OK;
}

int mountpoint_unmount(const char *dir, bool *busy, struct cairn_error *err)
{
    char type[64];
    *busy = false;
    if (!top_mount(dir, type) || strcmp(type, MOUNTPOINT_TYPE) != 0)
        return CAIRN_OK;
    if (geteuid() != 0) {
        int rc = fusermount(dir, false, err);
        *busy = rc == CAIRN_BUSY;
        return *busy ? CAIRN_OK : rc;
    }
    if (umount2(dir, UMOUNT_NOFOLLOW) == 0)
        return CAIRN_OK;
    int e = errno;
    *busy = e == EBUSY;
    return e == EBUSY || e == EINVAL ? CAIRN_OK : error_sys(err, e, "unmounting %s", dir);
}

int mountpoint_detach(const char *dir, struct cairn_error *err)
{
    if (geteuid() != 0)
        return fusermount(dir, true, err);
    if (umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        return CAIRN_OK;
    int e = errno;
    return e == EINVAL ? CAIRN_OK : error_sys(err, e, "detaching %s", dir);
}

/* Of kernel-made devices the major number is 0. */
unsigned mountpoint_number(const char *dir)
{
    struct stat st;
    return stat(dir, &st) == 0 && major(st.st_dev) == 0 ? minor(st.st_dev) : 0;
}

static bool write_text(const char *path, const char *text)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t len = (ssize_t)strlen(text);
    return fd >= 0 && write(fd, text, (size_t)len) == len;
}

void mountpoint_read_ahead(unsigned number, unsigned kib)
{
    char path[96], text[16];
    snprintf(path, sizeof(path), "/sys/class/bdi/0:%u/read_ahead_kb", number);
    snprintf(text, sizeof(text), "%u", kib);
    if (number && !write_text(path, text))
        log_line(LOG_LEVEL_INFO, "mount: read-ahead stays as it is: %s: %s", path, strerror(errno));
}

void mountpoint_abort(const char *dir, unsigned number)
{
    char path[96], type[64];
    snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", number);
    if (number && write_text(path, "1"))
        return;
    /* Where those are not shown: root says so by forcing an unmount, which is busy all the same. */
    if (geteuid() == 0 && top_mount(dir, type) && strcmp(type, MOUNTPOINT_TYPE) == 0)
        (void)umount2(dir, MNT_FORCE | UMOUNT_NOFOLLOW);
}
