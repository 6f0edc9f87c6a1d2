/* Records, their manifests and what those refer to. */
#include "gc/roots.h"

#include "base/util.h"
#include "store/manifest.h"

#include <errno.h>
#include <string.h>

/* ---- One manifest ---- */

/* Whether the object still ends in the checksum that is remembered: one small read instead of a
 * whole manifest, on backends where that is cheap. */
static int check_trailer(struct gc_run *run, const char *key, const struct backend_stat *st,
                         const struct sweep_manifest *m, bool *same, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    uint8_t trailer[SHA256_LEN];
    *same = true;
    if (!b->ops->open_fd)
        return CAIRN_OK;
    if (st->size < SHA256_LEN) {
        *same = false;
        return CAIRN_OK;
    }
    struct cairn_error e;
    int rc = b->ops->read(b, run->op, key, st->size - SHA256_LEN, trailer, SHA256_LEN, &e);
    /* Gone, or shorter by now: the whole read will tell. */
    if (rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT) {
        *same = false;
        return CAIRN_OK;
    }
    if (rc)
        return error_pass(err, &e);
    *same = memcmp(trailer, m->trailer, SHA256_LEN) == 0;
    return CAIRN_OK;
}

/* Windows of 16 KiB in the first 2 MiB of a pack, of 168 KiB behind, of which there are 378. */
#define FINE        ((uint32_t)1 << 14)
#define FINE_COUNT  128u
#define COARSE      ((uint32_t)168 << 10)
#define FINE_LENGTH (FINE * FINE_COUNT)

static uint32_t window_of(uint32_t offset)
{
    uint32_t w =
        offset < FINE_LENGTH ? offset / FINE : FINE_COUNT + (offset - FINE_LENGTH) / COARSE;
    return w < SWEEP_WINDOWS ? w : SWEEP_WINDOWS - 1;
}

uint64_t roots_live(const struct roots_pack *p)
{
    uint64_t bytes = 0;
    for (uint32_t w = 0; w < SWEEP_WINDOWS; w++)
        if (p->windows[w / 64] >> w % 64 & 1)
            bytes += w < FINE_COUNT ? FINE : COARSE;
    return bytes < p->live_sum ? bytes : p->live_sum;
}

static int uses_of(const struct manifest *m, struct sweep_manifest *out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    size_t len;
    const uint8_t *data = manifest_bytes(m, &len);
    memcpy(out->trailer, data + len - SHA256_LEN, SHA256_LEN);
    out->n_uses = info->n_packs;
    out->uses = calloc(info->n_packs ? info->n_packs : 1, sizeof(*out->uses));
    if (!out->uses)
        return error_oom(err, "what a manifest refers to");
    for (uint32_t i = 0; i < info->n_packs; i++)
        memcpy(out->uses[i].pack, manifest_pack(m, i), PACK_ID_LEN);
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        struct sweep_use *use = &out->uses[manifest_chunk_pack(m, i)];
        use->live += roots_footprint(&c.loc);
        uint32_t last = window_of(c.loc.offset + c.loc.stored_len - 1);
        for (uint32_t w = window_of(c.loc.offset); w <= last; w++)
            use->windows[w / 64] |= (uint64_t)1 << w % 64;
    }
    return CAIRN_OK;
}

/* What a manifest refers to; *gone: it is not there any more. */
static int read_manifest(struct gc_run *run, const char *key, const char *id, const char *gen,
                         const struct backend_stat *st, struct sweep_manifest *out, bool *gone,
                         struct cairn_error *err)
{
    *gone = false;
    if (sweep_db_find_manifest(run->db, key, st, out)) {
        bool same;
        int rc = check_trailer(run, key, st, out, &same, err);
        if (rc || !same)
            sweep_manifest_release(out);
        if (rc || same)
            return rc;
    }
    CLEANUP_MANIFEST struct manifest *m = NULL;
    struct cairn_error e;
    int rc = store_load_manifest(run->s, run->op, id, gen, &m, &e);
    if (rc == CAIRN_NOT_FOUND) {
        /* Once more by another call: a "not there" is believed only when two agree. */
        bool there;
        rc = backend_exists(run->s->backend, run->op, key, &there, err);
        *gone = !there;
        return rc || !there ? rc
                            : error_set(err, CAIRN_TRANSIENT, EAGAIN,
                                        "%s is there and cannot be found", key);
    }
    if (rc)
        return error_pass(err, &e);
    rc = uses_of(m, out, err);
    if (!rc && gc_is_older(run, st->mtime_ns, ROOTS_SETTLED_NS))
        sweep_db_put_manifest(run->db, key, st, out);
    gc_progress(run, 0, st->size);
    return rc;
}

/* ---- Collecting ---- */

static int record_of(struct roots *r, const char *id, uint32_t *no, struct cairn_error *err)
{
    /* Keys come in order, so those of one record come together. */
    if (!r->n_records || strcmp(r->records[r->n_records - 1].id, id) != 0) {
        int rc = roots_room(&r->records, r->n_records, &r->cap_records, sizeof(*r->records), err);
        if (rc)
            return rc;
        struct roots_record *rec = &r->records[r->n_records++];
        *rec = (struct roots_record){.first = r->n_manifests};
        memcpy(rec->id, id, strlen(id) + 1);
        rec->pinned = roots_is_pinned(r, id, NULL);
    }
    *no = (uint32_t)r->n_records - 1;
    return CAIRN_OK;
}

static int add_uses(struct roots *r, struct roots_manifest *m, const struct sweep_manifest *from,
                    struct cairn_error *err)
{
    m->first_use = r->n_uses;
    for (uint32_t i = 0; i < from->n_uses; i++) {
        uint32_t no;
        int rc = roots_room(&r->uses, r->n_uses, &r->cap_uses, sizeof(*r->uses), err);
        if (!rc)
            rc = roots_pack_of(r, from->uses[i].pack, &no, err);
        if (rc)
            return rc;
        r->uses[r->n_uses++] = no;
        struct roots_pack *p = &r->packs[no];
        p->refs++;
        p->live_sum += from->uses[i].live;
        for (size_t k = 0; k < SWEEP_WINDOWS / 64; k++)
            p->windows[k] |= from->uses[i].windows[k];
        m->n_uses++;
    }
    return CAIRN_OK;
}

static int add_manifest(struct gc_run *run, struct roots *r, const struct backend_entry *e,
                        const struct layout_key *k, struct cairn_error *err)
{
    struct sweep_manifest found;
    struct backend_stat st = e->stat;
    char key[KEY_MAX];
    bool gone;
    uint32_t record;
    layout_export(k->id, k->gen, key);
    int rc = read_manifest(run, key, k->id, k->gen, &st, &found, &gone, err);
    if (rc || gone)
        return rc;
    rc = record_of(r, k->id, &record, err);
    if (!rc)
        rc = roots_room(&r->manifests, r->n_manifests, &r->cap_manifests, sizeof(*r->manifests),
                        err);
    if (!rc) {
        struct roots_manifest *m = &r->manifests[r->n_manifests++];
        *m = (struct roots_manifest){.record = record, .mtime_ns = st.mtime_ns, .size = st.size};
        memcpy(m->gen, k->gen, GEN_TEXT);
        m->pinned = roots_is_pinned(r, k->id, k->gen);
        r->records[record].n++;
        rc = add_uses(r, m, &found, err);
    }
    sweep_manifest_release(&found);
    return rc;
}

static int add_meta(struct gc_run *run, struct roots *r, const struct backend_entry *e,
                    const struct layout_key *k, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    struct backend_stat st = e->stat;
    char key[KEY_MAX], gen[GEN_TEXT];
    uint32_t no;
    layout_meta(k->id, key);
    if (!sweep_db_find_meta(run->db, key, &st, gen)) {
        CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
        struct cairn_error x;
        int rc = b->ops->get(b, run->op, key, META_MAX, &meta, &st, &x);
        if (rc == CAIRN_NOT_FOUND) {
            bool there;
            rc = backend_exists(b, run->op, key, &there, err);
            return rc || !there ? rc
                                : error_set(err, CAIRN_TRANSIENT, EAGAIN,
                                            "%s is there and cannot be found", key);
        }
        if (!rc)
            rc = gen_of_meta(meta.data, meta.len, gen, &x);
        if (rc)
            return error_set(err, rc, x.sys_errno, "%s: %s", key, x.message);
        if (gc_is_older(run, st.mtime_ns, ROOTS_SETTLED_NS))
            sweep_db_put_meta(run->db, key, &st, gen);
    }
    int rc = record_of(r, k->id, &no, err);
    if (rc)
        return rc;
    struct roots_record *rec = &r->records[no];
    rec->has_meta = true;
    rec->meta_ns = st.mtime_ns;
    memcpy(rec->gen, gen, GEN_TEXT);
    sweep_db_record(run->db, k->id);
    return CAIRN_OK;
}

static int add_staged(struct roots *r, const struct backend_entry *e, const struct layout_key *k,
                      struct cairn_error *err)
{
    uint32_t record;
    int rc = record_of(r, k->id, &record, err);
    if (!rc)
        rc = roots_room(&r->staged, r->n_staged, &r->cap_staged, sizeof(*r->staged), err);
    if (rc)
        return rc;
    struct roots_staged *s = &r->staged[r->n_staged++];
    *s = (struct roots_staged){.record = record, .mtime_ns = e->stat.mtime_ns};
    memcpy(s->gen, k->gen, GEN_TEXT);
    return CAIRN_OK;
}

/* Keys come in order: the manifests of a record before its traces. One whose manifest is not there
 * says nothing of the record, which may be gone for long. */
static int add_trace(struct roots *r, const struct backend_entry *e, const struct layout_key *k,
                     struct cairn_error *err)
{
    const struct roots_record *rec = r->n_records ? &r->records[r->n_records - 1] : NULL;
    if (rec && strcmp(rec->id, k->id) == 0)
        for (size_t i = rec->first; i < rec->first + rec->n; i++)
            if (strcmp(r->manifests[i].gen, k->gen) == 0) {
                r->manifests[i].traced = true;
                return CAIRN_OK;
            }
    char key[KEY_MAX];
    layout_trace(k->id, k->gen, key);
    return roots_add_object(&r->traces, key, k->id, e->stat.mtime_ns, err);
}

struct scan {
    struct gc_run *run;
    struct roots *r;
};

static int add(void *ctx, const struct backend_entry *e, const struct layout_key *k,
               struct cairn_error *err)
{
    struct scan *s = ctx;
    gc_progress(s->run, 1, 0);
    switch (k->kind) {
    case LAYOUT_KIND_EXPORT:
        return add_manifest(s->run, s->r, e, k, err);
    case LAYOUT_KIND_META:
        return add_meta(s->run, s->r, e, k, err);
    case LAYOUT_KIND_STAGED:
        return add_staged(s->r, e, k, err);
    case LAYOUT_KIND_TRACE:
        return add_trace(s->r, e, k, err);
    default:
        return CAIRN_OK;
    }
}

/* Staged metas go to their manifests; those without one stay. */
static void match_staged(struct roots *r)
{
    size_t left = 0;
    for (size_t i = 0; i < r->n_staged; i++) {
        const struct roots_record *rec = &r->records[r->staged[i].record];
        bool found = false;
        for (size_t j = rec->first; !found && j < rec->first + rec->n; j++)
            if (strcmp(r->manifests[j].gen, r->staged[i].gen) == 0)
                found = r->manifests[j].staged = true;
        if (!found)
            r->staged[left++] = r->staged[i];
    }
    r->n_staged = left;
}

static void match_committed(struct roots *r)
{
    for (size_t i = 0; i < r->n_manifests; i++) {
        struct roots_manifest *m = &r->manifests[i];
        const struct roots_record *rec = &r->records[m->record];
        m->committed = rec->has_meta && strcmp(m->gen, rec->gen) == 0;
        for (uint32_t u = 0; m->committed && u < m->n_uses; u++)
            r->packs[r->uses[m->first_use + u]].committed = true;
    }
}

int roots_scan_records(struct gc_run *run, struct roots *r, struct cairn_error *err)
{
    struct scan s = {run, r};
    int rc = gc_each(run, LAYOUT_RECORDS, add, &s, err);
    if (rc)
        return rc;
    match_staged(r);
    match_committed(r);
    return CAIRN_OK;
}
