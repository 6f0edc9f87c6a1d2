#include "fuse/committed.h"

#include "base/clock.h"
#include "base/util.h"
#include "fuse/file.h"
#include "fuse/generation.h"
#include "fuse/records.h"
#include "store/digest.h"
#include "store/listing.h"

#include <errno.h>
#include <string.h>

/* A name in the tree of names, as seen from the root: "<id>/export-<gen>/a/b". */
#define NAME_MAX_ (ID_MAX + 1 + 7 + GEN_TEXT + MANIFEST_PATH_MAX + 2)

/* "export-<gen>" and "digest-<gen>": whether name is prefix and a generation's name, and which. */
static bool gen_of(const char *name, const char *prefix, char gen[GEN_TEXT])
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || !gen_is_valid(name + n))
        return false;
    memcpy(gen, name + n, GEN_TEXT);
    return true;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

static struct timespec stamp(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec;
}

static void set_times(struct stat *st, int64_t ns)
{
    st->st_mtim = st->st_atim = st->st_ctim = stamp(ns);
}

/* A generation ages from the moment that it was superseded, which is when its successor was
 * committed; one that is not committed, from when it was stored. */
static int export_mtime(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                        int64_t *mtime_ns, struct cairn_error *err)
{
    struct record_now now;
    int rc = records_now(m, op, id, &now, err);
    if (rc)
        return rc;
    *mtime_ns = now.meta_mtime_ns;
    if (now.committed && strcmp(now.gen, gen) == 0)
        return CAIRN_OK;
    char key[KEY_MAX];
    struct backend_stat st;
    layout_export(id, gen, key);
    rc = m->store->backend->ops->stat(m->store->backend, op, key, &st, err);
    if (!rc && st.mtime_ns > *mtime_ns)
        *mtime_ns = st.mtime_ns;
    return rc;
}

/* A stamp set here by utimensat counts, unless the generation was superseded long after it, which
 * then another node did: nobody may take it for one that has aged. */
#define STAMP_TRUST_NS (600 * NS_PER_S)

static void apply_stamp(struct mount *m, const struct inode *i, const char *what, struct stat *st)
{
    char name[16 + GEN_TEXT];
    struct timespec set;
    snprintf(name, sizeof(name), "%s%s", what, i->kind == INODE_RECORD ? "" : i->gen);
    if (spool_stamp(m, i->id, name, &set) &&
        nanoseconds(&set) >= nanoseconds(&st->st_mtim) - STAMP_TRUST_NS)
        st->st_mtim = set;
}

static void common(const struct mount *m, const struct inode *i, mode_t mode, struct stat *st)
{
    *st = (struct stat){.st_ino = i->ino,
                        .st_mode = mode,
                        .st_nlink = S_ISDIR(mode) ? 2 : 1,
                        .st_uid = m->uid,
                        .st_gid = m->gid,
                        .st_blksize = 4096};
}

static void sized(struct stat *st, uint64_t size, uint64_t data)
{
    st->st_size = (off_t)size;
    st->st_blocks = (blkcnt_t)((data + 511) / 512);
}

static int record_attr(struct mount *m, const struct cairn_op *op, const struct inode *i,
                       struct stat *st, struct cairn_error *err)
{
    struct record_now now;
    common(m, i, S_IFDIR | 0750, st);
    int rc = records_now(m, op, i->id, &now, err);
    if (rc)
        return rc;
    if (!now.exists && !spool_has_record(m, i->id))
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such record: %s", i->id);
    set_times(st, now.meta_mtime_ns ? now.meta_mtime_ns : m->started_ns);
    apply_stamp(m, i, "", st);
    return CAIRN_OK;
}

static int export_attr(struct mount *m, const struct cairn_op *op, const struct inode *i,
                       struct stat *st, struct cairn_error *err)
{
    int64_t mtime;
    bool digest = i->kind == INODE_DIGEST;
    common(m, i, digest ? S_IFREG | 0600 : S_IFDIR | 0750, st);
    int rc = export_mtime(m, op, i->id, i->gen, &mtime, err);
    if (rc)
        return rc;
    set_times(st, mtime);
    if (digest)
        sized(st, i->len, i->len);
    apply_stamp(m, i, digest ? "digest-" : "export-", st);
    return CAIRN_OK;
}

int committed_attr(struct mount *m, const struct cairn_op *op, const struct inode *i,
                   struct stat *st, double *seconds, struct cairn_error *err)
{
    *seconds = MOUNT_ENTRY_SECONDS;
    switch (i->kind) {
    case INODE_ROOT:
        common(m, i, S_IFDIR | 0750, st);
        set_times(st, m->started_ns);
        return CAIRN_OK;
    case INODE_RECORD:
        return record_attr(m, op, i, st, err);
    case INODE_EXPORT:
    case INODE_DIGEST:
        return export_attr(m, op, i, st, err);
    case INODE_META:
        common(m, i, S_IFREG | 0600, st);
        sized(st, i->len, i->len);
        set_times(st, i->mtime_ns);
        break;
    case INODE_SUBDIR:
        common(m, i, S_IFDIR | 0750, st);
        set_times(st, i->mtime_ns);
        break;
    case INODE_FILE:
        common(m, i, S_IFREG | 0644, st);
        sized(st, i->size, i->data_bytes);
        set_times(st, i->file->mtime_ns);
        break;
    case INODE_SPOOL:
        return error_set(err, CAIRN_INTERNAL, EIO, "the spool's inode asked of the store");
    }
    *seconds = MOUNT_CONSTANT_SECONDS;
    return CAIRN_OK;
}

/* ---- Looking up ------------------------------------------------------------------------------ */

static int no_entry(struct cairn_error *err, const char *name)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such entry: %s", name);
}

/* An inode named by its place in the tree of names, tree = that of its key. */
static struct inode *named(struct mount *m, enum inode_kind kind, const char *tree)
{
    return inode_find(m, kind, tree, strlen(tree));
}

static struct inode *new_named(enum inode_kind kind, const char *tree, const char *id,
                               const char *gen)
{
    struct inode *i = inode_new(kind, tree, strlen(tree));
    if (!i)
        return NULL;
    i->ino = inode_number(tree, strlen(tree));
    memcpy(i->id, id, strlen(id) + 1);
    memcpy(i->gen, gen, GEN_TEXT);
    return i;
}

static int find_in_root(struct mount *m, const struct cairn_op *op, const char *name,
                        struct inode **out, struct cairn_error *err)
{
    if (!id_is_valid(name))
        return no_entry(err, name);
    struct record_now now;
    int rc = records_now(m, op, name, &now, err);
    if (rc)
        return rc;
    if (!now.exists && !spool_has_record(m, name))
        return no_entry(err, name);
    *out = inode_record(m, name);
    return *out ? CAIRN_OK : error_oom(err, "inode");
}

static void meta_tree(char tree[NAME_MAX_], const char *id, const char *gen)
{
    snprintf(tree, NAME_MAX_, "%s/meta.json %s", id, gen);
}

static int find_meta(struct mount *m, const struct cairn_op *op, const char *id, struct inode **out,
                     struct cairn_error *err)
{
    struct record_now now;
    char tree[NAME_MAX_];
    int rc = records_now(m, op, id, &now, err);
    if (rc)
        return rc;
    if (now.unreadable)
        return error_set(err, CAIRN_CORRUPT, EIO, "%s: its meta.json is larger than any can be",
                         id);
    if (!now.committed)
        return no_entry(err, "meta.json");
    meta_tree(tree, id, now.gen);
    if ((*out = named(m, INODE_META, tree)))
        return CAIRN_OK;
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    rc = records_bytes(m, op, id, now.gen, &meta, err);
    if (rc)
        return rc;
    meta_tree(tree, id, now.gen);
    struct inode *i = new_named(INODE_META, tree, id, now.gen);
    if (!i)
        return error_oom(err, "inode");
    i->len = meta.len;
    i->bytes = util_steal(&meta.data);
    i->mtime_ns = now.meta_mtime_ns;
    *out = inode_intern(m, i);
    return CAIRN_OK;
}

static int find_digest(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                       struct inode **out, struct cairn_error *err)
{
    char tree[NAME_MAX_];
    struct generation *g;
    int64_t mtime;
    int rc = export_mtime(m, op, id, gen, &mtime, err);
    if (!rc)
        rc = generation_get(m, op, id, gen, &g, err);
    if (rc)
        return rc == CAIRN_CORRUPT ? no_entry(err, "digest") : rc;
    size_t len = strlen(g->digest);
    snprintf(tree, sizeof(tree), "%s/digest-%s %s", id, gen, g->digest);
    struct inode *i = len ? new_named(INODE_DIGEST, tree, id, gen) : NULL;
    if (i && !(i->bytes = strdup(g->digest))) {
        inode_free(i);
        i = NULL;
    }
    generation_put(m, g);
    if (!len)
        return no_entry(err, "digest");
    if (!i)
        return error_oom(err, "inode");
    i->len = len;
    *out = inode_intern(m, i);
    return CAIRN_OK;
}

static int find_export(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                       struct inode **out, struct cairn_error *err)
{
    char tree[NAME_MAX_];
    int64_t mtime;
    int rc = export_mtime(m, op, id, gen, &mtime, err);
    if (rc)
        return rc;
    snprintf(tree, sizeof(tree), "%s/export-%s", id, gen);
    if ((*out = named(m, INODE_EXPORT, tree)))
        return CAIRN_OK;
    struct inode *i = new_named(INODE_EXPORT, tree, id, gen);
    if (!i)
        return error_oom(err, "inode");
    *out = inode_intern(m, i);
    return CAIRN_OK;
}

bool committed_may_have(const struct inode *dir, const char *name)
{
    char gen[GEN_TEXT];
    if (dir->kind == INODE_ROOT)
        return id_is_valid(name);
    return dir->kind != INODE_RECORD || strcmp(name, "meta.json") == 0 ||
           gen_of(name, "digest-", gen) || gen_of(name, "export-", gen);
}

static int find_in_record(struct mount *m, const struct cairn_op *op, const struct inode *dir,
                          const char *name, struct inode **out, struct cairn_error *err)
{
    char gen[GEN_TEXT];
    if (spool_hides(m, dir->id, name))
        return no_entry(err, name);
    if (strcmp(name, "meta.json") == 0)
        return find_meta(m, op, dir->id, out, err);
    if (gen_of(name, "digest-", gen))
        return find_digest(m, op, dir->id, gen, out, err);
    if (gen_of(name, "export-", gen))
        return find_export(m, op, dir->id, gen, out, err);
    return no_entry(err, name);
}

static const char *path_of(const struct inode *dir)
{
    return dir->path ? dir->path : "";
}

/* "export-<gen>/a/b" of name in dir; false: longer than any path can be. */
static bool record_path(const struct inode *dir, const char *name, char out[NAME_MAX_])
{
    int n = snprintf(out, NAME_MAX_, "export-%s/%s%s%s", dir->gen, path_of(dir),
                     dir->path ? "/" : "", name);
    return n > 0 && n < NAME_MAX_;
}

static int find_subdir(struct mount *m, const struct inode *dir, const struct generation *g,
                       const char *record_name, struct inode **out, struct cairn_error *err)
{
    char tree[ID_MAX + 1 + NAME_MAX_];
    snprintf(tree, sizeof(tree), "%s/%s", dir->id, record_name);
    if ((*out = named(m, INODE_SUBDIR, tree)))
        return CAIRN_OK;
    struct inode *i = new_named(INODE_SUBDIR, tree, dir->id, dir->gen);
    if (i)
        i->path = strdup(strchr(record_name, '/') + 1);
    if (!i || !i->path) {
        inode_free(i);
        return error_oom(err, "inode");
    }
    i->mtime_ns = g->created_ns;
    *out = inode_intern(m, i);
    return CAIRN_OK;
}

static int find_in_export(struct mount *m, const struct cairn_op *op, const struct inode *dir,
                          const char *name, struct inode **out, struct cairn_error *err)
{
    char full[NAME_MAX_];
    bool folder;
    struct generation *g;
    if (!record_path(dir, name, full) || spool_hides(m, dir->id, full))
        return no_entry(err, name);
    int rc = generation_get(m, op, dir->id, dir->gen, &g, err);
    if (rc)
        return rc;
    int64_t index = generation_child(g, path_of(dir), name, &folder);
    if (index >= 0)
        rc = (*out = file_inode(m, g, (uint32_t)index)) ? CAIRN_OK : error_oom(err, "inode");
    else if (folder)
        rc = find_subdir(m, dir, g, full, out, err);
    else
        rc = no_entry(err, name);
    generation_put(m, g);
    return rc;
}

int committed_find(struct mount *m, const struct cairn_op *op, struct inode *dir, const char *name,
                   struct inode **out, struct cairn_error *err)
{
    switch (dir->kind) {
    case INODE_ROOT:
        return find_in_root(m, op, name, out, err);
    case INODE_RECORD:
        return find_in_record(m, op, dir, name, out, err);
    case INODE_EXPORT:
    case INODE_SUBDIR:
        return find_in_export(m, op, dir, name, out, err);
    default:
        return error_set(err, CAIRN_INVALID, ENOTDIR, "no folder");
    }
}

/* ---- Listing --------------------------------------------------------------------------------- */

static int list_root(struct mount *m, const struct cairn_op *op, struct dirlist *list,
                     struct cairn_error *err)
{
    CLEANUP_LISTING struct listing l;
    char last[ID_MAX + 1] = "";
    int64_t begun = clock_monotonic();
    int rc = listing_open(&l, m->store->backend, op, LAYOUT_RECORDS, "", err);
    while (listing_next(&l, &rc, err)) {
        const struct layout_key *k = &l.key;
        if (k->kind == LAYOUT_KIND_META)
            records_seen(m, k->id, &l.entry.stat, begun);
        if ((k->kind != LAYOUT_KIND_META && k->kind != LAYOUT_KIND_EXPORT) ||
            strcmp(k->id, last) == 0)
            continue;
        memcpy(last, k->id, sizeof(last));
        rc = dirlist_add(list, k->id, inode_number(k->id, strlen(k->id)), S_IFDIR, err);
    }
    return rc;
}

/* Whether the manifest has a digest; one that cannot be read has none to show. */
static int header_digest(struct mount *m, const struct cairn_op *op, const char *key,
                         char digest[CAIRN_DIGEST_TEXT], struct cairn_error *err)
{
    uint8_t header[MANIFEST_HEADER_LEN];
    struct manifest_info info;
    digest[0] = 0;
    struct backend *b = m->store->backend;
    int rc = b->ops->read(b, op, key, 0, header, sizeof(header), err);
    if (!rc)
        rc = manifest_header_decode(header, &info, err);
    if (!rc && info.has_digest)
        digest_text(info.digest, digest);
    return rc == CAIRN_CORRUPT || rc == CAIRN_NOT_FOUND ? CAIRN_OK : rc;
}

static int add_named(struct mount *m, const char *id, const char *name, const char *tree,
                     unsigned type, struct dirlist *list, struct cairn_error *err)
{
    if (spool_hides(m, id, name))
        return CAIRN_OK;
    return dirlist_add(list, name, inode_number(tree, strlen(tree)), type, err);
}

static int list_generation(struct mount *m, const struct cairn_op *op, const char *key,
                           const struct layout_key *k, struct dirlist *list,
                           struct cairn_error *err)
{
    char name[16 + GEN_TEXT], tree[NAME_MAX_], digest[CAIRN_DIGEST_TEXT];
    snprintf(name, sizeof(name), "export-%s", k->gen);
    snprintf(tree, sizeof(tree), "%s/%s", k->id, name);
    int rc = add_named(m, k->id, name, tree, S_IFDIR, list, err);
    if (!rc)
        rc = header_digest(m, op, key, digest, err);
    if (rc || !digest[0])
        return rc;
    snprintf(name, sizeof(name), "digest-%s", k->gen);
    snprintf(tree, sizeof(tree), "%s/%s %s", k->id, name, digest);
    return add_named(m, k->id, name, tree, S_IFREG, list, err);
}

static int list_record(struct mount *m, const struct cairn_op *op, const char *id,
                       struct dirlist *list, struct cairn_error *err)
{
    CLEANUP_LISTING struct listing l = {0};
    struct record_now now;
    char prefix[KEY_MAX], tree[NAME_MAX_];
    layout_record(id, prefix);
    int rc = records_now(m, op, id, &now, err);
    if (!rc && (now.committed || now.unreadable)) {
        meta_tree(tree, id, now.gen);
        rc = add_named(m, id, "meta.json", tree, S_IFREG, list, err);
    }
    if (!rc)
        rc = listing_open(&l, m->store->backend, op, prefix, "", err);
    while (listing_next(&l, &rc, err))
        if (l.key.kind == LAYOUT_KIND_EXPORT)
            rc = list_generation(m, op, l.entry.key, &l.key, list, err);
    return rc;
}

static int list_export(struct mount *m, const struct cairn_op *op, const struct inode *dir,
                       struct dirlist *list, struct cairn_error *err)
{
    struct generation *g;
    int rc = generation_get(m, op, dir->id, dir->gen, &g, err);
    if (rc)
        return rc;
    struct generation_entry e;
    char full[NAME_MAX_], tree[ID_MAX + 1 + NAME_MAX_];
    for (uint64_t at = 0; !rc && generation_next(g, path_of(dir), &at, &e);) {
        if (!record_path(dir, e.name, full) || spool_hides(m, dir->id, full))
            continue;
        uint64_t ino;
        if (e.file < 0) {
            snprintf(tree, sizeof(tree), "%s/%s", dir->id, full);
            ino = inode_number(tree, strlen(tree));
        } else {
            ino = file_number(g, (uint32_t)e.file);
        }
        rc = dirlist_add(list, e.name, ino, e.file < 0 ? S_IFDIR : S_IFREG, err);
    }
    generation_put(m, g);
    return rc;
}

int committed_list(struct mount *m, const struct cairn_op *op, struct inode *dir,
                   struct dirlist *list, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    if (dir->kind == INODE_ROOT || dir->kind == INODE_RECORD)
        rc = spool_list(m, dir, list, err);
    if (rc)
        return rc;
    switch (dir->kind) {
    case INODE_ROOT:
        return list_root(m, op, list, err);
    case INODE_RECORD:
        return list_record(m, op, dir->id, list, err);
    case INODE_EXPORT:
    case INODE_SUBDIR:
        return list_export(m, op, dir, list, err);
    default:
        return error_set(err, CAIRN_INVALID, ENOTDIR, "no folder");
    }
}
