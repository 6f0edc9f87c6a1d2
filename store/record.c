#include "store/record.h"

#include "base/util.h"
#include "store/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* m is transferred. */
static int take_manifest(struct cairn_record *r, struct manifest *m, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    atomic_store(&r->manifest, m);
    if (info->has_digest)
        digest_text(info->digest, r->digest);
    r->paths = calloc(info->n_files ? info->n_files : 1, sizeof(r->paths[0]));
    if (!r->paths)
        return error_oom(err, "record");
    for (uint32_t i = 0; i < info->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        r->paths[i] = strndup(f.path, f.path_len);
        if (!r->paths[i])
            return error_oom(err, "record");
    }
    return CAIRN_OK;
}

/* gen: NULL for the committed generation. */
static int open_record(struct cairn_store *store, const struct cairn_op *op, const char *id,
                       const char *gen, struct cairn_record **out, struct cairn_error *err)
{
    int rc = id_check(id, err);
    if (!rc)
        rc = op_check(op, "open", err);
    if (rc)
        return rc;
    struct cairn_record *r = calloc(1, sizeof(*r));
    if (!r)
        return error_oom(err, "record");
    pthread_mutex_init(&r->reload_lock, NULL);
    pthread_mutex_init(&r->ahead_lock, NULL);
    r->store = store;
    r->meta = BUF_INIT(META_MAX);
    memcpy(r->id, id, strlen(id) + 1);
    struct manifest *m = NULL;
    if (gen) {
        memcpy(r->gen, gen, GEN_TEXT);
        rc = store_load_manifest(store, op, id, gen, &m, err);
    } else {
        rc = store_load(store, op, id, &r->meta, r->gen, &m, err);
    }
    if (!rc)
        rc = take_manifest(r, m, err);
    if (!rc)
        rc = keeper_hold(store, id, r->gen, m, &r->hold, err);
    if (rc) {
        cairn_record_close(r);
        return error_wrap(err, "open %s", id);
    }
    *out = r;
    return CAIRN_OK;
}

int cairn_record_open(struct cairn_store *store, const struct cairn_op *op, const char *id,
                      struct cairn_record **out, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return open_record(store, op, id, NULL, out, err);
}

int record_open_generation(struct cairn_store *store, const struct cairn_op *op, const char *id,
                           const char *gen, struct cairn_record **out, struct cairn_error *err)
{
    return open_record(store, op, id, gen, out, err);
}

void cairn_record_close(struct cairn_record *r)
{
    if (!r)
        return;
    keeper_release(r->store, r->hold);
    struct manifest *m = atomic_load(&r->manifest);
    for (uint32_t i = 0; m && r->paths && i < manifest_info(m)->n_files; i++)
        free(r->paths[i]);
    free(r->paths);
    manifest_free(m);
    for (size_t i = 0; i < r->n_old; i++)
        manifest_free(r->old[i]);
    free(r->old);
    buf_release(&r->meta);
    pthread_mutex_destroy(&r->reload_lock);
    pthread_mutex_destroy(&r->ahead_lock);
    free(r);
}

int record_reload(struct cairn_record *r, const struct cairn_op *op, const struct manifest *seen,
                  struct cairn_error *err)
{
    if (atomic_load(&r->manifest) != seen)
        return CAIRN_OK;
    struct manifest *m = NULL;
    int rc = store_load_manifest(r->store, op, r->id, r->gen, &m, err);
    if (rc)
        return rc;
    size_t old_len, new_len;
    const uint8_t *was = manifest_bytes(seen, &old_len), *is = manifest_bytes(m, &new_len);
    if ((old_len == new_len && memcmp(was, is, old_len) == 0) || !manifest_same_export(seen, m)) {
        manifest_free(m);
        return error_set(err, CAIRN_CORRUPT, EIO,
                         "%s, generation %s: a pack that its manifest names is gone", r->id,
                         r->gen);
    }
    rc = keeper_hold_more(r->store, r->hold, m, err);
    if (rc) {
        manifest_free(m);
        return rc;
    }
    pthread_mutex_lock(&r->reload_lock);
    struct manifest *mine = m;
    if (atomic_load(&r->manifest) == seen) {
        struct manifest **old = reallocarray(r->old, r->n_old + 1, sizeof(*old));
        if (old) {
            r->old = old;
            r->old[r->n_old++] = atomic_exchange(&r->manifest, m);
            mine = NULL;
        } else {
            rc = error_oom(err, "record");
        }
    }
    pthread_mutex_unlock(&r->reload_lock);
    manifest_free(mine);
    return rc;
}

void cairn_record_info(const struct cairn_record *r, struct cairn_record_info *out)
{
    const struct manifest_info *info = manifest_info(atomic_load(&r->manifest));
    *out = (struct cairn_record_info){.id = r->id,
                                      .gen = r->gen,
                                      .parent_id = info->parent_id,
                                      .parent_gen = info->parent_gen,
                                      .digest = r->digest,
                                      .meta = r->meta.data ? (void *)r->meta.data : "",
                                      .meta_len = r->meta.len,
                                      .created_ns = info->created_ns,
                                      .logical_bytes = info->logical_bytes,
                                      .data_bytes = info->data_bytes,
                                      .stored_bytes = info->stored_bytes,
                                      .files = info->n_files,
                                      .chunks = info->n_chunks};
}

void cairn_record_file(const struct cairn_record *r, uint64_t i, struct cairn_file *out)
{
    struct manifest_file f;
    manifest_file(atomic_load(&r->manifest), (uint32_t)i, &f);
    *out = (struct cairn_file){.path = r->paths[i], .size = f.size, .data_bytes = f.data_bytes};
}

int64_t cairn_record_find(const struct cairn_record *r, const char *path)
{
    return manifest_find(atomic_load(&r->manifest), path, strlen(path));
}

uint64_t cairn_record_seek(const struct cairn_record *r, uint64_t i, uint64_t offset, bool hole)
{
    const struct manifest *m = atomic_load(&r->manifest);
    struct manifest_file f;
    manifest_file(m, (uint32_t)i, &f);
    uint32_t cs = r->store->format.chunk_size;
    while (offset < f.size) {
        uint64_t no = offset / cs, run;
        uint32_t index;
        bool is_hole = !manifest_lookup(m, &f, no, &index, &run);
        if (is_hole == hole)
            return offset;
        if (run > (f.size - no * cs) / cs)
            break;
        offset = (no + run) * cs;
    }
    return f.size;
}
