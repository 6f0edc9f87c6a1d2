#include "base/clock.h"
#include "store/commit.h"
#include "store/current.h"
#include "store/lock.h"
#include "store/meta.h"
#include "store/parents.h"
#include "store/relocate.h"

#include <errno.h>
#include <string.h>

static int rename_manifest(const struct manifest *m, const char *id, const char *gen,
                           struct manifest **out, struct cairn_error *err)
{
    const struct manifest_info *from = manifest_info(m);
    struct manifest_info info = {.created_ns = clock_realtime()};
    memcpy(info.id, id, strlen(id) + 1);
    memcpy(info.gen, gen, GEN_TEXT);
    memcpy(info.parent_id, from->id, sizeof(info.parent_id));
    memcpy(info.parent_gen, from->gen, GEN_TEXT);
    uint8_t *data;
    size_t len;
    int rc = manifest_rename(m, &info, &data, &len, err);
    return rc ? rc : manifest_adopt(data, len, out, err);
}

/* new_id is a checkpoint that was forked from this very generation: by an earlier run of the same
 * command, if that made its meta of the time. */
static bool is_earlier_fork(const struct commit *c, const struct current *current,
                            const struct manifest *source)
{
    if (id_is_template(c->id) || !current->manifest)
        return false;
    const struct manifest_info *was = manifest_info(current->manifest),
                               *from = manifest_info(source);
    return strcmp(was->parent_id, from->id) == 0 && strcmp(was->parent_gen, from->gen) == 0 &&
           manifest_same_export(current->manifest, source);
}

/* *done: new_id is that fork already. own_gen: the generation's name, where the caller gave no meta
 * and any meta will do; else NULL. */
static int fork_target(struct commit *c, const struct manifest *source, char *own_gen, bool *done,
                       struct cairn_error *err)
{
    CLEANUP_CURRENT struct current current = {0};
    bool dying;
    *done = false;
    int64_t looked = clock_boottime();
    int rc = current_load(c->store, c->op, c->id, &current, err);
    c->absent_ns = !rc && !current.exists ? looked : 0;
    if (!rc && own_gen && is_earlier_fork(c, &current, source)) {
        rc = current_is_dying(c->store, c->op, c->id, current.gen, &dying, err);
        *done = !rc && !dying;
        if (*done)
            memcpy(own_gen, current.gen, GEN_TEXT);
        if (rc || *done)
            return rc;
    }
    if (!rc)
        rc = current_allows(&current, c->id, c->gen, err);
    if (rc || !current.exists || strcmp(current.gen, c->gen) != 0)
        return rc;
    c->committed = true;
    if (!current.manifest)
        return CAIRN_OK;
    if (!manifest_same_export(current.manifest, source))
        return error_set(err, CAIRN_INVALID, EEXIST,
                         "%s has this meta.json already (generation %s) with another export: each "
                         "generation needs its own meta.json",
                         c->id, c->gen);
    rc = current_is_dying(c->store, c->op, c->id, c->gen, &dying, err);
    *done = !rc && !dying;
    return rc;
}

static int fork_locked(struct commit *c, const char *id, char *own_gen, struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    CLEANUP_MANIFEST struct manifest *source = NULL;
    char gen[GEN_TEXT];
    bool done, again = true;
    int rc = store_load(c->store, c->op, id, &meta, gen, &source, err);
    if (!rc)
        rc = fork_target(c, source, own_gen, &done, err);
    if (rc || done)
        return rc;
    rc = commit_begin(c, err);
    CLEANUP_PACK_SET struct pack_set bad = {0};
    for (int round = 0; !rc && again && round < COMMIT_ROUNDS_MAX; round++) {
        CLEANUP_MANIFEST struct manifest *m = NULL;
        if (bad.n) {
            struct manifest *moved = NULL;
            rc = relocate_chunks(c->store, c->op, source, &bad, &moved, err);
            if (rc)
                break;
            manifest_free(source);
            source = moved;
        }
        rc = rename_manifest(source, c->id, c->gen, &m, err);
        if (!rc)
            rc = commit_run(c, m, &bad, &again, err);
        if (!rc && !again)
            parents_keep(c->store, m);
        if (!rc && again)
            commit_forget_packs(c->store, &bad);
    }
    if (!rc && again)
        rc = commit_gave_up(err);
    if (rc)
        commit_abandon(c);
    else
        commit_end(c);
    return rc;
}

int cairn_fork(struct cairn_store *s, const struct cairn_op *op, const char *id, const char *new_id,
               const void *meta, size_t meta_len, char gen[CAIRN_GEN_TEXT], struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    CLEANUP_BUF struct buf own_meta = BUF_INIT(META_MAX);
    int rc = id_check(id, err);
    if (!rc)
        rc = id_check(new_id, err);
    if (!rc)
        rc = op_check(op, "fork", err);
    if (!rc)
        rc = store_check_writer(s, err);
    if (rc)
        return rc;
    if (!meta) {
        rc = meta_default(new_id, &own_meta, err);
        meta = own_meta.data;
        meta_len = own_meta.len;
    }
    char name[GEN_TEXT];
    if (!rc)
        rc = gen_of_meta(meta, meta_len, name, err);
    struct commit c = {.store = s,
                       .op = op,
                       .id = new_id,
                       .gen = name,
                       .meta = meta,
                       .meta_len = meta_len,
                       .began_ns = clock_boottime()};
    int lock = -1;
    if (!rc)
        rc = lock_record(s, op, new_id, &lock, err);
    if (!rc) {
        c.locked = lock >= 0;
        rc = fork_locked(&c, id, own_meta.len ? name : NULL, err);
        s->backend->ops->unlock(s->backend, new_id, lock);
    }
    if (rc)
        return error_wrap(err, "fork %s to %s", id, new_id);
    memcpy(gen, name, GEN_TEXT);
    return CAIRN_OK;
}
