#include "gc/roots.h"

#include "base/util.h"
#include "gc/clock.h"
#include "store/pin.h"
#include "store/tomb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct scan {
    struct gc_run *run;
    struct roots *r;
};

/* ---- Permission, time, marks, packs ---- */

/* Read again each time: who runs for long learns that the store may hold what it does not know. */
static int check_format(struct gc_run *run, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    struct store_format f;
    int rc = b->ops->get(b, run->op, LAYOUT_FORMAT, FORMAT_MAX, &text, NULL, err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_CORRUPT, ENOENT, "%s is gone", LAYOUT_FORMAT);
    if (!rc)
        rc = format_decode(text.data, text.len, &f, err);
    if (rc)
        return error_wrap(err, "%s", LAYOUT_FORMAT);
    uint32_t min =
        f.min_sweeper > run->s->format.min_sweeper ? f.min_sweeper : run->s->format.min_sweeper;
    explicit_bzero(f.secret, sizeof(f.secret));
    if (min <= FORMAT_VERSION)
        return CAIRN_OK;
    return error_set(err, CAIRN_PERMANENT, 0,
                     "the store may only be swept by programs of format %u or newer (this one: %u)",
                     min, FORMAT_VERSION);
}

static int tell_time(struct gc_run *run, struct cairn_error *err)
{
    struct cairn_error e;
    int rc = gc_clock_probe(run, &run->now, &e);
    if (rc == CAIRN_NO_SPACE) {
        struct cairn_error ignored;
        rc = gc_settle(run, rc, &e, &ignored);
        return rc ? rc : gc_clock_bound(run, &run->now, err);
    }
    return rc ? error_pass(err, &e) : CAIRN_OK;
}

static int add_mark(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                    struct cairn_error *err)
{
    struct scan *s = ctx;
    uint32_t no;
    if (k->kind != LAYOUT_KIND_CLOSED && k->kind != LAYOUT_KIND_DEAD)
        return CAIRN_OK;
    int rc = roots_pack_of(s->r, k->pack, &no, err);
    if (rc)
        return rc;
    struct roots_pack *p = &s->r->packs[no];
    if (k->kind == LAYOUT_KIND_CLOSED) {
        p->closed = true;
        p->closed_ns = e->stat.mtime_ns;
    } else {
        p->dead = true;
        p->dead_ns = e->stat.mtime_ns;
    }
    return CAIRN_OK;
}

static int add_pack(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                    struct cairn_error *err)
{
    struct scan *s = ctx;
    uint32_t no;
    if (k->kind != LAYOUT_KIND_PACK)
        return CAIRN_OK;
    int rc = roots_pack_of(s->r, k->pack, &no, err);
    if (rc)
        return rc;
    struct roots_pack *p = &s->r->packs[no];
    p->present = true;
    p->size = e->stat.size;
    p->mtime_ns = e->stat.mtime_ns;
    gc_progress(s->run, 1, 0);
    return CAIRN_OK;
}

/* ---- Pins ---- */

/* Whether nobody can be between putting this pin and what it protects: a repacker holds the
 * record's lock all that time. */
static int is_lost(struct gc_run *run, const struct pin *p, bool *lost, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    int lock = -1;
    struct cairn_error e;
    int rc = b->ops->lock(b, run->op, p->id, &lock, &e);
    *lost = rc == CAIRN_OK;
    if (!rc)
        b->ops->unlock(b, p->id, lock);
    /* A folder that cannot be made on a full disk proves nothing either. */
    if (!rc || rc == CAIRN_BUSY || rc == CAIRN_NO_SPACE)
        return CAIRN_OK;
    return error_pass(err, &e);
}

static int add_pin(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                   struct cairn_error *err)
{
    struct scan *s = ctx;
    struct gc_run *run = s->run;
    if (k->kind != LAYOUT_KIND_PIN)
        return CAIRN_OK;
    int64_t mtime = e->stat.mtime_ns;
    CLEANUP_PIN struct pin p = {0};
    struct cairn_error x;
    int rc = pin_get(run->s, run->op, e->key, &p, &x);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK; /* let go meanwhile */
    if (rc)
        return error_pass(err, &x);
    bool lost = false;
    if (gc_is_older(run, mtime, run->t.pin))
        rc = is_lost(run, &p, &lost, err);
    if (rc)
        return rc;
    if (lost)
        return roots_add_object(&s->r->lost_pins, p.key, p.id, mtime, err);
    char name[KEY_MAX];
    snprintf(name, sizeof(name), "%s/%s", p.id, p.gen);
    rc = roots_add_object(&s->r->pins, name, p.id, mtime, err);
    for (size_t i = 0; !rc && i < p.packs.n; i++) {
        uint32_t no;
        rc = roots_pack_of(s->r, p.packs.packs[i], &no, err);
        if (!rc)
            s->r->packs[no].pinned = true;
    }
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct roots_object *)a)->key, ((const struct roots_object *)b)->key);
}

/* ---- The rest ---- */

/* What the tombstone says. Once read it is remembered; what is written just now, like manifests,
 * is not. */
static int read_tomb(struct gc_run *run, const char *key, const struct backend_entry *e,
                     const char *id, struct tomb *out, struct cairn_error *err)
{
    if (sweep_db_find_tomb(run->db, key, &e->stat, out))
        return CAIRN_OK;
    struct backend_stat st = e->stat;
    int rc = tomb_get_stat(run->s, run->op, id, out, &st, err);
    if (!rc && gc_is_older(run, st.mtime_ns, ROOTS_SETTLED_NS))
        sweep_db_put_tomb(run->db, key, &st, out);
    return rc;
}

/* Whether the tombstone names anything that the scan still found of the record. */
static bool names_any(const struct tomb *t, const struct roots *r, const struct roots_record *rec)
{
    if (rec->has_meta && tomb_has_gen(t, rec->gen))
        return true;
    for (size_t i = rec->first; i < rec->first + rec->n; i++)
        if (tomb_has_gen(t, r->manifests[i].gen))
            return true;
    return false;
}

static int add_tomb(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                    struct cairn_error *err)
{
    struct scan *s = ctx;
    if (k->kind != LAYOUT_KIND_TOMB)
        return CAIRN_OK;
    /* One that cannot be read is a doubt: what it meant to delete is not known. */
    CLEANUP_TOMB struct tomb t = {0};
    struct cairn_error x;
    char key[KEY_MAX];
    layout_tomb(k->id, key);
    int rc = read_tomb(s->run, key, e, k->id, &t, &x);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &x);
    struct roots_record *rec = roots_find_record(s->r, k->id);
    if (rec) {
        rec->tomb = true;
        rec->dying = rec->has_meta && tomb_has_gen(&t, rec->gen);
        rec->unfinished = names_any(&t, s->r, rec);
    }
    return roots_add_object(&s->r->tombs, key, k->id, e->stat.mtime_ns, err);
}

static int add_hold(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                    struct cairn_error *err)
{
    (void)e;
    (void)err;
    struct scan *s = ctx;
    struct roots_record *rec = k->kind == LAYOUT_KIND_HOLD ? roots_find_record(s->r, k->id) : NULL;
    if (rec)
        rec->held = true;
    return CAIRN_OK;
}

/* An intent of this node goes to its manifest; others are kept by themselves. */
static int add_intent(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                      struct cairn_error *err)
{
    struct scan *s = ctx;
    if (k->kind != LAYOUT_KIND_INTENT || strlen(e->key) >= KEY_MAX)
        return CAIRN_OK;
    char own[KEY_MAX];
    layout_intent(k->id, k->gen, s->run->node, own);
    const struct roots_record *rec = roots_find_record(s->r, k->id);
    for (size_t i = rec ? rec->first : 0; rec && i < rec->first + rec->n; i++)
        if (strcmp(s->r->manifests[i].gen, k->gen) == 0 && strcmp(own, e->key) == 0)
            s->r->manifests[i].intent_ns = e->stat.mtime_ns ? e->stat.mtime_ns : s->run->now;
    return roots_add_object(&s->r->intents, e->key, k->id, e->stat.mtime_ns, err);
}

static int add_temp(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                    struct cairn_error *err)
{
    struct scan *s = ctx;
    if (k->kind != LAYOUT_KIND_TMP || strlen(e->key) >= KEY_MAX)
        return CAIRN_OK;
    return roots_add_object(&s->r->temps, e->key, "", e->stat.mtime_ns, err);
}

/* ---- Doubts ---- */

struct missing {
    struct scan *s;
    struct cairn_error *err;
};

static int by_tomb_id(const void *id, const void *tomb)
{
    return strcmp(id, ((const struct roots_object *)tomb)->id);
}

/* They were listed in the order of their keys, which is that of their ids. */
static bool has_tomb(const struct roots *r, const char *id)
{
    return r->tombs.n && bsearch(id, r->tombs.list, r->tombs.n, sizeof(*r->tombs.list), by_tomb_id);
}

static int check_missing(void *ctx, const char *id)
{
    struct missing *m = ctx;
    struct gc_run *run = m->s->run;
    if (has_tomb(m->s->r, id))
        return CAIRN_OK;
    /* Removed and published again while this scan went by: then it is there now. */
    char key[KEY_MAX];
    bool there;
    layout_meta(id, key);
    int rc = backend_exists(run->s->backend, run->op, key, &there, m->err);
    if (rc || there)
        return rc;
    layout_tomb(id, key);
    rc = backend_exists(run->s->backend, run->op, key, &there, m->err);
    if (rc || there)
        return rc;
    return error_set(m->err, CAIRN_CORRUPT, ENOENT,
                     "records/%s/meta.json: the last sweep knew this record, and it vanished "
                     "without having been removed",
                     id);
}

/* Records that the last complete sweep knew. Once one was missed, that is not forgotten however
 * long it is before somebody looks. */
static int check_known(struct scan *s, struct cairn_error *err)
{
    struct gc_run *run = s->run;
    int64_t last;
    bool fresh =
        sweep_db_last(run->db, &last) && last <= run->now && run->now - last < GC_TOMB_NS / 2;
    if (!fresh && !sweep_db_in_doubt(run->db))
        return CAIRN_OK;
    struct missing m = {s, err};
    int rc = sweep_db_each_missing(run->db, check_missing, &m);
    if (rc == CAIRN_CORRUPT)
        sweep_db_doubt(run->db);
    return rc;
}

/* A meta.json whose manifest was not met: committed while this scan went by, or about to go; else
 * the manifest is lost or was left out of the listing, or the meta is not what it was, and then a
 * good manifest looks superseded by it. */
static int look_for_manifest(struct scan *s, const struct roots_record *rec,
                             struct cairn_error *err)
{
    struct gc_run *run = s->run;
    struct backend *b = run->s->backend;
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    CLEANUP_TOMB struct tomb tomb = {0};
    char meta_key[KEY_MAX], key[KEY_MAX], gen[GEN_TEXT];
    struct backend_stat st;
    struct cairn_error e;
    bool there, has_tomb_now;
    layout_meta(rec->id, meta_key);
    int rc = b->ops->get(b, run->op, meta_key, META_MAX, &meta, &st, &e);
    if (!rc)
        rc = gen_of_meta(meta.data, meta.len, gen, &e);
    if (rc)
        return rc == CAIRN_NOT_FOUND
                   ? CAIRN_OK
                   : error_set(err, rc, e.sys_errno, "%s: %s", meta_key, e.message);
    if (st.mtime_ns != rec->meta_ns)
        return CAIRN_OK; /* committed again since */
    if (strcmp(gen, rec->gen) != 0) {
        sweep_db_put_meta(run->db, meta_key, &st, gen);
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "%s reads differently each time", meta_key);
    }
    layout_export(rec->id, gen, key);
    rc = backend_exists(b, run->op, key, &there, err);
    if (rc || (there && rec->meta_ns >= run->now))
        return rc;
    if (there)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "%s is there, and no listing shows it", key);
    rc = tomb_get_or_empty(run->s, run->op, rec->id, &tomb, &has_tomb_now, err);
    if (rc || tomb_has_gen(&tomb, gen))
        return rc;
    return error_set(err, CAIRN_CORRUPT, ENOENT,
                     "%s: %s names it, and it is not there: it is lost, or the meta.json is "
                     "damaged",
                     key, meta_key);
}

static int check_committed(struct scan *s, struct cairn_error *err)
{
    const struct roots *r = s->r;
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_records; i++) {
        const struct roots_record *rec = &r->records[i];
        bool met = !rec->has_meta || rec->dying;
        for (size_t k = rec->first; !met && k < rec->first + rec->n; k++)
            met = r->manifests[k].committed;
        if (!met)
            rc = look_for_manifest(s, rec, err);
    }
    return rc;
}

static int check_doubts(struct scan *s, struct cairn_error *err)
{
    struct gc_run *run = s->run;
    struct roots *r = s->r;
    int rc = check_known(s, err);
    if (!rc)
        rc = check_committed(s, err);
    if (rc || r->n_manifests || r->tombs.n)
        return rc;
    for (size_t i = 0; i < r->n_packs; i++) {
        if (!r->packs[i].present || !gc_is_older(run, r->packs[i].mtime_ns, run->t.young))
            continue;
        char key[KEY_MAX];
        layout_pack(r->packs[i].id, key);
        /* Nothing tells the one from the other, so nothing is called corrupt. */
        return error_set(err, CAIRN_TRANSIENT, ENOENT,
                         "records/: there is no record at all, and none was removed lately, but "
                         "packs are there (%s): either the first publish is not done yet, or died, "
                         "or the records are not where they should be",
                         key);
    }
    return CAIRN_OK;
}

static int scan_all(struct scan *s, struct cairn_error *err)
{
    static const struct {
        const char *phase, *prefix;
        gc_entry_fn *fn;
    } before[] = {{"marks", LAYOUT_CLOSED, add_mark},
                  {"marks", LAYOUT_DEAD, add_mark},
                  {"packs", LAYOUT_PACKS, add_pack},
                  {"pins", LAYOUT_PINS, add_pin}},
      after[] = {{"tombstones", LAYOUT_TOMB, add_tomb},
                 {"holds", LAYOUT_HOLDS, add_hold},
                 {"intents", LAYOUT_INTENT, add_intent},
                 {"temporary files", LAYOUT_TMP, add_temp}};
    int rc = check_format(s->run, err);
    if (!rc)
        rc = tell_time(s->run, err);
    for (size_t i = 0; !rc && i < ARRAY_SIZE(before); i++) {
        gc_phase(s->run, before[i].phase);
        rc = gc_each(s->run, before[i].prefix, before[i].fn, s, err);
    }
    struct roots_objects *pins = &s->r->pins;
    if (!rc && pins->n)
        qsort(pins->list, pins->n, sizeof(*pins->list), by_key);
    gc_phase(s->run, "records");
    if (!rc)
        rc = roots_scan_records(s->run, s->r, err);
    for (size_t i = 0; !rc && i < ARRAY_SIZE(after); i++) {
        gc_phase(s->run, after[i].phase);
        rc = gc_each(s->run, after[i].prefix, after[i].fn, s, err);
    }
    if (rc)
        return rc;
    gc_phase(s->run, "doubts");
    return check_doubts(s, err);
}

int roots_scan(struct gc_run *run, struct roots *r, struct cairn_error *err)
{
    struct scan s = {run, r};
    roots_release(r);
    sweep_db_begin(run->db);
    int rc = scan_all(&s, err);
    if (rc)
        sweep_db_abandon(run->db);
    else
        sweep_db_complete(run->db, run->now);
    return rc;
}
