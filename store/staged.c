#include "store/staged.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "store/commit.h"
#include "store/current.h"
#include "store/digest.h"
#include "store/hold.h"
#include "store/index_build.h"
#include "store/ingest.h"
#include "store/lock.h"
#include "store/meta.h"
#include "store/relocate.h"
#include "store/shared_fetch.h"
#include "store/tomb.h"

#include <errno.h>
#include <string.h>

struct staged {
    struct cairn_store *s;
    const struct cairn_op *op;
    const char *id;
    char gen[GEN_TEXT];
    const struct staged_export *from;
    struct cairn_publish_result *result;
    struct cairn_error *err;
    struct walk files; /* of from->from */
    int64_t walked_ns;
    int64_t began_ns, absent_ns; /* as struct commit has them */
    struct current current;
    int lock;
};

struct staged_prepared {
    struct manifest *manifest;
    struct walk files;
    int64_t walked_ns; /* CLOCK_REALTIME, before they were looked at */
};

void staged_prepared_free(struct staged_prepared *p)
{
    if (!p)
        return;
    manifest_free(p->manifest);
    walk_release(&p->files);
    free(p);
}

void staged_prepared_freep(struct staged_prepared **p)
{
    staged_prepared_free(*p);
}

const struct manifest *staged_prepared_manifest(const struct staged_prepared *p)
{
    return p->manifest;
}

/* ---- What both halves do --------------------------------------------------------------------- */

static int begin(struct staged *p)
{
    struct cairn_error ignored;
    p->files = WALK_INIT;
    p->walked_ns = clock_realtime();
    p->began_ns = clock_boottime();
    *p->result = (struct cairn_publish_result){0};
    int rc = id_check(p->id, p->err);
    if (!rc)
        rc = op_check(p->op, "publish", p->err);
    if (!rc)
        rc = store_check_writer(p->s, p->err);
    if (!rc && p->from->from)
        rc = walk_run(p->from->from, p->op, &p->files, p->err);
    if (!rc && p->s->index && index_is_new(p->s->index) &&
        index_build(p->s, p->op, false, &ignored))
        log_line(LOG_LEVEL_WARNING, "%s", ignored.message);
    return rc;
}

/* The record's lock, and what is committed there. */
static int lock(struct staged *p)
{
    int rc = lock_record(p->s, p->op, p->id, &p->lock, p->err);
    if (rc)
        return rc;
    current_release(&p->current);
    int64_t looked = clock_boottime();
    rc = current_load(p->s, p->op, p->id, &p->current, p->err);
    p->absent_ns = !rc && !p->current.exists ? looked : 0;
    if (!rc)
        rc = current_allows(&p->current, p->id, p->gen, p->err);
    if (rc)
        p->s->backend->ops->unlock(p->s->backend, p->id, p->lock);
    return rc;
}

static void unlock(struct staged *p)
{
    p->s->backend->ops->unlock(p->s->backend, p->id, p->lock);
}

static int end(struct staged *p, int rc)
{
    memcpy(p->result->gen, p->gen, GEN_TEXT);
    p->result->empty_dirs = p->files.empty_dirs;
    current_release(&p->current);
    walk_release(&p->files);
    return rc ? error_wrap(p->err, "publish %s", id_is_valid(p->id) ? p->id : "record") : CAIRN_OK;
}

static void tell(struct staged *p, const struct manifest *m)
{
    p->result->logical_bytes = manifest_info(m)->logical_bytes;
    p->result->data_bytes = manifest_info(m)->data_bytes;
}

/* *same: this generation is committed already, with m's export. */
static int compare(struct staged *p, const struct manifest *m, bool *same)
{
    bool dying;
    *same = false;
    if (!p->current.exists || strcmp(p->current.gen, p->gen) != 0 || !p->current.manifest)
        return CAIRN_OK;
    if (!manifest_same_export(m, p->current.manifest))
        return error_set(p->err, CAIRN_INVALID, EEXIST,
                         "this meta.json is published already (generation %s) with another "
                         "export: each generation needs its own meta.json",
                         p->gen);
    int rc = current_is_dying(p->s, p->op, p->id, p->gen, &dying, p->err);
    *same = !rc && !dying;
    return rc;
}

/* ---- From files to a manifest ---------------------------------------------------------------- */

static bool names_a_pack_of(const struct manifest *m, const struct pack_set *bad)
{
    for (uint32_t i = 0; bad->n && i < manifest_info(m)->n_packs; i++)
        if (pack_set_has(bad, manifest_pack(m, i)))
            return true;
    return false;
}

/* What was chunked in the background; what is not known, or lies in bad packs, stays NULL. */
static void find_known(struct staged *p, const struct pack_set *bad, struct background_file **held,
                       const struct manifest **known)
{
    struct background *bg = p->from->background;
    for (size_t i = 0; bg && background_store(bg) == p->s && i < p->files.n; i++) {
        const struct walk_file *f = &p->files.files[i];
        if ((uint64_t)f->st.st_blocks * 512 < BACKGROUND_MIN_BYTES)
            continue;
        held[i] = background_take(bg, p->op, &f->st);
        if (held[i] && !names_a_pack_of(background_manifest(held[i]), bad))
            known[i] = background_manifest(held[i]);
    }
}

/* Where nothing is committed under the id: what the first large file resembles that has to be read;
 * NULL: nothing. */
static struct manifest *find_kin(struct staged *p, const struct manifest *const *known)
{
    struct background *bg = p->from->background;
    struct cairn_error ignored;
    for (size_t i = 0; bg && !p->current.manifest && i < p->files.n; i++) {
        const struct walk_file *f = &p->files.files[i];
        CLEANUP_FD int fd = -1;
        if (known[i] || (uint64_t)f->st.st_blocks * 512 < BACKGROUND_MIN_BYTES ||
            walk_open(&p->files, i, &fd, &ignored))
            continue;
        struct manifest *kin = background_kin(bg, p->op, fd, f->path, f->size);
        if (kin)
            return kin;
    }
    return NULL;
}

static int encode(struct staged *p, struct manifest_builder *b, struct manifest **out)
{
    struct manifest_info info = {.created_ns = clock_realtime()};
    memcpy(info.id, p->id, strlen(p->id) + 1);
    memcpy(info.gen, p->gen, GEN_TEXT);
    if (p->current.manifest && strcmp(p->current.gen, p->gen) != 0) {
        const struct manifest_info *parent = manifest_info(p->current.manifest);
        memcpy(info.parent_id, parent->id, sizeof(info.parent_id));
        memcpy(info.parent_gen, parent->gen, GEN_TEXT);
    }
    uint8_t *data;
    size_t len;
    int rc = manifest_builder_encode(b, &info, &data, &len, p->err);
    return rc ? rc : manifest_decode(data, len, p->id, p->gen, out, p->err);
}

static int ingest(struct staged *p, const struct pack_set *bad, const struct manifest *const *known,
                  struct manifest **out)
{
    CLEANUP_MANIFEST struct manifest *kin = find_kin(p, known);
    struct ingest_options opt = {.files = &p->files,
                                 .parent = kin ? kin : p->current.manifest,
                                 .base_only = kin != NULL,
                                 .banned = bad,
                                 .known = known};
    struct ingest_result r;
    int rc = ingest_run(p->s, p->op, &opt, &r, p->err);
    if (rc)
        return rc;
    p->result->chunks = r.chunks;
    p->result->new_chunks += r.new_chunks;
    p->result->new_bytes += r.new_bytes;
    p->result->stored_bytes += r.stored_bytes;
    rc = encode(p, r.builder, out);
    manifest_builder_free(r.builder);
    return rc;
}

static int make_manifest(struct staged *p, const struct pack_set *bad, struct manifest **out)
{
    size_t n = p->files.n + 1;
    CLEANUP_FREE struct background_file **held = calloc(n, sizeof(*held));
    CLEANUP_FREE const struct manifest **known = calloc(n, sizeof(*known));
    if (!held || !known)
        return error_oom(p->err, "publish");
    find_known(p, bad, held, known);
    int rc = ingest(p, bad, known, out);
    for (size_t i = 0; i < p->files.n; i++)
        background_put(held[i]);
    STEP("staged.ingested");
    return rc;
}

/* ---- Prepare --------------------------------------------------------------------------------- */

/* Bytes of a generation never change, also if it is superseded and somebody reads it still. */
static int check_what_is_there(struct staged *p, const struct manifest *m)
{
    CLEANUP_MANIFEST struct manifest *old = NULL;
    struct cairn_error e;
    int rc = store_load_manifest(p->s, p->op, p->id, p->gen, &old, &e);
    if (rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
        return CAIRN_OK;
    if (rc)
        return error_pass(p->err, &e);
    if (manifest_same_export(old, m))
        return CAIRN_OK;
    return error_set(p->err, CAIRN_INVALID, ENOTEMPTY,
                     "generation %s lies in the store with another export: remove that first",
                     p->gen);
}

/* Where nothing locks, another writer of this very generation may commit it just now, and finds
 * nothing to do once this manifest lies there: it may name no pack that is closed or gone. Under
 * the lock it is nobody's until the commit, which looks at the packs. */
static int check_packs(struct staged *p, const struct manifest *m, struct pack_set *bad)
{
    size_t before = bad->n;
    int64_t began;
    int rc = CAIRN_OK;
    if (p->lock >= 0)
        return CAIRN_OK;
    do {
        began = clock_boottime();
        rc = op_check(p->op, "publish", p->err);
        if (!rc)
            rc = commit_check_packs_since(p->s, p->op, m, p->began_ns, bad, p->err);
    } while (!rc && bad->n == before && clock_boottime() - began > COMMIT_CHECK_MAX_NS);
    return rc;
}

/* *again: m names bad packs; nothing was written. */
static int put_root(struct staged *p, const struct manifest *m, struct pack_set *bad, bool *again)
{
    char key[KEY_MAX];
    size_t len, before = bad->n;
    const uint8_t *data = manifest_bytes(m, &len);
    layout_export(p->id, p->gen, key);
    int rc = check_what_is_there(p, m);
    if (!rc)
        rc = commit_before(p->s, p->op, p->id, p->err);
    if (!rc)
        rc = check_packs(p, m, bad);
    *again = !rc && bad->n > before;
    if (rc || *again)
        return rc;
    rc = p->s->backend->ops->put(p->s->backend, p->op, key, data, len, p->err);
    STEP("staged.prepared");
    return rc ? error_wrap(p->err, "writing the manifest") : CAIRN_OK;
}

static int prepare_round(struct staged *p, struct pack_set *bad, bool *again, struct manifest **out)
{
    CLEANUP_MANIFEST struct manifest *m = NULL;
    *again = false;
    int rc = make_manifest(p, bad, &m);
    if (!rc)
        rc = lock(p);
    if (rc)
        return rc;
    rc = compare(p, m, &p->result->unchanged);
    if (!rc && !p->result->unchanged)
        rc = put_root(p, m, bad, again);
    unlock(p);
    if (!rc && !*again)
        *out = util_steal(&m);
    return rc;
}

static int prepare(struct staged *p, struct staged_prepared **out)
{
    int rc = begin(p);
    if (!rc && !gen_is_valid(p->gen))
        rc = error_set(p->err, CAIRN_INVALID, EINVAL, "no name of a generation: %s", p->gen);
    /* For the parent, and so that what cannot be committed is refused before it is read. */
    if (!rc)
        rc = lock(p);
    if (rc)
        return rc;
    unlock(p);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    CLEANUP_PACK_SET struct pack_set bad = {0};
    bool again = true;
    for (int round = 0; !rc && again && round < COMMIT_ROUNDS_MAX; round++) {
        rc = prepare_round(p, &bad, &again, &m);
        if (again)
            commit_forget_packs(p->s, &bad);
    }
    if (rc || again)
        return rc ? rc : commit_gave_up(p->err);
    tell(p, m);
    struct staged_prepared *done = malloc(sizeof(*done));
    if (!done)
        return error_oom(p->err, "publish");
    *done = (struct staged_prepared){
        .manifest = util_steal(&m), .files = p->files, .walked_ns = p->walked_ns};
    p->files = WALK_INIT;
    util_closep(&done->files.root);
    done->files.root = -1;
    *out = done;
    return CAIRN_OK;
}

int staged_prepare(struct cairn_store *s, const struct cairn_op *op, const char *id,
                   const char *gen, const struct staged_export *from, struct staged_prepared **out,
                   struct cairn_publish_result *result, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct staged p = {.s = s, .op = op, .id = id, .from = from, .result = result, .err = err};
    memcpy(p.gen, gen, strnlen(gen, GEN_TEXT - 1));
    return end(&p, prepare(&p, out));
}

/* ---- Commit ---------------------------------------------------------------------------------- */

/* m under the time of the commit, and with the digest. */
static int stamp(struct staged *p, const struct staged_commit *c, const struct manifest *m,
                 struct manifest **out)
{
    struct manifest_info info = *manifest_info(m);
    info.created_ns = clock_realtime();
    info.writer_version = 0;
    if (c->digest) {
        info.has_digest = true;
        memcpy(info.digest, c->digest, SHA256_LEN);
    }
    uint8_t *data;
    size_t len;
    int rc = manifest_rename(m, &info, &data, &len, p->err);
    return rc ? rc : manifest_decode(data, len, p->id, p->gen, out, p->err);
}

/* A manifest without the bad packs. *own: what was made so far, replaced. */
static int remake(struct staged *p, const struct manifest *m, const struct pack_set *bad,
                  struct manifest **own)
{
    struct manifest *fresh = NULL;
    int rc = p->from->from ? make_manifest(p, bad, &fresh)
                           : relocate_chunks(p->s, p->op, m, bad, &fresh, p->err);
    if (rc)
        return rc;
    manifest_free(*own);
    *own = fresh;
    return CAIRN_OK;
}

static int commit_rounds(struct staged *p, const struct staged_commit *c, struct commit *commit,
                         const struct manifest *m)
{
    CLEANUP_PACK_SET struct pack_set bad = {0};
    CLEANUP_MANIFEST struct manifest *own = NULL;
    bool again = true;
    int rc = commit_begin(commit, p->err);
    for (int round = 0; !rc && again && round < COMMIT_ROUNDS_MAX; round++) {
        CLEANUP_MANIFEST struct manifest *stamped = NULL;
        if (bad.n) {
            rc = remake(p, own ? own : m, &bad, &own);
            if (rc)
                break;
        }
        rc = stamp(p, c, own ? own : m, &stamped);
        if (!rc)
            rc = commit_run(commit, stamped, &bad, &again, p->err);
        if (!rc && again)
            commit_forget_packs(p->s, &bad);
        if (!rc)
            tell(p, stamped);
    }
    return !rc && again ? commit_gave_up(p->err) : rc;
}

/* Times have the kernel's grain (10 ms at most): of a file that was changed that shortly before it
 * was looked at they do not tell whether it was changed again. */
#define RACY_NS (20 * NS_PER_S / 1000)

static bool is_racy(const struct staged_prepared *made, const struct stat *st)
{
    return st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec > made->walked_ns - RACY_NS;
}

/* What was prepared, if the files are still what they were. */
static const struct manifest *usable_manifest(const struct staged *p, const struct staged_commit *c)
{
    const struct staged_prepared *made = c->prepared;
    if (!made || !p->from->from)
        return made ? made->manifest : NULL;
    if (made->files.n != p->files.n)
        return NULL;
    for (size_t i = 0; i < p->files.n; i++) {
        const struct walk_file *a = &made->files.files[i], *b = &p->files.files[i];
        if (a->path_len != b->path_len || memcmp(a->path, b->path, a->path_len) != 0 ||
            !background_same_file(&a->st, &b->st) || is_racy(made, &a->st))
            return NULL;
    }
    return made->manifest;
}

static int commit_locked(struct staged *p, const struct staged_commit *c)
{
    CLEANUP_MANIFEST struct manifest *own = NULL;
    const struct manifest *m = usable_manifest(p, c);
    int rc = CAIRN_OK;
    if (!m) {
        rc = p->from->from ? make_manifest(p, &(struct pack_set){0}, &own)
                           : store_load_manifest(p->s, p->op, p->id, p->gen, &own, p->err);
        m = own;
    }
    if (!rc)
        rc = compare(p, m, &p->result->unchanged);
    if (rc)
        return rc;
    if (p->result->unchanged) {
        tell(p, m);
        return CAIRN_OK;
    }
    struct commit commit = {.store = p->s,
                            .op = p->op,
                            .id = p->id,
                            .gen = p->gen,
                            .meta = c->meta,
                            .meta_len = c->meta_len,
                            .locked = p->lock >= 0,
                            .began_ns = p->began_ns,
                            .absent_ns = p->absent_ns,
                            .committed = p->current.exists && strcmp(p->current.gen, p->gen) == 0};
    rc = commit_rounds(p, c, &commit, m);
    /* What was in the store before, and nowhere else, stays for the next try. */
    if (rc && !p->from->from)
        p->s->backend->ops->unstage(p->s->backend, p->id, p->gen);
    else if (rc)
        commit_abandon(&commit);
    else
        commit_end(&commit);
    if (!rc && p->from->background)
        background_remember(p->from->background, m, UINT32_MAX);
    STEP("staged.committed");
    return rc;
}

static int commit_all(struct staged *p, const struct staged_commit *c)
{
    int rc = begin(p);
    if (!rc)
        rc = gen_of_meta(c->meta, c->meta_len, p->gen, p->err);
    if (!rc && p->from->from)
        rc = meta_check_expected(c->meta, c->meta_len, NULL, 0, &p->files, p->err);
    if (!rc && c->prepared && strcmp(manifest_info(c->prepared->manifest)->gen, p->gen) != 0)
        rc = error_set(p->err, CAIRN_INVALID, EINVAL,
                       "meta.json names generation %s, not %s, which was prepared", p->gen,
                       manifest_info(c->prepared->manifest)->gen);
    if (!rc)
        rc = lock(p);
    if (rc)
        return rc;
    rc = commit_locked(p, c);
    unlock(p);
    if (!rc && c->digest)
        digest_text(c->digest, p->result->digest);
    return rc;
}

int staged_commit(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  const struct staged_commit *c, struct cairn_publish_result *result,
                  struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct staged p = {.s = s, .op = op, .id = id, .from = &c->from, .result = result, .err = err};
    return end(&p, commit_all(&p, c));
}

/* ---- Removing -------------------------------------------------------------------------------- */

/* The record ends with this generation: say so before it is gone, so that a sweep may finish it. */
static int bury(struct cairn_store *s, const struct cairn_op *op, const char *id, const char *gen,
                struct cairn_error *err)
{
    CLEANUP_TOMB struct tomb t = {0};
    bool held, exists;
    int rc = hold_exists(s, op, id, &held, err);
    if (!rc && held)
        rc = error_set(err, CAIRN_BUSY, EBUSY, "it is held: release it first");
    if (!rc)
        rc = tomb_get_or_empty(s, op, id, &t, &exists, err);
    if (rc || tomb_has_gen(&t, gen))
        return rc;
    rc = tomb_add_gen(&t, gen, err);
    return rc ? rc : tomb_put(s, op, id, &t, err);
}

static int remove_locked(struct cairn_store *s, const struct cairn_op *op, const char *id,
                         const char *gen, bool committed_too, struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char current[GEN_TEXT], export[KEY_MAX], staged[KEY_MAX], trace[KEY_MAX];
    struct cairn_error e;
    int rc = store_get_meta(s, op, id, &meta, current, &e);
    if (rc && rc != CAIRN_NOT_FOUND && rc != CAIRN_CORRUPT)
        return error_pass(err, &e);
    bool committed = !rc && strcmp(current, gen) == 0;
    if (committed && !committed_too)
        return CAIRN_OK;
    rc = committed ? bury(s, op, id, gen, err) : CAIRN_OK;
    STEP("staged.buried");
    if (rc)
        return rc;
    layout_export(id, gen, export);
    layout_staged(id, gen, staged);
    layout_trace(id, gen, trace);
    const char *const keys[] = {staged, export, trace};
    rc = s->backend->ops->remove(s->backend, op, keys, ARRAY_SIZE(keys), NULL, err);
    shared_fetch_changed(s);
    return rc;
}

static int remove_generation(struct cairn_store *s, const struct cairn_op *op, const char *id,
                             const char *gen, bool committed_too, struct cairn_error *err)
{
    int lock = -1;
    int rc = id_check(id, err);
    if (!rc && !gen_is_valid(gen))
        rc = error_set(err, CAIRN_INVALID, EINVAL, "no name of a generation");
    if (!rc)
        rc = op_check(op, "remove", err);
    if (!rc)
        rc = store_check_writer(s, err);
    if (!rc)
        rc = lock_record(s, op, id, &lock, err);
    if (rc)
        return error_wrap(err, "remove a generation of %s", id_is_valid(id) ? id : "a record");
    rc = remove_locked(s, op, id, gen, committed_too, err);
    s->backend->ops->unlock(s->backend, id, lock);
    return rc ? error_wrap(err, "remove %s of %s", gen, id) : CAIRN_OK;
}

int staged_remove_generation(struct cairn_store *s, const struct cairn_op *op, const char *id,
                             const char *gen, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return remove_generation(s, op, id, gen, true, err);
}

int staged_drop(struct cairn_store *s, const struct cairn_op *op, const char *id, const char *gen,
                struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return remove_generation(s, op, id, gen, false, err);
}

/* ---- Digests --------------------------------------------------------------------------------- */

bool staged_digest_parse(const char *text, size_t len, uint8_t digest[SHA256_LEN])
{
    char hex[2 * SHA256_LEN + 1];
    if (len == DIGEST_TEXT && text[len - 1] == '\n')
        len--;
    if (len != DIGEST_TEXT - 1 || memcmp(text, "sha256:", 7) != 0)
        return false;
    memcpy(hex, text + 7, 2 * SHA256_LEN);
    hex[2 * SHA256_LEN] = 0;
    return util_unhex(hex, digest, SHA256_LEN);
}
