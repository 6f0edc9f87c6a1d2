#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "store/commit.h"
#include "store/current.h"
#include "store/digest.h"
#include "store/index_build.h"
#include "store/ingest.h"
#include "store/lock.h"
#include "store/meta.h"
#include "store/parents.h"

#include <errno.h>
#include <string.h>

struct publish {
    struct cairn_store *s;
    const struct cairn_op *op;
    const char *id;
    const struct cairn_publish_options *opt;
    struct cairn_publish_result *result;
    struct cairn_error *err;
    struct walk files;
    struct buf own_meta; /* where the caller gave none */
    struct current current;
    struct manifest *parent; /* of opt->parent; NULL: not given */
    bool hinted;             /* parent is what this host remembers of it */
    struct commit commit;
    char gen[GEN_TEXT];
};

static int finish_builder(struct publish *p, struct ingest_result *r, struct manifest **out)
{
    struct manifest_info info = {.created_ns = clock_realtime(), .has_digest = p->opt->digest};
    memcpy(info.id, p->id, strlen(p->id) + 1);
    memcpy(info.gen, p->gen, GEN_TEXT);
    memcpy(info.digest, r->digest, SHA256_LEN);
    const struct manifest *parent = p->parent ? p->parent : p->current.manifest;
    if (parent) {
        memcpy(info.parent_id, manifest_info(parent)->id, sizeof(info.parent_id));
        memcpy(info.parent_gen, manifest_info(parent)->gen, GEN_TEXT);
    }
    uint8_t *data;
    size_t len;
    int rc = manifest_builder_encode(r->builder, &info, &data, &len, p->err);
    return rc ? rc : manifest_decode(data, len, p->id, p->gen, out, p->err);
}

/* This meta is committed already: success if the export is the same, else invalid. */
static int compare(struct publish *p)
{
    struct ingest_options opt = {.files = &p->files,
                                 .parent = p->current.manifest,
                                 .compare_only = true,
                                 .digest = p->opt->digest,
                                 .progress = &p->opt->progress};
    struct ingest_result r;
    int rc = ingest_run(p->s, p->op, &opt, &r, p->err);
    if (rc)
        return rc;
    bool same = false;
    CLEANUP_MANIFEST struct manifest *m = NULL;
    if (!r.differs) {
        rc = finish_builder(p, &r, &m);
        same = !rc && manifest_same_export(m, p->current.manifest);
    }
    manifest_builder_free(r.builder);
    if (rc)
        return rc;
    if (!same)
        return error_set(p->err, CAIRN_INVALID, EEXIST,
                         "this meta.json is published already (generation %s) with another "
                         "export: each generation needs its own meta.json",
                         p->gen);
    const struct manifest_info *info = manifest_info(p->current.manifest);
    p->result->unchanged = true;
    p->result->logical_bytes = info->logical_bytes;
    p->result->data_bytes = info->data_bytes;
    p->result->chunks = r.chunks;
    if (p->opt->digest)
        digest_text(r.digest, p->result->digest);
    return CAIRN_OK;
}

/* A checkpoint that is published already, and the caller gave no meta, which is then made of the
 * time: the same command run again (its first run was killed after the commit, say) finds its work
 * done if the export is the same. */
static int look_at_same_export(struct publish *p, bool *done)
{
    char own_gen[GEN_TEXT];
    bool dying;
    if (p->opt->meta || id_is_template(p->id) || !p->current.manifest)
        return CAIRN_OK;
    memcpy(own_gen, p->gen, GEN_TEXT);
    memcpy(p->gen, p->current.gen, GEN_TEXT);
    int rc = compare(p);
    if (!rc)
        rc = current_is_dying(p->s, p->op, p->id, p->gen, &dying, p->err);
    *done = !rc && !dying;
    if (!*done) {
        p->result->unchanged = false;
        memcpy(p->gen, own_gen, GEN_TEXT);
    }
    return rc == CAIRN_INVALID ? CAIRN_OK : rc;
}

/* *done: nothing is left to do. */
static int look_at_current(struct publish *p, bool *done)
{
    *done = false;
    int64_t looked = clock_boottime();
    int rc = current_load(p->s, p->op, p->id, &p->current, p->err);
    p->commit.absent_ns = !rc && !p->current.exists ? looked : 0;
    if (!rc)
        rc = look_at_same_export(p, done);
    if (rc || *done)
        return rc;
    if (!rc)
        rc = current_allows(&p->current, p->id, p->gen, p->err);
    if (rc || !p->current.exists || strcmp(p->current.gen, p->gen) != 0)
        return rc;
    if (!p->current.manifest) {
        /* Its export is lost or damaged: the same meta may be published again. */
        p->commit.committed = true;
        return CAIRN_OK;
    }
    rc = compare(p);
    bool dying;
    if (!rc)
        rc = current_is_dying(p->s, p->op, p->id, p->gen, &dying, p->err);
    if (rc)
        return rc;
    *done = !dying;
    p->commit.committed = dying;
    p->result->unchanged = !dying;
    return CAIRN_OK;
}

static int load_parent(struct publish *p)
{
    if (!p->opt->parent)
        return CAIRN_OK;
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    int rc = id_check(p->opt->parent, p->err);
    if (!rc)
        p->parent = parents_find(p->s, p->opt->parent);
    p->hinted = p->parent != NULL;
    if (!rc && !p->parent)
        rc = store_load(p->s, p->op, p->opt->parent, &meta, gen, &p->parent, p->err);
    return rc ? error_wrap(p->err, "parent") : CAIRN_OK;
}

/* A pack that the remembered parent names is closed or gone: a collector may have moved its chunks,
 * and its manifest tells where to. A parent that is gone helps no more. */
static int load_parent_anew(struct publish *p)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    struct cairn_error e;
    if (!p->hinted)
        return CAIRN_OK;
    manifest_free(p->parent);
    p->parent = NULL;
    p->hinted = false;
    parents_drop(p->s, p->opt->parent);
    int rc = store_load(p->s, p->op, p->opt->parent, &meta, gen, &p->parent, &e);
    if (rc && rc != CAIRN_NOT_FOUND)
        return error_set(p->err, rc, e.sys_errno, "parent: %s", e.message);
    return CAIRN_OK;
}

static int publish_round(struct publish *p, struct pack_set *bad, bool *again)
{
    struct ingest_options opt = {.files = &p->files,
                                 .parent = p->parent ? p->parent : p->current.manifest,
                                 .banned = bad,
                                 .digest = p->opt->digest,
                                 .progress = &p->opt->progress};
    struct ingest_result r;
    int rc = ingest_run(p->s, p->op, &opt, &r, p->err);
    if (rc)
        return rc;
    STEP("publish.ingested");
    CLEANUP_MANIFEST struct manifest *m = NULL;
    rc = finish_builder(p, &r, &m);
    manifest_builder_free(r.builder);
    if (!rc)
        rc = commit_run(&p->commit, m, bad, again, p->err);
    if (rc)
        return rc;
    if (!*again)
        parents_keep(p->s, m);
    const struct manifest_info *info = manifest_info(m);
    p->result->logical_bytes = info->logical_bytes;
    p->result->data_bytes = info->data_bytes;
    p->result->chunks = r.chunks;
    p->result->new_chunks += r.new_chunks;
    p->result->new_bytes += r.new_bytes;
    p->result->stored_bytes += r.stored_bytes;
    if (p->opt->digest)
        digest_text(r.digest, p->result->digest);
    return CAIRN_OK;
}

static int publish_new(struct publish *p)
{
    int rc = load_parent(p);
    struct cairn_error ignored;
    if (!rc && p->s->index && index_is_new(p->s->index) &&
        index_build(p->s, p->op, false, &ignored))
        log_line(LOG_LEVEL_WARNING, "%s", ignored.message);
    if (!rc)
        rc = commit_begin(&p->commit, p->err);
    if (rc)
        return rc;
    CLEANUP_PACK_SET struct pack_set bad = {0};
    bool again = true;
    for (int round = 0; !rc && again && round < COMMIT_ROUNDS_MAX; round++) {
        rc = publish_round(p, &bad, &again);
        if (again)
            commit_forget_packs(p->s, &bad);
        if (!rc && again)
            rc = load_parent_anew(p);
    }
    if (!rc && again)
        rc = commit_gave_up(p->err);
    if (rc)
        commit_abandon(&p->commit);
    else
        commit_end(&p->commit);
    STEP("publish.done");
    return rc;
}

static int publish_locked(struct publish *p)
{
    bool done;
    int rc = look_at_current(p, &done);
    return rc || done ? rc : publish_new(p);
}

/* What was found is what will be read (walk_open), so that looking once is enough. */
static int check_owner(struct publish *p)
{
    char shown[WALK_SHOWN];
    for (size_t i = 0; p->opt->owned && i < p->files.n; i++) {
        const struct walk_file *f = &p->files.files[i];
        if (f->st.st_uid != p->opt->owner)
            return error_set(p->err, CAIRN_PERMANENT, EACCES,
                             "export: %s belongs to user %u, and not to user %u",
                             walk_shown(f->path, f->path_len, shown), (unsigned)f->st.st_uid,
                             (unsigned)p->opt->owner);
    }
    return CAIRN_OK;
}

static int prepare(struct publish *p)
{
    const struct cairn_publish_options *opt = p->opt;
    const void *meta = opt->meta;
    size_t meta_len = opt->meta_len;
    int rc = id_check(p->id, p->err);
    if (!rc)
        rc = op_check(p->op, "publish", p->err);
    if (!rc)
        rc = store_check_writer(p->s, p->err);
    if (!rc && !opt->from)
        rc = error_set(p->err, CAIRN_INVALID, EINVAL, "no folder to publish from");
    if (!rc && !meta) {
        rc = meta_default(p->id, &p->own_meta, p->err);
        meta = p->own_meta.data;
        meta_len = p->own_meta.len;
    }
    if (!rc)
        rc = gen_of_meta(meta, meta_len, p->gen, p->err);
    if (!rc)
        rc = walk_run(opt->from, p->op, &p->files, p->err);
    if (!rc)
        rc = check_owner(p);
    if (!rc)
        rc = meta_check_expected(meta, meta_len, opt->expect, opt->n_expect, &p->files, p->err);
    p->commit = (struct commit){.store = p->s,
                                .op = p->op,
                                .id = p->id,
                                .gen = p->gen,
                                .meta = meta,
                                .meta_len = meta_len,
                                .began_ns = clock_boottime()};
    return rc;
}

int cairn_publish(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  const struct cairn_publish_options *options, struct cairn_publish_result *result,
                  struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int64_t start = clock_monotonic();
    *result = (struct cairn_publish_result){0};
    struct publish p = {.s = s,
                        .op = op,
                        .id = id,
                        .opt = options,
                        .result = result,
                        .err = err,
                        .files = WALK_INIT,
                        .own_meta = BUF_INIT(META_MAX)};
    int rc = prepare(&p);
    int lock = -1;
    if (!rc) {
        STEP("publish.begin");
        rc = lock_record(s, op, id, &lock, err);
    }
    if (!rc) {
        STEP("publish.locked");
        p.commit.locked = lock >= 0;
        rc = publish_locked(&p);
        s->backend->ops->unlock(s->backend, id, lock);
    }
    memcpy(result->gen, p.gen, GEN_TEXT);
    result->empty_dirs = p.files.empty_dirs;
    result->seconds = (double)(clock_monotonic() - start) / (double)NS_PER_S;
    current_release(&p.current);
    manifest_free(p.parent);
    walk_release(&p.files);
    buf_release(&p.own_meta);
    return rc ? error_wrap(err, "publish %s", id_is_valid(id) ? id : "record") : CAIRN_OK;
}
