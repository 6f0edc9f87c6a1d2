#include "fuse/records.h"

#include "base/clock.h"
#include "base/util.h"
#include "fuse/generation.h"
#include "fuse/ops.h"
#include "store/listing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define BUCKETS  1024u /* a power of two */
#define KEEP_MAX 16384u
/* Metas up to this are kept with what is known of their record. */
#define META_KEEP ((size_t)4096)
#define LONG_AGO  (INT64_MIN / 2)
/* An object written so shortly before it was looked at may be written again within the same tick of
 * the clock that its stamp comes from: equal stamps then prove nothing. */
#define RACY_NS (2 * NS_PER_S)

struct entry {
    char id[ID_MAX + 1];
    struct record_now now;
    int64_t checked_ns;       /* CLOCK_MONOTONIC; LONG_AGO: not believed any more */
    uint64_t epoch;           /* of the table, when the look began that gave this */
    struct backend_stat stat; /* of meta.json, while there is one */
    bool racy;
    void *meta; /* owned; NULL: not kept */
    struct entry *next;
};

struct records {
    pthread_mutex_t lock;
    struct entry *buckets[BUCKETS]; /* guarded by lock, as is all below */
    size_t n;
    uint64_t epoch; /* grows with each change made here: an older look is not believed */
};

int records_new(struct records **out, struct cairn_error *err)
{
    struct records *r = calloc(1, sizeof(*r));
    if (!r)
        return error_oom(err, "records");
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return CAIRN_OK;
}

static void entry_free(struct entry *e)
{
    free(e->meta);
    free(e);
}

void records_free(struct records *r)
{
    if (!r)
        return;
    for (size_t b = 0; b < BUCKETS; b++)
        while (r->buckets[b]) {
            struct entry *e = r->buckets[b];
            r->buckets[b] = e->next;
            entry_free(e);
        }
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static struct entry **find_locked(struct records *r, const char *id)
{
    uint32_t h = 2166136261u;
    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    struct entry **at = &r->buckets[(h ^ h >> 15) & (BUCKETS - 1)];
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

/* Too many: those go that would be asked again anyway. */
static void trim_locked(struct records *r)
{
    int64_t now = clock_monotonic();
    for (size_t b = 0; b < BUCKETS; b++)
        for (struct entry **at = &r->buckets[b]; *at;) {
            struct entry *e = *at;
            if (now - e->checked_ns < MOUNT_RECORD_FRESH_NS) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            entry_free(e);
            r->n--;
        }
}

/* A look at the store, without a lock. old: what was known (its meta is not filled); *meta (owned):
 * new bytes, NULL where they are as before. */
struct look {
    struct record_now now;
    struct backend_stat stat;
    bool racy;
    struct buf meta;
};

static bool same_object(const struct backend_stat *a, const struct backend_stat *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && strcmp(a->etag, b->etag) == 0;
}

static bool is_racy(const struct backend_stat *st)
{
    int64_t age = clock_realtime() - st->mtime_ns;
    return !st->etag[0] && age < RACY_NS && age > -RACY_NS;
}

/* Whether there is anything of the record where there is no meta.json: a generation that is being
 * published, or is left. */
static int look_for_exports(struct mount *m, const struct cairn_op *op, const char *id,
                            bool *exists, struct cairn_error *err)
{
    char prefix[KEY_MAX];
    CLEANUP_LISTING struct listing l;
    layout_record(id, prefix);
    int rc = listing_open(&l, m->store->backend, op, prefix, "", err);
    *exists = false;
    while (!*exists && listing_next(&l, &rc, err))
        *exists = l.key.kind == LAYOUT_KIND_EXPORT || l.key.kind == LAYOUT_KIND_META;
    return rc;
}

static int has_manifest(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                        bool *exists, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_export(id, gen, key);
    return backend_exists(m->store->backend, op, key, exists, err);
}

/* known: meta.json was this object then; NULL: nothing is known. */
static int look(struct mount *m, const struct cairn_op *op, const char *id,
                const struct record_now *before, const struct backend_stat *known, struct look *out,
                struct cairn_error *err)
{
    char key[KEY_MAX];
    struct backend *b = m->store->backend;
    layout_meta(id, key);
    int rc = CAIRN_OK;
    if (known) {
        rc = b->ops->stat(b, op, key, &out->stat, err);
        if (!rc && same_object(&out->stat, known)) {
            out->now = *before;
            out->racy = is_racy(&out->stat);
            /* A look at the manifest costs a request of its own where it is far away, and only says
             * whether a removal has begun, which ends with meta.json. */
            return m->remote && before->committed
                       ? CAIRN_OK
                       : has_manifest(m, op, id, before->gen, &out->now.committed, err);
        }
    }
    if (!rc)
        rc = b->ops->get(b, op, key, META_MAX, &out->meta, &out->stat, err);
    if (rc == CAIRN_NOT_FOUND)
        return look_for_exports(m, op, id, &out->now.exists, err);
    out->now.exists = true;
    /* What is no meta names no generation: it is there, and reading it says why not. */
    out->now.unreadable = rc == CAIRN_CORRUPT;
    if (rc)
        return rc == CAIRN_CORRUPT ? CAIRN_OK : rc;
    out->racy = is_racy(&out->stat);
    out->now.meta_mtime_ns = out->stat.mtime_ns;
    out->now.meta_size = out->stat.size;
    rc = gen_of_meta(out->meta.data, out->meta.len, out->now.gen, err);
    return rc ? rc : has_manifest(m, op, id, out->now.gen, &out->now.committed, err);
}

/* Whether meta.json is not the object any more that was known. It may name the same generation all
 * the same: of a record that was removed meanwhile, and published anew with other files. */
static bool is_another(const struct entry *e, const struct look *l)
{
    return strcmp(e->now.gen, l->now.gen) != 0 || e->now.committed != l->now.committed ||
           (l->now.gen[0] && !same_object(&e->stat, &l->stat));
}

/* Keep what was found, unless something was changed here since the look began. changed: something
 * else is committed than was known before. */
static void keep(struct records *r, const char *id, struct look *l, uint64_t epoch, bool *changed)
{
    pthread_mutex_lock(&r->lock);
    struct entry **at = find_locked(r, id), *e = *at;
    *changed = e && is_another(e, l);
    if (!e && (e = calloc(1, sizeof(*e)))) {
        memcpy(e->id, id, strlen(id) + 1);
        *at = e;
        r->n++;
    }
    if (e && e->epoch <= epoch) {
        bool same = e->meta && strcmp(e->now.gen, l->now.gen) == 0;
        e->now = l->now;
        e->stat = l->stat;
        e->racy = l->racy;
        e->epoch = epoch;
        e->checked_ns = r->epoch == epoch ? clock_monotonic() : LONG_AGO;
        if (!same) {
            free(e->meta);
            e->meta = NULL;
            if (l->meta.len && l->meta.len <= META_KEEP)
                e->meta = util_steal(&l->meta.data);
        }
    }
    if (r->n > KEEP_MAX)
        trim_locked(r);
    pthread_mutex_unlock(&r->lock);
}

int records_now(struct mount *m, const struct cairn_op *op, const char *id, struct record_now *out,
                struct cairn_error *err)
{
    struct records *r = m->records;
    struct record_now before = {0};
    struct backend_stat stat;
    bool known = false;
    pthread_mutex_lock(&r->lock);
    uint64_t epoch = r->epoch;
    const struct entry *e = *find_locked(r, id);
    if (e && clock_monotonic() - e->checked_ns < MOUNT_RECORD_FRESH_NS) {
        *out = e->now;
        pthread_mutex_unlock(&r->lock);
        return CAIRN_OK;
    }
    if (e) {
        before = e->now;
        stat = e->stat;
        known = e->now.gen[0] && !e->racy;
    }
    pthread_mutex_unlock(&r->lock);
    struct look l = {.meta = BUF_INIT(META_MAX)};
    bool changed = false;
    int rc = look(m, op, id, &before, known ? &stat : NULL, &l, err);
    if (!rc) {
        keep(r, id, &l, epoch, &changed);
        *out = l.now;
    }
    buf_release(&l.meta);
    /* A manifest that was read before its generation was committed may have had no digest yet, or
     * other files, by names that the kernel believes for long below the folder that it knows: it is
     * given another one. */
    if (changed) {
        generations_forget(m, id);
        inode_hide_record(m, id);
        if (l.now.committed)
            spool_show_again(m, id, l.now.gen);
    }
    return rc ? error_wrap(err, "record %s", id) : CAIRN_OK;
}

void records_seen(struct mount *m, const char *id, const struct backend_stat *stat,
                  int64_t listed_ns)
{
    struct records *r = m->records;
    pthread_mutex_lock(&r->lock);
    struct entry *e = *find_locked(r, id);
    if (e && e->now.committed && !e->racy && e->checked_ns != LONG_AGO &&
        e->checked_ns < listed_ns && same_object(&e->stat, stat))
        e->checked_ns = listed_ns;
    pthread_mutex_unlock(&r->lock);
}

int records_bytes(struct mount *m, const struct cairn_op *op, const char *id, char gen[GEN_TEXT],
                  struct buf *out, struct cairn_error *err)
{
    struct records *r = m->records;
    int rc = CAIRN_OK;
    pthread_mutex_lock(&r->lock);
    const struct entry *e = *find_locked(r, id);
    bool here = e && e->meta && strcmp(e->now.gen, gen) == 0;
    if (here)
        rc = buf_add(out, e->meta, (size_t)e->now.meta_size, err);
    pthread_mutex_unlock(&r->lock);
    return here ? rc : store_get_meta(m->store, op, id, out, gen, err);
}

void records_changed(struct mount *m, const char *id)
{
    struct records *r = m->records;
    pthread_mutex_lock(&r->lock);
    r->epoch++;
    struct entry *e = *find_locked(r, id);
    if (e) {
        e->checked_ns = LONG_AGO;
        e->racy = true;
        e->epoch = r->epoch;
    }
    pthread_mutex_unlock(&r->lock);
    generations_forget(m, id);
}
