#include "store/remove.h"

#include "base/step.h"
#include "base/util.h"
#include "store/hold.h"
#include "store/listing.h"
#include "store/lock.h"
#include "store/parents.h"
#include "store/shared_fetch.h"
#include "store/tomb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a record consists of. */
struct parts {
    char (*keys)[KEY_MAX]; /* of exports, staged metas and traces, owned */
    size_t n, traces;
    bool has_meta;
};

static void parts_release(struct parts *p)
{
    free(p->keys);
}

static int add_part(struct parts *p, const char *key, struct cairn_error *err)
{
    char(*keys)[KEY_MAX] = reallocarray(p->keys, p->n + 1, KEY_MAX);
    if (!keys)
        return error_oom(err, "removing a record");
    p->keys = keys;
    memcpy(p->keys[p->n++], key, strlen(key) + 1);
    return CAIRN_OK;
}

/* only: the tombstone says which generations count; else all do and are added to it. */
static int find_parts(struct cairn_store *s, const struct cairn_op *op, const char *id,
                      struct parts *p, struct tomb *tomb, bool only, struct cairn_error *err)
{
    char prefix[KEY_MAX];
    layout_record(id, prefix);
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, s->backend, op, prefix, "", err);
    while (listing_next(&l, &rc, err)) {
        enum layout_kind kind = l.key.kind;
        if (kind == LAYOUT_KIND_META)
            p->has_meta = true;
        bool trace = kind == LAYOUT_KIND_TRACE;
        if ((kind != LAYOUT_KIND_EXPORT && kind != LAYOUT_KIND_STAGED && !trace) ||
            (only && !tomb_has_gen(tomb, l.key.gen)))
            continue;
        rc = add_part(p, l.entry.key, err);
        p->traces += trace;
        if (!rc && !only && !trace)
            rc = tomb_add_gen(tomb, l.key.gen, err);
    }
    return rc;
}

static int remove_parts(struct cairn_store *s, const struct cairn_op *op, const struct parts *p,
                        struct cairn_error *err)
{
    if (!p->n)
        return CAIRN_OK;
    CLEANUP_FREE const char **keys = calloc(p->n, sizeof(*keys));
    if (!keys)
        return error_oom(err, "removing a record");
    for (size_t i = 0; i < p->n; i++)
        keys[i] = p->keys[i];
    return s->backend->ops->remove(s->backend, op, keys, p->n, NULL, err);
}

int remove_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  struct cairn_error *err)
{
    __attribute__((cleanup(parts_release))) struct parts p = {0};
    CLEANUP_TOMB struct tomb tomb = {0};
    struct cairn_error e;
    bool has_tomb;
    int rc = tomb_get_or_empty(s, op, id, &tomb, &has_tomb, err);
    size_t known = tomb.n;
    if (!rc)
        rc = find_parts(s, op, id, &p, &tomb, false, err);
    /* A trace that was put after its record went makes no record: it goes, and that is all. */
    if (!rc && !p.has_meta && p.n == p.traces)
        return remove_parts(s, op, &p, err);
    if (!rc && p.has_meta) {
        CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
        char gen[GEN_TEXT];
        rc = store_get_meta(s, op, id, &meta, gen, &e);
        /* A meta that cannot be read as one is removed all the same. */
        if (!rc)
            rc = tomb_add_gen(&tomb, gen, err);
        else if (rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
            rc = CAIRN_OK;
        else
            rc = error_pass(err, &e);
    }
    STEP("remove.begin");
    bool full = false;
    if (!rc && (tomb.n > known || !known)) {
        rc = tomb_put(s, op, id, &tomb, &e);
        /* On a full disk there may be room for it where the manifests were. */
        full = rc == CAIRN_NO_SPACE && p.n;
        if (rc && !full)
            rc = error_pass(err, &e);
        else
            rc = CAIRN_OK;
    }
    STEP("remove.tomb");
    if (!rc)
        rc = remove_parts(s, op, &p, err);
    STEP("remove.exports");
    if (!rc && full)
        rc = tomb_put(s, op, id, &tomb, err);
    if (!rc && p.has_meta) {
        char key[KEY_MAX];
        layout_meta(id, key);
        rc = backend_remove_one(s->backend, op, key, err);
    }
    shared_fetch_changed(s);
    STEP("remove.meta");
    return rc;
}

int remove_finish(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  struct cairn_error *err)
{
    __attribute__((cleanup(parts_release))) struct parts p = {0};
    CLEANUP_TOMB struct tomb tomb = {0};
    struct cairn_error e;
    int rc = tomb_get(s, op, id, &tomb, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    rc = find_parts(s, op, id, &p, &tomb, true, err);
    if (!rc)
        rc = remove_parts(s, op, &p, err);
    STEP("remove.finish-exports");
    if (rc || !p.has_meta)
        return rc;
    /* Last looks: at the tombstone, which a publish may have emptied, then at what it names. */
    CLEANUP_TOMB struct tomb now = {0};
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT], key[KEY_MAX];
    rc = tomb_get(s, op, id, &now, &e);
    if (!rc)
        rc = store_get_meta(s, op, id, &meta, gen, &e);
    if (rc)
        return rc == CAIRN_NOT_FOUND ? CAIRN_OK : error_pass(err, &e);
    if (!tomb_has_gen(&now, gen))
        return CAIRN_OK;
    layout_meta(id, key);
    rc = backend_remove_one(s->backend, op, key, err);
    shared_fetch_changed(s);
    STEP("remove.finish-meta");
    return rc;
}

static int is_other(struct cairn_store *s, const struct cairn_op *op, const char *id,
                    const char *gen, bool *other, struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char now[GEN_TEXT] = "";
    struct cairn_error e;
    int rc = store_get_meta(s, op, id, &meta, now, &e);
    if (rc && rc != CAIRN_NOT_FOUND && rc != CAIRN_CORRUPT)
        return error_pass(err, &e);
    *other = strcmp(rc ? "" : now, gen) != 0;
    return CAIRN_OK;
}

/* gen, other: as remove_if_committed; gen NULL: whatever is there. */
static int delete_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                         const char *gen, bool *other, struct cairn_error *err)
{
    struct backend *b = s->backend;
    *other = false;
    int rc = id_check(id, err);
    if (!rc)
        rc = op_check(op, "delete", err);
    if (!rc)
        rc = store_check_writer(s, err);
    if (rc)
        return rc;
    bool held = false;
    int lock = -1;
    rc = lock_record(s, op, id, &lock, err);
    if (rc)
        return error_wrap(err, "delete %s", id);
    STEP("remove.locked");
    if (gen)
        rc = is_other(s, op, id, gen, other, err);
    if (!rc && !*other)
        rc = hold_exists(s, op, id, &held, err);
    if (!rc && held)
        rc = error_set(err, CAIRN_BUSY, EBUSY, "it is held: release it first");
    if (!rc && !*other)
        rc = remove_record(s, op, id, err);
    if (!rc && !*other)
        parents_drop(s, id);
    b->ops->unlock(b, id, lock);
    if (!rc && !*other)
        shared_fetch_forget(s, op, id);
    return rc ? error_wrap(err, "delete %s", id) : CAIRN_OK;
}

int cairn_delete(struct cairn_store *s, const struct cairn_op *op, const char *id,
                 struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    bool other;
    return delete_record(s, op, id, NULL, &other, err);
}

int remove_if_committed(struct cairn_store *s, const struct cairn_op *op, const char *id,
                        const char *gen, bool *other, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return delete_record(s, op, id, gen, other, err);
}
