#include "fuse/spool_fd.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "fuse/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

/* Of the process's descriptors, which are needed for much else, this part is for the spool: where
 * they can be closed again, and where they cannot. */
#define SHARE_CLOSABLE(limit) ((limit) / 4)
#define SHARE_FIXED(limit)    ((limit) / 4 * 3)
#define MAX_CLOSABLE          16384u
#define MIN_ANY               16u
#define TELL_NS               (60 * NS_PER_S)

struct spool_fds {
    int tree;
    bool handles; /* constant: files can be opened by their handles */
    size_t max;   /* constant */
    pthread_mutex_t lock;
    struct spool_inode *newest, *oldest; /* open and closable; guarded by lock, as is all below */
    size_t n;
    int64_t told_ns;
};

/* ---- Handles --------------------------------------------------------------------------------- */

/* NULL: it has none. Owned by the caller. */
static struct file_handle *handle_of(int fd)
{
    int mount_id;
    struct file_handle *h = malloc(sizeof(*h) + MAX_HANDLE_SZ);
    if (!h)
        return NULL;
    h->handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(fd, "", h, &mount_id, AT_EMPTY_PATH) == 0) {
        struct file_handle *less = realloc(h, sizeof(*h) + h->handle_bytes);
        return less ? less : h;
    }
    free(h);
    return NULL;
}

static bool is_same(const struct file_handle *a, const struct file_handle *b)
{
    return a && b && a->handle_type == b->handle_type && a->handle_bytes == b->handle_bytes &&
           memcmp(a->f_handle, b->f_handle, a->handle_bytes) == 0;
}

static int open_handle(const struct spool_fds *set, struct file_handle *h)
{
    return open_by_handle_at(set->tree, h, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

int spool_fds_new(int tree, struct spool_fds **out, struct cairn_error *err)
{
    struct rlimit limit;
    struct spool_fds *set = calloc(1, sizeof(*set));
    if (!set)
        return error_oom(err, "descriptors of the spool");
    CLEANUP_FREE struct file_handle *h = handle_of(tree);
    CLEANUP_FD int fd = h ? open_handle(&(struct spool_fds){.tree = tree}, h) : -1;
    set->tree = tree;
    set->handles = fd >= 0;
    size_t all = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1u << 24
                     ? (size_t)limit.rlim_cur
                     : 1u << 24;
    set->max = set->handles ? SHARE_CLOSABLE(all) : SHARE_FIXED(all);
    if (set->handles && set->max > MAX_CLOSABLE)
        set->max = MAX_CLOSABLE;
    if (set->max < MIN_ANY)
        set->max = MIN_ANY;
    pthread_mutex_init(&set->lock, NULL);
    *out = set;
    return CAIRN_OK;
}

void spool_fds_free(struct spool_fds *set)
{
    if (!set)
        return;
    pthread_mutex_destroy(&set->lock);
    free(set);
}

/* ---- The list of what is open ---------------------------------------------------------------- */

static void add_locked(struct spool_fds *set, struct spool_inode *i)
{
    i->newer = NULL;
    i->older = set->newest;
    if (i->older)
        i->older->newer = i;
    else
        set->oldest = i;
    set->newest = i;
    i->listed = true;
    set->n++;
}

static void remove_locked(struct spool_fds *set, struct spool_inode *i)
{
    if (!i->listed)
        return;
    *(i->newer ? &i->newer->older : &set->newest) = i->older;
    *(i->older ? &i->older->newer : &set->oldest) = i->newer;
    i->listed = false;
    set->n--;
}

/* Of a user that is gone. True: the inode is gone as well, and is the caller's to free. */
static bool leave_locked(struct spool_inode *i)
{
    return --i->users == 0 && i->gone;
}

static void destroy(struct spool_inode *i)
{
    util_closep(&i->fd);
    free(i->handle);
    free(i);
}

/* The one not used for longest, which is held from here on; NULL: nothing is to be closed. */
static struct spool_inode *take_victim(struct spool_fds *set)
{
    pthread_mutex_lock(&set->lock);
    struct spool_inode *i = set->handles && set->n > set->max ? set->oldest : NULL;
    while (i && i->users)
        i = i->newer;
    if (i)
        i->users++;
    pthread_mutex_unlock(&set->lock);
    return i;
}

/* Of a file that was taken by take_victim. What has no name or no handle keeps its descriptor. */
static void close_victim(struct spool_fds *set, struct spool_inode *i)
{
    struct stat st;
    CLEANUP_FD int fd = -1;
    bool named = fstat(i->fd, &st) == 0 && st.st_nlink > 0;
    struct file_handle *h = named && !i->handle ? handle_of(i->fd) : NULL;
    pthread_mutex_lock(&set->lock);
    if (h)
        i->handle = h;
    if (!named || !i->handle) {
        remove_locked(set, i);
    } else if (i->users == 1 && i->listed) {
        remove_locked(set, i);
        fd = util_steal_fd(&i->fd);
    } else if (i->listed) {
        remove_locked(set, i);
        add_locked(set, i);
    }
    bool last = leave_locked(i);
    pthread_mutex_unlock(&set->lock);
    if (last)
        destroy(i);
}

static void close_some(struct spool_fds *set)
{
    for (struct spool_inode *i; (i = take_victim(set));)
        close_victim(set, i);
}

/* ---- Inodes ---------------------------------------------------------------------------------- */

static bool has_room(struct spool_fds *set)
{
    if (set->handles)
        return true;
    pthread_mutex_lock(&set->lock);
    bool room = set->n < set->max;
    int64_t now = clock_monotonic();
    bool tell = !room && (!set->told_ns || now - set->told_ns > TELL_NS);
    if (tell)
        set->told_ns = now;
    pthread_mutex_unlock(&set->lock);
    if (tell)
        log_line(LOG_LEVEL_ERROR,
                 "mount: more than %zu staged files are in use: raise the limit on open files "
                 "(ulimit -n), or let cairn have CAP_DAC_READ_SEARCH",
                 set->max);
    return room;
}

int spool_inode_new(struct spool_fds *set, int fd, dev_t dev, ino_t real, struct spool_inode **out)
{
    CLEANUP_FD int own = fd;
    if (!has_room(set))
        return ENFILE;
    struct spool_inode *i = calloc(1, sizeof(*i));
    if (!i)
        return ENOMEM;
    *i = (struct spool_inode){.set = set, .fd = util_steal_fd(&own), .dev = dev, .real = real};
    atomic_init(&i->writers, 0);
    pthread_mutex_lock(&set->lock);
    add_locked(set, i);
    pthread_mutex_unlock(&set->lock);
    close_some(set);
    *out = i;
    return 0;
}

void spool_inode_free(struct spool_inode *i)
{
    if (!i)
        return;
    pthread_mutex_lock(&i->set->lock);
    remove_locked(i->set, i);
    i->gone = true;
    bool last = i->users == 0;
    pthread_mutex_unlock(&i->set->lock);
    if (last)
        destroy(i);
}

bool spool_inode_is(struct spool_inode *i, int fd)
{
    pthread_mutex_lock(&i->set->lock);
    bool open = i->fd >= 0; /* and so its number is its own */
    const struct file_handle *known = i->handle;
    pthread_mutex_unlock(&i->set->lock);
    if (open)
        return true;
    CLEANUP_FREE struct file_handle *h = handle_of(fd);
    return is_same(h, known);
}

static bool hold_open(struct spool_inode *i, struct spool_held *out)
{
    pthread_mutex_lock(&i->set->lock);
    bool open = i->fd >= 0;
    if (open) {
        i->users++;
        *out = (struct spool_held){.i = i, .fd = i->fd};
    }
    if (open && i->listed) {
        remove_locked(i->set, i);
        add_locked(i->set, i);
    }
    pthread_mutex_unlock(&i->set->lock);
    return open;
}

int spool_hold(struct spool_inode *i, struct spool_held *out)
{
    struct spool_fds *set = i->set;
    while (!hold_open(i, out)) {
        /* i->handle is set, for good, before the descriptor is closed. */
        CLEANUP_FD int fd = open_handle(set, i->handle);
        if (fd < 0)
            return errno;
        pthread_mutex_lock(&set->lock);
        if (i->fd < 0) {
            i->fd = util_steal_fd(&fd);
            add_locked(set, i);
        }
        pthread_mutex_unlock(&set->lock);
    }
    close_some(set);
    return 0;
}

void spool_unhold(struct spool_held *h)
{
    if (!h->i)
        return;
    pthread_mutex_lock(&h->i->set->lock);
    bool last = leave_locked(h->i);
    pthread_mutex_unlock(&h->i->set->lock);
    if (last)
        destroy(h->i);
    h->i = NULL;
}

int spool_unlink_at(struct mount *m, int folder, const char *name, int flags)
{
    struct stat st;
    struct spool_held held = {0};
    struct inode *known =
        fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? spool_known_node(m, &st) : NULL;
    int unheld = known ? spool_hold(known->spool, &held) : 0;
    (void)unheld; /* it is gone all the same */
    int e = unlinkat(folder, name, flags) == 0 ? 0 : errno;
    spool_unhold(&held);
    if (known)
        inode_forget(m, known, 1);
    return e;
}
