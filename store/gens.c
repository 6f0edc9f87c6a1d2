#include "base/log.h"
#include "base/step.h"
#include "store/gens_private.h"
#include "store/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

static void read_boot(char out[GENS_BOOT])
{
    CLEANUP_FD int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, GENS_BOOT - 1);
    out[n < 0 ? 0 : n] = 0;
    out[strcspn(out, "\n")] = 0;
}

/* It is there but the first time. */
static int open_folder(struct gens *g, struct cairn_error *err)
{
    for (int tries = 0;; tries++) {
        g->fd = open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int e = errno;
        if (g->fd >= 0)
            return CAIRN_OK;
        if (e != ENOENT || tries)
            return error_sys(err, e, "opening %s", g->path);
        int rc = store_make_cache_folders(g->path, err);
        if (rc)
            return rc;
    }
}

int gens_open(const char *state, const uint8_t *secret, struct gens **out, struct cairn_error *err)
{
    struct gens *g = calloc(1, sizeof(*g));
    if (!g)
        return error_oom(err, "local copies");
    g->fd = -1;
    g->secret = secret;
    pthread_mutex_init(&g->lock, NULL);
    op_cond_init(&g->settled);
    read_boot(g->boot);
    int rc = CAIRN_OK;
    if (asprintf(&g->path, "%s/cache/gens", state) < 0) {
        g->path = NULL;
        rc = error_oom(err, "path");
    }
    if (!rc)
        rc = open_folder(g, err);
    if (rc) {
        gens_free(g);
        return rc;
    }
    gens_clean(g);
    *out = g;
    return CAIRN_OK;
}

void gens_free(struct gens *g)
{
    if (!g)
        return;
    if (g->fd >= 0)
        close(g->fd);
    pthread_cond_destroy(&g->settled);
    pthread_mutex_destroy(&g->lock);
    free(g->path);
    free(g);
}

/* ---- Entries in use -------------------------------------------------------------------------- */

bool gens_is_used(struct gens *g, const char *name)
{
    pthread_mutex_lock(&g->lock);
    const struct gens_entry *e = g->list;
    while (e && strcmp(e->name, name) != 0)
        e = e->next;
    pthread_mutex_unlock(&g->lock);
    return e != NULL;
}

static void entry_free(struct gens_entry *e)
{
    if (e->fd >= 0)
        close(e->fd);
    free(e->path);
    free(e);
}

static struct gens_entry *find_locked(const struct gens *g, const struct gens_key *key)
{
    for (struct gens_entry *e = g->list; e; e = e->next)
        if (!e->unfit && strcmp(e->key.id, key->id) == 0 && strcmp(e->key.gen, key->gen) == 0 &&
            strcmp(e->key.content, key->content) == 0)
            return e;
    return NULL;
}

/* An entry that this process has come to use, in the list, with a reference. fd, locked, is
 * transferred on success. Two threads that find one folder at once have an entry each. */
static int entry_new(struct gens *g, const struct gens_key *key, const char *name, int *fd,
                     struct gens_entry **out, struct cairn_error *err)
{
    struct gens_entry *e = calloc(1, sizeof(*e));
    if (!e)
        return error_oom(err, "local copy");
    e->fd = -1;
    if (asprintf(&e->path, "%s/%s/" GENS_EXPORT, g->path, name) < 0) {
        e->path = NULL;
        entry_free(e);
        return error_oom(err, "path");
    }
    e->g = g;
    e->key = *key;
    e->refs = 1;
    snprintf(e->name, sizeof(e->name), "%s", name);
    e->fd = util_steal_fd(fd);
    pthread_mutex_lock(&g->lock);
    e->next = g->list;
    g->list = e;
    pthread_mutex_unlock(&g->lock);
    *out = e;
    return CAIRN_OK;
}

struct gens_entry *gens_ref(struct gens_entry *e)
{
    pthread_mutex_lock(&e->g->lock);
    e->refs++;
    pthread_mutex_unlock(&e->g->lock);
    return e;
}

/* The time of its folder is that of its last use. */
static void touch(int fd)
{
    (void)futimens(fd, NULL);
}

static void remove_now(struct gens *g, const char *name)
{
    struct cairn_error err;
    int rc = gens_remove(g, name, &err);
    if (rc && rc != CAIRN_BUSY)
        log_line(LOG_LEVEL_WARNING, "local copies: %s", err.message);
}

void gens_unref(struct gens_entry *e)
{
    if (!e)
        return;
    struct gens *g = e->g;
    pthread_mutex_lock(&g->lock);
    bool last = --e->refs == 0;
    bool unfit = e->unfit;
    if (last) {
        struct gens_entry **p = &g->list;
        while (*p != e)
            p = &(*p)->next;
        *p = e->next;
    }
    pthread_mutex_unlock(&g->lock);
    if (!last)
        return;
    touch(e->fd);
    close(util_steal_fd(&e->fd)); /* and so unlocked */
    if (unfit)
        remove_now(g, e->name);
    entry_free(e);
}

const char *gens_path(const struct gens_entry *e)
{
    return e->path;
}

const struct gens_key *gens_key_of(const struct gens_entry *e)
{
    return &e->key;
}

/* ---- Finding --------------------------------------------------------------------------------- */

struct search {
    struct gens *g;
    const struct cairn_op *op;
    const struct gens_key *key;
    const struct manifest *m;
    bool full;
    struct gens_entry *found;
};

/* -1 with errno. */
static int open_export(int entry)
{
    return openat(entry, GENS_EXPORT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* *fit: it may be handed out. *spoiled: it never may be again. */
static int look_at(const struct search *s, int entry, bool *fit, bool *spoiled,
                   struct cairn_error *err)
{
    struct gens_seal seal;
    bool sealed;
    *fit = *spoiled = false;
    CLEANUP_FD int export = open_export(entry);
    int e = errno;
    if (export < 0 && gens_is_shortage(e))
        return error_sys(err, e, "opening a local copy");
    int rc = gens_seal_read(entry, &seal, &sealed, err);
    if (rc)
        return rc;
    *spoiled = export < 0 || !sealed || !gens_is_frozen(export, s->m);
    if (*spoiled)
        return CAIRN_OK;
    *fit = s->g->boot[0] && strcmp(seal.boot, s->g->boot) == 0;
    if (*fit || !s->full)
        return CAIRN_OK;
    rc = gens_check_bytes(export, s->op, s->m, s->g->secret, err);
    if (rc == CAIRN_CORRUPT) {
        log_line(LOG_LEVEL_WARNING, "%s, generation %s: %s; it is fetched anew", s->key->id,
                 s->key->gen, err->message);
        *spoiled = true;
        return CAIRN_OK;
    }
    if (rc)
        return rc;
    *fit = true;
    snprintf(seal.boot, sizeof(seal.boot), "%s", s->g->boot);
    struct cairn_error ignored; /* then it is read again next time */
    (void)!gens_seal_write(entry, &seal, &ignored);
    return CAIRN_OK;
}

static int try_folder(void *ctx, const char *name, struct cairn_error *err)
{
    struct search *s = ctx;
    char full[GENS_NAME_MAX], prefix[GENS_NAME_MAX];
    int n = snprintf(prefix, sizeof(prefix), "%s-%s-", s->key->gen, s->key->content);
    if (s->found || strncmp(name, prefix, (size_t)n) != 0 ||
        snprintf(full, sizeof(full), "%s/%s", s->key->id, name) >= (int)sizeof(full) ||
        gens_is_used(s->g, full))
        return CAIRN_OK;
    CLEANUP_FD int fd = gens_lock_folder(s->g, full, LOCK_SH);
    int e = errno;
    if (fd < 0)
        return gens_is_shortage(e) ? error_sys(err, e, "opening %s", full)
                                   : CAIRN_OK; /* about to go */
    bool fit, spoiled;
    int rc = look_at(s, fd, &fit, &spoiled, err);
    if (!rc && fit) {
        touch(fd);
        return entry_new(s->g, s->key, full, &fd, &s->found, err);
    }
    if (!rc && spoiled) {
        close(util_steal_fd(&fd));
        remove_now(s->g, full);
    }
    return rc;
}

/* Of those that this process uses already. Their bytes were good when it began; only what users may
 * have done to them since is looked at. */
static int find_used(struct gens *g, const struct gens_key *key, const struct manifest *m,
                     struct gens_entry **out, struct cairn_error *err)
{
    *out = NULL;
    for (;;) {
        pthread_mutex_lock(&g->lock);
        struct gens_entry *e = find_locked(g, key);
        if (e)
            e->refs++;
        pthread_mutex_unlock(&g->lock);
        if (!e)
            return CAIRN_OK;
        CLEANUP_FD int export = open_export(e->fd);
        int sys_errno = errno;
        if (export < 0 && gens_is_shortage(sys_errno)) {
            gens_unref(e);
            return error_sys(err, sys_errno, "opening a local copy");
        }
        if (export >= 0 && gens_is_frozen(export, m)) {
            *out = e;
            return CAIRN_OK;
        }
        pthread_mutex_lock(&g->lock);
        bool first = !e->unfit;
        e->unfit = true;
        pthread_mutex_unlock(&g->lock);
        if (first)
            log_line(LOG_LEVEL_WARNING, "%s: somebody changed it; it is fetched anew", e->path);
        gens_unref(e);
    }
}

int gens_find(struct gens *g, const struct cairn_op *op, const struct gens_key *key,
              const struct manifest *m, bool full, struct gens_entry **out, struct cairn_error *err)
{
    int rc = find_used(g, key, m, out, err);
    if (rc || *out)
        return rc;
    struct search s = {.g = g, .op = op, .key = key, .m = m, .full = full};
    rc = gens_each(g, key->id, try_folder, &s, err);
    if (rc && s.found) {
        gens_unref(s.found);
        s.found = NULL;
    }
    *out = s.found;
    return rc;
}

/* ---- Making one ------------------------------------------------------------------------------ */

static void enlist(struct gens_build *b)
{
    pthread_mutex_lock(&b->g->lock);
    b->next = b->g->builds;
    b->g->builds = b;
    pthread_mutex_unlock(&b->g->lock);
}

/* It may not be in the list. */
static void delist(struct gens_build *b)
{
    pthread_mutex_lock(&b->g->lock);
    struct gens_build **p = &b->g->builds;
    while (*p && *p != b)
        p = &(*p)->next;
    if (*p)
        *p = b->next;
    pthread_mutex_unlock(&b->g->lock);
}

int gens_build_begin(struct gens *g, uint64_t expected, struct gens_build *b,
                     struct cairn_error *err)
{
    *b = GENS_BUILD_INIT;
    b->g = g;
    b->expected = expected;
    for (int tries = 0; tries < 16 && b->fd < 0; tries++) {
        int rc = gens_tmp_name(b->name, err);
        if (rc)
            return rc;
        if (mkdirat(g->fd, b->name, 0700) != 0) {
            int e = errno;
            b->name[0] = 0;
            return error_sys(err, e, "making a folder in %s", g->path);
        }
        STEP("gens.made");
        b->fd = gens_lock_folder(g, b->name, LOCK_SH); /* or a cleaner was quicker */
        int e = errno;
        if (b->fd < 0)
            (void)unlinkat(g->fd, b->name, AT_REMOVEDIR);
        if (b->fd < 0 && e != EWOULDBLOCK && e != ENOENT) {
            b->name[0] = 0;
            return error_sys(err, e, "opening a folder made in %s", g->path);
        }
    }
    if (b->fd < 0) {
        b->name[0] = 0;
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "no folder could be made in %s", g->path);
    }
    if (asprintf(&b->target, "%s/%s/" GENS_EXPORT, g->path, b->name) < 0) {
        b->target = NULL;
        gens_build_release(b);
        return error_oom(err, "path");
    }
    enlist(b);
    return CAIRN_OK;
}

int gens_build_seal(struct gens_build *b, const struct manifest *m, uint64_t cloned,
                    struct cairn_error *err)
{
    CLEANUP_FD int export = open_export(b->fd);
    if (export < 0) {
        int e = errno;
        return error_sys(err, e, "opening %s", b->target);
    }
    struct gens_seal seal;
    int rc = gens_freeze(export, m, &b->bytes, err);
    b->bytes -= b->bytes < cloned ? b->bytes : cloned;
    STEP("gens.frozen");
    seal.bytes = b->bytes;
    snprintf(seal.boot, sizeof(seal.boot), "%s", b->g->boot);
    if (!rc)
        rc = gens_seal_write(b->fd, &seal, err);
    STEP("gens.sealed");
    return rc;
}

int gens_build_install(struct gens_build *b, const struct gens_key *key, struct gens_entry **out,
                       struct cairn_error *err)
{
    struct gens *g = b->g;
    char name[GENS_NAME_MAX];
    uint32_t nonce;
    if (!util_random(&nonce, sizeof(nonce))) {
        int e = errno;
        return error_sys(err, e, "random name");
    }
    snprintf(name, sizeof(name), "%s/%s-%s-%08x", key->id, key->gen, key->content, nonce);
    /* Whoever removes the last of an id removes its folder as well. */
    for (int tries = 0;; tries++) {
        int e = mkdirat(g->fd, key->id, 0700) != 0 ? errno : 0;
        if (!e || e == EEXIST)
            e = renameat(g->fd, b->name, g->fd, name) != 0 ? errno : 0;
        if (!e)
            break;
        if (e != ENOENT || tries == 16)
            return error_sys(err, e, "renaming a local copy to %s", name);
    }
    STEP("gens.installed");
    delist(b);
    b->name[0] = 0; /* nothing to take away any more */
    touch(b->fd);
    return entry_new(g, key, name, &b->fd, out, err);
}

void gens_build_release(struct gens_build *b)
{
    struct cairn_error err;
    if (b->g)
        delist(b);
    if (b->name[0] && tree_remove(b->g->fd, b->name, &err))
        log_line(LOG_LEVEL_WARNING, "left behind: %s/%s: %s", b->g->path, b->name, err.message);
    if (b->fd >= 0)
        close(b->fd);
    free(b->target);
    *b = GENS_BUILD_INIT;
}

/* ---- Going ----------------------------------------------------------------------------------- */

struct clearing {
    struct gens *g;
    const char *id;
    bool any;
};

static int clear_entry(void *ctx, const char *name, struct cairn_error *err)
{
    struct clearing *c = ctx;
    char full[GENS_NAME_MAX];
    (void)err;
    struct cairn_error e;
    if (snprintf(full, sizeof(full), "%s/%s", c->id, name) >= (int)sizeof(full))
        return CAIRN_OK;
    int rc = gens_remove(c->g, full, &e);
    if (rc && rc != CAIRN_BUSY)
        log_line(LOG_LEVEL_WARNING, "local copies: %s", e.message);
    c->any |= !rc;
    return CAIRN_OK;
}

static int clear_id(void *ctx, const char *id, struct cairn_error *err)
{
    struct clearing *c = ctx;
    c->id = id;
    return id_is_valid(id) ? gens_each(c->g, id, clear_entry, c, err) : CAIRN_OK;
}

void gens_forget(struct gens *g, const char *id)
{
    struct clearing c = {.g = g};
    struct cairn_error err;
    pthread_mutex_lock(&g->lock);
    for (struct gens_entry *e = g->list; e; e = e->next)
        if (strcmp(e->key.id, id) == 0)
            e->unfit = true;
    pthread_mutex_unlock(&g->lock);
    if (clear_id(&c, id, &err))
        log_line(LOG_LEVEL_WARNING, "local copies of %s: %s", id, err.message);
}

bool gens_clear(struct gens *g)
{
    struct clearing c = {.g = g};
    struct cairn_error err;
    if (gens_each(g, ".", clear_id, &c, &err))
        log_line(LOG_LEVEL_WARNING, "local copies: %s", err.message);
    return c.any;
}

uint64_t gens_removed(struct gens *g)
{
    pthread_mutex_lock(&g->lock);
    uint64_t n = g->removed;
    pthread_mutex_unlock(&g->lock);
    return n;
}

int gens_settle(struct gens *g, const struct cairn_op *op, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &g->lock, &g->settled);
    pthread_mutex_lock(&g->lock);
    while (!rc && g->removing)
        rc = op_wait_locked(&w, "making room for a local copy", err);
    pthread_mutex_unlock(&g->lock);
    op_waiter_remove(&w);
    return rc;
}
