#include "base/util.h"
#include "store/chunk_io.h"
#include "store/index_build.h"
#include "store/listing.h"
#include "store/manifest.h"
#include "store/pack_set.h"
#include "store/seen.h"
#include "store/store.h"
#include "store/tomb.h"
#include "store/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_CHUNKS 32

struct verify;

struct task {
    struct chunk chunk;
    uint8_t xxh[XXH3_LEN]; /* zero: not known */
    uint32_t plain_len;    /* 0: not known */
    int rc;
    struct cairn_error err;
};

/* Chunks to be read by one worker. Owned by the caller's thread, but by a pool thread between
 * pool_submit and pool_wait. */
struct batch {
    struct pool_work work;
    struct verify *v;
    bool submitted;
    uint32_t n;
    struct task tasks[BATCH_CHUNKS];
    uint8_t *plain;
};

struct verify {
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct cairn_verify_options *opt;
    struct cairn_verify_result *result;
    struct cairn_error *err;
    struct seen seen; /* what was checked: chunks and claims about them, see claim_key */
    struct seen bad;  /* claims that do not hold */
    struct batch *ring;
    size_t ring_n, head, used;
    struct batch *filling;   /* &ring[(head + used) % ring_n], or NULL */
    struct pack_set missing; /* packs reported for the record under way */
    bool records_phase;      /* records are checked, not packs */
    const char *object;      /* what needs the chunks under way, for messages */
    uint64_t done, total;
};

static void found(struct verify *v, int error_class, const char *object, const char *message)
{
    if (error_class == CAIRN_OK)
        v->result->unknown_keys++;
    else
        v->result->errors++;
    if (v->opt->found)
        v->opt->found(v->opt->ctx, error_class, object, message);
}

/* Faults of the store are findings; what keeps the check itself from going on is an error. */
static bool is_finding(int rc)
{
    return rc == CAIRN_CORRUPT || rc == CAIRN_NOT_FOUND || rc == CAIRN_PERMANENT;
}

/* e as a finding about object, or passed on. */
static int finding(struct verify *v, int rc, const struct cairn_error *e, const char *object)
{
    if (!is_finding(rc))
        return error_set(v->err, rc, e->sys_errno, "%s: %s", object, e->message);
    found(v, rc, object, e->message);
    return CAIRN_OK;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* A chunk that was checked once need not be read for the next manifest that says the same of it. A
 * manifest that says anything else (another SHA-256 of the same place, say) is not helped by that.
 * What is also said of the chunk, t->xxh and t->plain_len, is in the key with whole. The set takes
 * it in place of the name of a pack. */
static void claim_key(const struct verify *v, const struct task *t, bool whole,
                      uint8_t out[PACK_ID_LEN])
{
    struct {
        uint8_t sha[SHA256_LEN], base_sha[SHA256_LEN];
        uint8_t pack[PACK_ID_LEN], base_pack[PACK_ID_LEN];
        uint8_t numbers[5][4], xxh[XXH3_LEN];
    } k = {0};
    const struct chunk_loc *loc = &t->chunk.loc, *base = &t->chunk.base;
    memcpy(k.sha, t->chunk.sha, SHA256_LEN);
    memcpy(k.pack, loc->pack, PACK_ID_LEN);
    put_le32(k.numbers[0], loc->offset);
    put_le32(k.numbers[1], loc->stored_len | (uint32_t)loc->encoding << 24);
    if (loc->encoding == CHUNK_ZSTD_BASE) {
        memcpy(k.base_sha, t->chunk.base_sha, SHA256_LEN);
        memcpy(k.base_pack, base->pack, PACK_ID_LEN);
        put_le32(k.numbers[2], base->offset);
        put_le32(k.numbers[3], base->stored_len | (uint32_t)base->encoding << 24);
    }
    if (whole) {
        put_le32(k.numbers[4], t->plain_len);
        memcpy(k.xxh, t->xxh, XXH3_LEN);
    }
    _Static_assert(XXH3_LEN == PACK_ID_LEN, "a hash is as long as a name");
    hash_xxh3(v->s->format.secret, &k, sizeof(k), out);
}

/* *fresh: something is said of the chunk that nobody said before. */
static int add_claims(struct verify *v, const struct task *t, bool *fresh)
{
    uint8_t key[PACK_ID_LEN];
    bool fresh_whole = false;
    claim_key(v, t, false, key);
    int rc = seen_add(&v->seen, key, 0, fresh, v->err);
    if (!rc && (t->plain_len || !util_is_zero(t->xxh, XXH3_LEN)) && v->records_phase) {
        claim_key(v, t, true, key);
        rc = seen_add(&v->seen, key, 0, &fresh_whole, v->err);
    }
    *fresh |= fresh_whole;
    return rc;
}

static void check_chunk(struct batch *b, struct chunk_ctx *ctx, struct task *t)
{
    struct cairn_store *s = b->v->s;
    size_t len;
    t->rc = chunk_read(s, b->v->op, ctx, &t->chunk, NULL, b->plain, s->format.chunk_size, 0, &len,
                       &t->err);
    if (!t->rc && t->plain_len && len != t->plain_len)
        t->rc = error_set(&t->err, CAIRN_CORRUPT, EIO,
                          "a chunk of %zu bytes is said to have %u of them", len, t->plain_len);
    if (t->rc || util_is_zero(t->xxh, XXH3_LEN))
        return;
    uint8_t sum[XXH3_LEN];
    hash_xxh3(s->format.secret, b->plain, len, sum);
    if (memcmp(sum, t->xxh, XXH3_LEN) != 0)
        t->rc = error_set(&t->err, CAIRN_CORRUPT, EIO,
                          "the manifest has another XXH3 for a chunk whose SHA-256 is right");
}

static void task_at(const void *tasks, uint32_t i, struct chunk_loc *out)
{
    *out = ((const struct task *)tasks)[i].chunk.loc;
}

static void run_batch(struct pool_work *work, unsigned worker)
{
    (void)worker;
    struct batch *b = (struct batch *)((char *)work - offsetof(struct batch, work));
    struct chunk_ctx *ctx = NULL;
    struct cairn_error err;
    int rc = op_check(b->v->op, "verify", &err);
    if (!rc)
        rc = chunk_ctx_get(b->v->s, &ctx, &err);
    for (uint32_t i = 0; i < b->n; i++) {
        struct task *t = &b->tasks[i];
        if (!rc) {
            chunk_read_ahead(b->v->s, b->v->op, ctx, task_at, b->tasks, i, b->n);
            check_chunk(b, ctx, t);
        } else {
            t->rc = rc;
            t->err = err;
        }
    }
    chunk_ctx_put(b->v->s, ctx);
}

static int take_task(struct verify *v, const struct task *t)
{
    v->result->checked_chunks++;
    v->result->checked_bytes += t->chunk.loc.stored_len;
    v->done += t->chunk.loc.stored_len;
    if (!t->rc)
        return CAIRN_OK;
    bool ignored;
    uint8_t claim[PACK_ID_LEN];
    claim_key(v, t, true, claim);
    int rc = seen_add(&v->bad, claim, 0, &ignored, v->err);
    if (rc)
        return rc;
    /* A pack that is gone is named once for each record, not once for each chunk. */
    if (t->rc == CAIRN_NOT_FOUND) {
        if (pack_set_has(&v->missing, t->chunk.loc.pack))
            return CAIRN_OK;
        rc = pack_set_add(&v->missing, t->chunk.loc.pack, v->err);
        if (rc)
            return rc;
    }
    return finding(v, t->rc, &t->err, v->object);
}

/* A chunk that was checked for another record before: this one suffers from it as well. */
static void add_known_chunk(struct verify *v, const struct task *t)
{
    uint8_t claim[PACK_ID_LEN];
    claim_key(v, t, true, claim);
    /* Once for each pack: a record that shares a damaged pack shares much of it. */
    if (!v->records_phase || !seen_has(&v->bad, claim, 0) ||
        pack_set_has(&v->missing, t->chunk.loc.pack) ||
        pack_set_add(&v->missing, t->chunk.loc.pack, NULL))
        return;
    char key[KEY_MAX], text[KEY_MAX + 64];
    layout_pack(t->chunk.loc.pack, key);
    snprintf(text, sizeof(text), "%s, offset %u: damaged or gone, as told above", key,
             t->chunk.loc.offset);
    found(v, CAIRN_CORRUPT, v->object, text);
}

static int take_oldest(struct verify *v)
{
    struct batch *b = &v->ring[v->head];
    pool_wait(&b->work);
    b->submitted = false;
    v->head = (v->head + 1) % v->ring_n;
    v->used--;
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < b->n; i++)
        rc = take_task(v, &b->tasks[i]);
    if (v->opt->progress.report)
        v->opt->progress.report(v->opt->progress.ctx, v->done,
                                v->done > v->total ? v->done : v->total);
    return rc;
}

static void submit(struct verify *v)
{
    struct batch *b = v->filling;
    v->filling = NULL;
    b->work.run = run_batch;
    b->submitted = true;
    v->used++;
    pool_submit(v->s->pool, &b->work);
}

static int add_chunk(struct verify *v, const struct task *task)
{
    bool fresh;
    int rc = add_claims(v, task, &fresh);
    if (!rc && !fresh)
        add_known_chunk(v, task);
    if (rc || !fresh)
        return rc;
    if (!v->filling) {
        rc = v->used == v->ring_n ? take_oldest(v) : CAIRN_OK;
        if (rc)
            return rc;
        v->filling = &v->ring[(v->head + v->used) % v->ring_n];
        v->filling->n = 0;
    }
    v->filling->tasks[v->filling->n++] = *task;
    if (v->filling->n == BATCH_CHUNKS)
        submit(v);
    return CAIRN_OK;
}

/* Until every chunk added so far was checked: then the object they belong to may change. */
static int finish_chunks(struct verify *v)
{
    if (v->filling)
        submit(v);
    int rc = CAIRN_OK;
    while (!rc && v->used)
        rc = take_oldest(v);
    return rc;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* How long each chunk is by the places that hold it; 0 where it is only a base. Its places agree,
 * as the manifest was loaded. Runs are counted by their two ends: linear, whatever they claim. */
static int plain_lengths(const struct manifest *m, uint32_t **out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    CLEANUP_FREE uint32_t *step = calloc((size_t)info->n_chunks + 1, sizeof(*step));
    CLEANUP_FREE uint32_t *plain = calloc((size_t)info->n_chunks + 1, sizeof(*plain));
    if (!step || !plain)
        return error_oom(err, "lengths of chunks");
    for (uint32_t i = 0; i < info->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        for (uint32_t x = 0; x < f.n_extents; x++) {
            struct manifest_extent e;
            manifest_extent(m, f.first_extent + x, &e);
            uint64_t last = (e.chunk_no + e.count - 1) * info->chunk_size;
            uint32_t full = e.count;
            if (f.size - last < info->chunk_size)
                plain[e.first + --full] = (uint32_t)(f.size - last);
            step[e.first]++;
            step[e.first + full]--;
        }
    }
    for (uint32_t i = 0, holders = 0; i < info->n_chunks; i++) {
        holders += step[i];
        if (holders)
            plain[i] = info->chunk_size;
    }
    *out = util_steal(&plain);
    return CAIRN_OK;
}

static int check_manifest_chunks(struct verify *v, const struct manifest *m)
{
    CLEANUP_FREE uint32_t *plain = NULL;
    int rc = plain_lengths(m, &plain, v->err);
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_chunks; i++) {
        struct task t = {.plain_len = plain[i]};
        manifest_chunk(m, i, &t.chunk);
        memcpy(t.xxh, manifest_chunk_xxh(m, i), XXH3_LEN);
        rc = add_chunk(v, &t);
    }
    return rc ? rc : finish_chunks(v);
}

/* The manifest of one generation. Of a generation that is not committed only the manifest is
 * checked: its packs may rightly be gone. */
static int check_export(struct verify *v, const char *id, const char *gen, bool committed)
{
    char key[KEY_MAX];
    layout_export(id, gen, key);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    struct cairn_error e;
    int rc = store_load_manifest(v->s, v->op, id, gen, &m, &e);
    if (!rc)
        rc = manifest_check_content(m, v->op, &e);
    if (rc == CAIRN_NOT_FOUND && !committed)
        return CAIRN_OK; /* removed meanwhile */
    if (rc)
        return finding(v, rc, &e, key);
    v->object = key;
    pack_set_release(&v->missing);
    rc = committed ? check_manifest_chunks(v, m) : CAIRN_OK;
    v->object = "";
    return rc;
}

static int check_record(struct verify *v, const char *id, bool must_exist)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT], key[KEY_MAX];
    struct cairn_error e;
    layout_meta(id, key);
    int rc = op_check(v->op, "verify", v->err);
    if (rc)
        return rc;
    rc = store_get_meta(v->s, v->op, id, &meta, gen, &e);
    if (rc == CAIRN_NOT_FOUND && !must_exist)
        return CAIRN_OK;
    if (rc == CAIRN_NOT_FOUND)
        return error_set(v->err, rc, ENOENT, "%s", e.message);
    v->result->checked_records++;
    if (rc)
        return finding(v, rc, &e, key);
    CLEANUP_TOMB struct tomb t = {0};
    rc = tomb_get(v->s, v->op, id, &t, &e);
    if (!rc && tomb_has_gen(&t, gen))
        return CAIRN_OK; /* being removed */
    if (rc && rc != CAIRN_NOT_FOUND)
        return finding(v, rc, &e, key);
    return check_export(v, id, gen, true);
}

/* Nothing depends on a trace: what a good one says, and whether its generation is there, does not
 * matter. */
static int check_trace(struct verify *v, const struct layout_key *k)
{
    CLEANUP_TRACE struct trace t = {0};
    char key[KEY_MAX];
    struct cairn_error e;
    layout_trace(k->id, k->gen, key);
    int rc = trace_get(v->s, v->op, k->id, k->gen, NULL, &t, &e);
    return rc && rc != CAIRN_NOT_FOUND ? finding(v, rc, &e, key) : CAIRN_OK;
}

/* gen: "" where there is none. key: at which it is found that it cannot be told. */
static int committed_gen(struct verify *v, const char *id, const char *key, char gen[GEN_TEXT])
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    struct cairn_error e;
    int rc = store_get_meta(v->s, v->op, id, &meta, gen, &e);
    if (rc)
        gen[0] = 0;
    /* What is wrong with the bytes of meta.json is said when its turn comes. */
    return !rc || rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT ? CAIRN_OK : finding(v, rc, &e, key);
}

static int check_records(struct verify *v)
{
    CLEANUP_LISTING struct listing l;
    /* A record's exports are listed before its meta.json. */
    char id[ID_MAX + 1] = "", committed[GEN_TEXT] = "";
    int rc = listing_open(&l, v->s->backend, v->op, LAYOUT_RECORDS, "", v->err);
    while (listing_next(&l, &rc, v->err)) {
        const struct layout_key *k = &l.key;
        if (k->kind == LAYOUT_KIND_EXPORT && strcmp(id, k->id) != 0) {
            memcpy(id, k->id, sizeof(id));
            rc = committed_gen(v, id, l.entry.key, committed);
        }
        if (!rc && k->kind == LAYOUT_KIND_META)
            rc = check_record(v, k->id, false);
        else if (!rc && k->kind == LAYOUT_KIND_EXPORT && strcmp(committed, k->gen) != 0)
            rc = check_export(v, k->id, k->gen, false);
        else if (!rc && k->kind == LAYOUT_KIND_TRACE)
            rc = check_trace(v, k);
    }
    return rc;
}

/* ---- Packs ----------------------------------------------------------------------------------- */

/* The entries of a pack that may be bases, in the order of their SHA-256. */
struct bases {
    const struct pack_entry **by_sha; /* owned */
    uint32_t n;
};

static int compare_sha(const void *a, const void *b)
{
    const struct pack_entry *const *x = a, *const *y = b;
    return memcmp((*x)->sha, (*y)->sha, SHA256_LEN);
}

static int bases_init(struct bases *b, const struct pack_entry *entries, uint32_t n,
                      struct cairn_error *err)
{
    *b = (struct bases){.by_sha = calloc((size_t)n + 1, sizeof(*b->by_sha))};
    if (!b->by_sha)
        return error_oom(err, "bases of a pack");
    for (uint32_t i = 0; i < n; i++)
        if (entries[i].encoding != CHUNK_ZSTD_BASE)
            b->by_sha[b->n++] = &entries[i];
    qsort(b->by_sha, b->n, sizeof(*b->by_sha), compare_sha);
    return CAIRN_OK;
}

static struct chunk_loc entry_loc(const struct pack_entry *e, const uint8_t pack[PACK_ID_LEN])
{
    struct chunk_loc loc = {.offset = e->offset,
                            .stored_len = e->stored_len,
                            .plain_len = e->plain_len,
                            .encoding = e->encoding};
    memcpy(loc.pack, pack, PACK_ID_LEN);
    return loc;
}

/* The chunk that an entry of a pack's index describes. False where its base is not to be found,
 * which only happens to a chunk that no manifest names. */
static bool entry_chunk(struct verify *v, const uint8_t pack[PACK_ID_LEN],
                        const struct bases *bases, const struct pack_entry *e, struct chunk *out)
{
    *out = (struct chunk){.loc = entry_loc(e, pack)};
    memcpy(out->sha, e->sha, SHA256_LEN);
    if (e->encoding != CHUNK_ZSTD_BASE)
        return true;
    memcpy(out->base_sha, e->base_sha, SHA256_LEN);
    struct pack_entry wanted;
    memcpy(wanted.sha, e->base_sha, SHA256_LEN);
    const struct pack_entry *key = &wanted, *const *found =
                                                bsearch(&key, bases->by_sha, bases->n,
                                                        sizeof(*bases->by_sha), compare_sha);
    if (found) {
        out->base = entry_loc(*found, pack);
        return true;
    }
    struct chunk base;
    struct cairn_error ignored;
    if (!v->s->index || index_lookup(v->s->index, e->base_sha, &base, &ignored) ||
        base.loc.encoding == CHUNK_ZSTD_BASE)
        return false;
    out->base = base.loc;
    return true;
}

static int check_entries(struct verify *v, const uint8_t pack[PACK_ID_LEN],
                         const struct pack_entry *entries, uint32_t n)
{
    struct bases bases;
    int rc = bases_init(&bases, entries, n, v->err);
    for (uint32_t i = 0; !rc && i < n; i++) {
        struct task t = {.plain_len = entries[i].plain_len};
        rc = op_check(v->op, "verify", v->err);
        if (!rc && entry_chunk(v, pack, &bases, &entries[i], &t.chunk))
            rc = add_chunk(v, &t);
    }
    free(bases.by_sha);
    return rc ? rc : finish_chunks(v);
}

static int check_pack(struct verify *v, const char *key, const uint8_t pack[PACK_ID_LEN],
                      uint64_t size)
{
    CLEANUP_FREE struct pack_entry *entries = NULL;
    uint32_t n = 0;
    struct cairn_error e;
    int rc = index_read_pack(v->s, v->op, pack, size, &entries, &n, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK; /* removed meanwhile */
    v->result->checked_packs++;
    if (rc)
        return finding(v, rc, &e, key);
    v->object = key;
    pack_set_release(&v->missing);
    rc = check_entries(v, pack, entries, n);
    v->object = "";
    return rc;
}

/* Every key of the store: packs are checked, foreign ones named. */
static int check_keys(struct verify *v, bool packs)
{
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, v->s->backend, v->op, packs ? LAYOUT_PACKS : "", "", v->err);
    while (listing_next(&l, &rc, v->err)) {
        if (packs && l.key.kind == LAYOUT_KIND_PACK)
            rc = check_pack(v, l.entry.key, l.key.pack, l.entry.stat.size);
        else if (!packs && l.key.kind == LAYOUT_KIND_UNKNOWN)
            found(v, CAIRN_OK, l.entry.key, "not a key of Cairn's: ignored");
    }
    return rc;
}

static int sum_packs(struct verify *v)
{
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, v->s->backend, v->op, LAYOUT_PACKS, "", v->err);
    while (listing_next(&l, &rc, v->err))
        v->total += l.entry.stat.size;
    return rc;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int allocate(struct verify *v)
{
    v->ring_n = 2 * pool_workers(v->s->pool);
    v->ring = calloc(v->ring_n, sizeof(v->ring[0]));
    if (!v->ring)
        return error_oom(v->err, "verify");
    for (size_t i = 0; i < v->ring_n; i++) {
        v->ring[i].v = v;
        v->ring[i].plain = malloc(v->s->format.chunk_size);
        if (!v->ring[i].plain)
            return error_oom(v->err, "verify");
    }
    return CAIRN_OK;
}

static void release(struct verify *v)
{
    for (size_t i = 0; v->ring && i < v->ring_n; i++) {
        if (v->ring[i].submitted)
            pool_wait(&v->ring[i].work);
        free(v->ring[i].plain);
    }
    free(v->ring);
    seen_release(&v->seen);
    seen_release(&v->bad);
    pack_set_release(&v->missing);
}

static int run(struct verify *v)
{
    const struct cairn_verify_options *opt = v->opt;
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < opt->n_ids; i++)
        rc = id_check(opt->ids[i], v->err);
    if (!rc && opt->repair_index)
        rc = index_build(v->s, v->op, true, v->err);
    v->records_phase = true;
    for (size_t i = 0; !rc && i < opt->n_ids; i++)
        rc = check_record(v, opt->ids[i], true);
    if (rc || opt->n_ids)
        return rc;
    rc = sum_packs(v);
    if (!rc)
        rc = check_records(v);
    v->records_phase = false;
    if (!rc)
        rc = check_keys(v, true);
    if (!rc)
        rc = check_keys(v, false);
    return rc;
}

int cairn_verify(struct cairn_store *s, const struct cairn_op *op,
                 const struct cairn_verify_options *options, struct cairn_verify_result *result,
                 struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    static const struct cairn_verify_options everything;
    if (!options)
        options = &everything;
    *result = (struct cairn_verify_result){0};
    struct verify v = {
        .s = s, .op = op, .opt = options, .result = result, .err = err, .object = ""};
    int rc = op_check(op, "verify", err);
    if (!rc)
        rc = allocate(&v);
    if (!rc)
        rc = run(&v);
    release(&v);
    return rc ? error_wrap(err, "verify") : CAIRN_OK;
}
