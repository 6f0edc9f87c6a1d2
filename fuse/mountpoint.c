#include "fuse/mountpoint.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

/* ---- What is mounted ------------------------------------------------------------------------- */

/* What is mounted on a folder, topmost. */
struct top_mount {
    char type[64];
    unsigned number; /* as mountpoint_number; 0: of a real device */
};

/* proc(5): blanks and the like are \ooo in the names of /proc/self/mountinfo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] && at[3]) {
            *to = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = 0;
}

/* "36 35 0:45 / /mnt rw,noatime shared:1 - fuse.cairn cairn rw" */
static bool parse_mount(char *line, const char *dir, struct top_mount *out)
{
    unsigned device_major, device_minor;
    int name = 0, end = 0;
    char *rest = strstr(line, " - ");
    if (!rest ||
        sscanf(line, "%*d %*d %u:%u %*s %n%*s%n", &device_major, &device_minor, &name, &end) != 2 ||
        !end)
        return false;
    line[end] = 0;
    unescape(line + name);
    if (strcmp(line + name, dir) != 0 || sscanf(rest + 3, "%63s", out->type) != 1)
        return false;
    out->number = device_major == 0 ? device_minor : 0;
    return true;
}

static bool top_mount(const char *dir, struct top_mount *out)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    CLEANUP_FREE char *line = NULL;
    size_t cap = 0;
    bool found = false;
    struct top_mount here;
    while (f && getline(&line, &cap, f) > 0)
        if (parse_mount(line, dir, &here)) {
            *out = here;
            found = true;
        }
    if (f)
        fclose(f);
    return found;
}

/* Ours: of this kind, and this very one unless its number is not known. */
static bool is_mounted(const char *dir, unsigned number)
{
    struct top_mount top;
    return top_mount(dir, &top) && strcmp(top.type, MOUNTPOINT_TYPE) == 0 &&
           (!number || top.number == number);
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
    if (!is_mounted(dir, 0))
        return error_set(err, CAIRN_BUSY, EBUSY, "on %s there is a dead mount that is not ours",
                         dir);
    log_line(LOG_LEVEL_NOTICE, "mount: taking the dead mount on %s away", dir);
    return mountpoint_detach(dir, 0, err);
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
    struct top_mount top;
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
    if (!rc && top_mount(whole, &top) && strncmp(top.type, "fuse", 4) == 0)
        rc = error_set(err, CAIRN_BUSY, EBUSY, "something is mounted on %s already (%s)", whole,
                       top.type);
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

int mountpoint_unmount(const char *dir, unsigned number, bool *busy, struct cairn_error *err)
{
    *busy = false;
    if (!is_mounted(dir, number))
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

int mountpoint_detach(const char *dir, unsigned number, struct cairn_error *err)
{
    if (!is_mounted(dir, number))
        return CAIRN_OK;
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
    char path[96];
    snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", number);
    if (number && write_text(path, "1"))
        return;
    /* Where those are not shown: root says so by forcing an unmount, which is busy all the same. */
    if (geteuid() == 0 && is_mounted(dir, number))
        (void)umount2(dir, MNT_FORCE | UMOUNT_NOFOLLOW);
}
