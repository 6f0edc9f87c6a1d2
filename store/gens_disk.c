#include "base/jsonw.h"
#include "base/jval.h"
#include "base/log.h"
#include "base/step.h"
#include "store/gens_private.h"
#include "store/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SEAL_VERSION 1
#define SEAL_MAX     4096

int gens_tmp_name(char out[32], struct cairn_error *err)
{
    uint64_t nonce;
    if (!util_random(&nonce, sizeof(nonce))) {
        int e = errno;
        return error_sys(err, e, "random name");
    }
    snprintf(out, 32, GENS_TMP "%016llx", (unsigned long long)nonce);
    return CAIRN_OK;
}

static bool has_no_locks(int sys_errno)
{
    return sys_errno == ENOLCK || sys_errno == ENOSYS || sys_errno == ENOTSUP ||
           sys_errno == EINVAL;
}

/* Where the file system has no locks, nobody knows what is in use, and nothing is removed. */
static bool lock_folder(int fd, int operation)
{
    return flock(fd, operation | LOCK_NB) == 0 || (operation == LOCK_SH && has_no_locks(errno));
}

int gens_lock_folder(struct gens *g, const char *name, int operation)
{
    CLEANUP_FD int fd = openat(g->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !lock_folder(fd, operation))
        return -1;
    struct stat is, was;
    if (fstat(fd, &was) != 0 || fstatat(g->fd, name, &is, AT_SYMLINK_NOFOLLOW) != 0 ||
        is.st_ino != was.st_ino || is.st_dev != was.st_dev) {
        errno = EWOULDBLOCK;
        return -1;
    }
    return util_steal_fd(&fd);
}

/* ---- Seals ---- */

static bool parse_seal(const struct jval *v, struct gens_seal *out)
{
    int64_t version, bytes;
    const char *boot = jval_str(jval_get(v, "boot"));
    if (!jval_int(jval_get(v, "version"), &version) || version != SEAL_VERSION || !boot ||
        strlen(boot) >= GENS_BOOT || !jval_int(jval_get(v, "bytes"), &bytes) || bytes < 0)
        return false;
    snprintf(out->boot, sizeof(out->boot), "%s", boot);
    out->bytes = (uint64_t)bytes;
    return true;
}

int gens_seal_read(int entry, struct gens_seal *out, bool *sealed, struct cairn_error *err)
{
    char text[SEAL_MAX];
    *sealed = false;
    CLEANUP_FD int fd = openat(entry, GENS_SEAL, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    int e = errno;
    if (fd < 0 && gens_is_shortage(e))
        return error_sys(err, e, "reading the seal of a local copy");
    ssize_t n = fd < 0 ? -1 : util_pread_full(fd, text, sizeof(text), 0);
    if (n <= 0)
        return CAIRN_OK;
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = jval_parse(text, (size_t)n, &v, err);
    *sealed = !rc && jval_is_object(v) && parse_seal(v, out);
    return rc == CAIRN_INTERNAL ? rc : CAIRN_OK;
}

int gens_seal_write(int entry, const struct gens_seal *seal, struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(SEAL_MAX);
    struct jsonw w = JSONW_INIT(&text, err);
    jsonw_object(&w, NULL);
    jsonw_u64(&w, "version", SEAL_VERSION);
    jsonw_str(&w, "boot", seal->boot);
    jsonw_u64(&w, "bytes", seal->bytes);
    jsonw_object_end(&w);
    int rc = jsonw_end(&w);
    if (rc)
        return rc;
    CLEANUP_FD int fd = openat(entry, GENS_SEAL ".new",
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || util_pwrite_full(fd, text.data, text.len, 0) < 0 ||
        renameat(entry, GENS_SEAL ".new", entry, GENS_SEAL) != 0) {
        int e = errno;
        return error_sys(err, e, "writing the seal of a local copy");
    }
    return CAIRN_OK;
}

/* ---- Going ---- */

/* "<id>" of "<id>/…". */
static void id_of(const char *name, char id[ID_MAX + 1])
{
    snprintf(id, ID_MAX + 1, "%.*s", (int)strcspn(name, "/"), name);
}

/* *any: it was there, and is gone. */
static int remove_entry(struct gens *g, const char *name, bool *any, struct cairn_error *err)
{
    char tmp[32], id[ID_MAX + 1];
    CLEANUP_FD int fd = gens_lock_folder(g, name, LOCK_EX);
    if (fd < 0 && errno == ENOENT)
        return CAIRN_OK;
    int e = errno;
    if (fd < 0 && (e == EWOULDBLOCK || has_no_locks(e)))
        return error_set(err, CAIRN_BUSY, e, "%s is in use", name);
    if (fd < 0)
        return error_sys(err, e, "removing %s", name);
    int rc = gens_tmp_name(tmp, err);
    if (rc)
        return rc;
    if (renameat(g->fd, name, g->fd, tmp) != 0) {
        e = errno;
        return error_sys(err, e, "removing %s", name);
    }
    STEP("gens.renamed-away");
    id_of(name, id);
    (void)unlinkat(g->fd, id, AT_REMOVEDIR); /* the last one's */
    rc = tree_remove(g->fd, tmp, err);
    STEP("gens.removed");
    *any = !rc;
    return rc ? error_wrap(err, "removing %s", name) : CAIRN_OK;
}

int gens_remove(struct gens *g, const char *name, struct cairn_error *err)
{
    bool any = false;
    pthread_mutex_lock(&g->lock);
    g->removing++;
    pthread_mutex_unlock(&g->lock);
    int rc = remove_entry(g, name, &any, err);
    pthread_mutex_lock(&g->lock);
    g->removed += any;
    if (--g->removing == 0)
        pthread_cond_broadcast(&g->settled);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int gens_each(struct gens *g, const char *folder,
              int (*fn)(void *ctx, const char *name, struct cairn_error *err), void *ctx,
              struct cairn_error *err)
{
    int fd = openat(g->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        if (e == ENOENT)
            return CAIRN_OK;
        return error_sys(err, e, "reading %s/%s", g->path, folder);
    }
    const struct dirent *d;
    int rc = CAIRN_OK;
    while (!rc && (errno = 0, d = readdir(dir)))
        if (d->d_name[0] != '.')
            rc = fn(ctx, d->d_name, err);
    if (rc || !errno)
        return rc;
    int e = errno;
    return error_sys(err, e, "reading %s/%s", g->path, folder);
}

/* ---- What others have left ---- */

static void clean_tmp(struct gens *g)
{
    int copy = openat(g->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        struct cairn_error err;
        if (strncmp(d->d_name, GENS_TMP, strlen(GENS_TMP)) != 0)
            continue;
        CLEANUP_FD int fd = gens_lock_folder(g, d->d_name, LOCK_EX);
        if (fd >= 0 && tree_remove(g->fd, d->d_name, &err))
            log_line(LOG_LEVEL_WARNING, "left from an earlier run: %s/%s: %s", g->path, d->d_name,
                     err.message);
    }
}

struct cleaner {
    struct gens *g;
    const char *id;
};

static int clean_entry(void *ctx, const char *name, struct cairn_error *err)
{
    const struct cleaner *c = ctx;
    char full[GENS_NAME_MAX];
    struct gens_seal seal;
    (void)err;
    if (snprintf(full, sizeof(full), "%s/%s", c->id, name) >= (int)sizeof(full))
        return CAIRN_OK;
    CLEANUP_FD int fd = openat(c->g->fd, full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct cairn_error e;
    bool sealed;
    if (fd < 0 || gens_seal_read(fd, &seal, &sealed, &e) || sealed)
        return CAIRN_OK;
    int rc = gens_remove(c->g, full, &e);
    if (rc && rc != CAIRN_BUSY)
        log_line(LOG_LEVEL_WARNING, "local copies: %s", e.message);
    return CAIRN_OK;
}

static int clean_id(void *ctx, const char *id, struct cairn_error *err)
{
    struct cleaner c = {ctx, id};
    return id_is_valid(id) ? gens_each(ctx, id, clean_entry, &c, err) : CAIRN_OK;
}

void gens_clean(struct gens *g)
{
    struct cairn_error err;
    clean_tmp(g);
    if (gens_each(g, ".", clean_id, g, &err))
        log_line(LOG_LEVEL_WARNING, "local copies: %s", err.message);
}

/* ---- For the budget ---- */

struct scanner {
    struct gens *g;
    const char *id;
    budget_emit *emit;
    void *to;
};

static int scan_entry(void *ctx, const char *name, struct cairn_error *err)
{
    const struct scanner *s = ctx;
    struct budget_item item = {0};
    struct gens_seal seal;
    struct stat st;
    if (snprintf(item.name, sizeof(item.name), "%s/%s", s->id, name) >= (int)sizeof(item.name))
        return CAIRN_OK;
    CLEANUP_FD int fd =
        openat(s->g->fd, item.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int e = errno;
    if (fd < 0 && gens_is_shortage(e))
        return error_sys(err, e, "opening %s", item.name);
    if (fd < 0 || fstat(fd, &st) != 0)
        return CAIRN_OK;
    bool sealed;
    int rc = gens_seal_read(fd, &seal, &sealed, err);
    if (rc || !sealed)
        return rc;
    item.bytes = seal.bytes;
    item.used_ns = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
    item.in_use = gens_is_used(s->g, item.name);
    return s->emit(s->to, &item, err);
}

static int scan_id(void *ctx, const char *id, struct cairn_error *err)
{
    struct scanner *s = ctx;
    s->id = id;
    return id_is_valid(id) ? gens_each(s->g, id, scan_entry, s, err) : CAIRN_OK;
}

/* Those that are being made count with what they will be, so that room is made in time. */
static int scan_builds(struct gens *g, budget_emit *emit, void *to, struct cairn_error *err)
{
    struct budget_item item = {.in_use = true};
    pthread_mutex_lock(&g->lock);
    for (const struct gens_build *b = g->builds; b; b = b->next)
        item.bytes += b->expected;
    pthread_mutex_unlock(&g->lock);
    snprintf(item.name, sizeof(item.name), GENS_TMP);
    return item.bytes ? emit(to, &item, err) : CAIRN_OK;
}

int gens_scan(void *ctx, budget_emit *emit, void *to, struct cairn_error *err)
{
    struct scanner s = {.g = ctx, .emit = emit, .to = to};
    int rc = scan_builds(ctx, emit, to, err);
    return rc ? rc : gens_each(ctx, ".", scan_id, &s, err);
}

int gens_evict(void *ctx, const struct budget_item *item, struct cairn_error *err)
{
    return gens_remove(ctx, item->name, err);
}
