#include "store/shared_fetch.h"

#include "base/clock.h"
#include "base/flight.h"
#include "base/step.h"
#include "base/util.h"
#include "store/lease.h"
#include "store/record.h"

#include <errno.h>
#include <string.h>

/* Looking a record up waits for one or two answers and takes little else. */
#define LOOKUPS_MAX 16
/* A call begins again when what it waited for was replaced meanwhile; not for ever. */
#define ROUNDS_MAX 5

struct shared_fetch {
    struct cairn_store *s;
    struct gens *gens;                                                     /* borrowed */
    struct flight_table *lookups, *copies;                                 /* owned */
    _Atomic uint64_t running, downloaded, failed, downloaded_bytes, ready; /* stats */
    _Atomic int64_t changed_ns; /* CLOCK_MONOTONIC of the last change that this process made */
};

/* What a record is: the result of a lookup. */
struct found {
    struct flight_result head;
    int64_t begun_ns; /* CLOCK_MONOTONIC: nothing in it is older */
    struct cairn_record *r;
    struct gens_key key;
};

/* Where its files are: the result of a copy. */
struct landed {
    struct flight_result head;
    struct gens_entry *entry;
    bool ready; /* they were here */
};

/* ---- Lookups --------------------------------------------------------------------------------- */

struct lookup {
    struct cairn_store *s;
    char id[ID_MAX + 1];
};

static void free_found(struct flight_result *head)
{
    struct found *f = (struct found *)head;
    cairn_record_close(f->r);
    free(f);
}

static int run_lookup(void *ctx, struct flight *self, const struct cairn_op *op,
                      struct flight_result **out, struct cairn_error *err)
{
    (void)self;
    struct lookup *l = ctx;
    struct found *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "shared fetch");
    flight_result_init(&f->head, free_found);
    f->begun_ns = clock_monotonic();
    int rc = cairn_record_open(l->s, op, l->id, &f->r, err);
    if (!rc)
        rc = gens_key(atomic_load(&f->r->manifest), &f->key, err);
    STEP("shared.found");
    if (rc)
        flight_result_unref(&f->head);
    else
        *out = &f->head;
    return rc;
}

/* One that began early enough for this call; joined, if there is one. */
static int look_up(struct shared_fetch *f, const struct cairn_op *op, const char *id,
                   struct found **out, struct cairn_error *err)
{
    int64_t oldest = clock_monotonic() - SHARED_FETCH_STALE_NS, changed = f->changed_ns;
    if (oldest < changed)
        oldest = changed;
    for (;;) {
        struct lookup *l = calloc(1, sizeof(*l));
        if (!l)
            return error_oom(err, "shared fetch");
        l->s = f->s;
        memcpy(l->id, id, strlen(id) + 1);
        struct flight_start start = {.run = run_lookup, .ctx = l, .ctx_free = free};
        struct flight_result *r;
        int rc = flight_run(f->lookups, id, &start, op, &r, err);
        if (rc)
            return rc;
        *out = (struct found *)r;
        if ((*out)->begun_ns >= oldest)
            return CAIRN_OK;
        flight_result_unref(r);
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

struct copy {
    struct shared_fetch *f;
    struct found *found; /* owned reference */
};

static void free_copy(void *ctx)
{
    struct copy *c = ctx;
    flight_result_unref(&c->found->head);
    free(c);
}

static void free_landed(struct flight_result *head)
{
    struct landed *l = (struct landed *)head;
    gens_unref(l->entry);
    free(l);
}

static int gone(const struct gens_key *key, struct cairn_error *err)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s was deleted while it was being fetched",
                     key->id);
}

/* One more look at the end: others may have deleted it. One that was superseded meanwhile is what
 * those who wait have asked for. */
static int check_still_there(struct cairn_store *s, const struct cairn_op *op,
                             const struct gens_key *key, struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    struct gens_key now;
    char gen[GEN_TEXT];
    int rc = store_get_meta(s, op, key->id, &meta, gen, err);
    if (!rc && strcmp(gen, key->gen) != 0)
        return CAIRN_OK;
    if (!rc)
        rc = store_load_manifest(s, op, key->id, gen, &m, err);
    if (rc)
        return rc == CAIRN_NOT_FOUND ? gone(key, err) : rc;
    rc = gens_key(m, &now, err);
    if (!rc && strcmp(now.content, key->content) != 0)
        rc = error_set(err, CAIRN_TRANSIENT, ESTALE,
                       "%s was published again while it was being fetched", key->id);
    return rc;
}

/* What is to be leased is made past the bound as well; what others do not need goes for it. */
static void charge(struct cairn_store *s, uint64_t bytes)
{
    if (s->budget)
        budget_take(s->budget, bytes);
}

static int download(struct copy *c, const struct cairn_op *op, struct gens_build *b,
                    struct cairn_error *err)
{
    struct cairn_record *r = c->found->r;
    struct cairn_fetch_result done;
    uint64_t bytes = manifest_info(atomic_load(&r->manifest))->data_bytes;
    int rc = gens_build_begin(c->f->gens, bytes, b, err);
    if (rc)
        return rc;
    /* Only now: a listing of the budget's forgets what was charged before it, and counts what is
     * being made. */
    charge(c->f->s, bytes);
    rc = cairn_record_fetch(r, op, b->target, NULL, &done, err);
    STEP("shared.fetched");
    /* What it shares with the cache counts twice: the cache may let go of it. */
    uint64_t cloned = r->store->backend->ops->open_fd && !rc ? done.cloned_bytes : 0;
    if (!rc)
        rc = gens_build_seal(b, atomic_load(&r->manifest), cloned, err);
    return rc;
}

static int install(struct flight *self, struct gens_build *b, const struct gens_key *key,
                   struct gens_entry **out, struct cairn_error *err)
{
    if (!flight_install_begin(self))
        return error_set(err, CAIRN_TRANSIENT, ESTALE, "%s was deleted meanwhile", key->id);
    int rc = gens_build_install(b, key, out, err);
    flight_install_end(self);
    return rc;
}

/* It is not there after all. Whether a listing has counted it since is not known, so that nothing
 * can be credited. */
static void drop(struct cairn_store *s, struct gens_build *b)
{
    gens_build_release(b);
    if (s->budget)
        budget_look(s->budget);
}

/* The budget's thread may be at it as well, or have been quicker; what it takes away makes room,
 * too. True: there is some since before. */
static bool make_room(struct gens *g, const struct cairn_op *op, uint64_t before)
{
    struct cairn_error ignored; /* of a deadline, say: the copy then meets it as well */
    (void)gens_clear(g);
    (void)!gens_settle(g, op, &ignored);
    return gens_removed(g) != before;
}

static int make(struct copy *c, struct flight *self, const struct cairn_op *op,
                struct gens_entry **out, struct cairn_error *err)
{
    const struct gens_key *key = &c->found->key;
    struct gens_build b = GENS_BUILD_INIT;
    uint64_t before = gens_removed(c->f->gens);
    int rc = download(c, op, &b, err);
    if (rc == CAIRN_NO_SPACE) {
        drop(c->f->s, &b);
        if (make_room(c->f->gens, op, before))
            rc = download(c, op, &b, err);
    }
    if (!rc)
        rc = check_still_there(c->f->s, op, key, err);
    STEP("shared.looked-again");
    /* Another process of this state directory may have been quicker. */
    if (!rc)
        rc = gens_find(c->f->gens, op, key, atomic_load(&c->found->r->manifest), false, out, err);
    bool installed = false;
    if (!rc && !*out) {
        rc = install(self, &b, key, out, err);
        installed = !rc;
    }
    /* Clones take less than they hold. */
    if (installed && c->f->s->budget && b.bytes < b.expected)
        budget_credit(c->f->s->budget, b.expected - b.bytes);
    if (installed)
        gens_build_release(&b);
    else
        drop(c->f->s, &b);
    return rc;
}

static void count(struct copy *c, int rc)
{
    struct shared_fetch *f = c->f;
    atomic_fetch_sub(&f->running, 1);
    atomic_fetch_add(rc ? &f->failed : &f->downloaded, 1);
    if (!rc)
        atomic_fetch_add(&f->downloaded_bytes,
                         manifest_info(atomic_load(&c->found->r->manifest))->data_bytes);
}

static int run_copy(void *ctx, struct flight *self, const struct cairn_op *op,
                    struct flight_result **out, struct cairn_error *err)
{
    struct copy *c = ctx;
    struct landed *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "shared fetch");
    flight_result_init(&l->head, free_landed);
    int rc = gens_find(c->f->gens, op, &c->found->key, atomic_load(&c->found->r->manifest), true,
                       &l->entry, err);
    l->ready = l->entry != NULL;
    if (!rc && !l->entry) {
        atomic_fetch_add(&c->f->running, 1);
        rc = make(c, self, op, &l->entry, err);
        count(c, rc);
    }
    if (rc)
        flight_result_unref(&l->head);
    else
        *out = &l->head;
    return rc;
}

/* The files of what was found, with a reference. */
static int obtain(struct shared_fetch *f, const struct cairn_op *op, struct found *found,
                  struct gens_entry **out, bool *ready, struct cairn_error *err)
{
    *ready = true;
    int rc = gens_find(f->gens, op, &found->key, atomic_load(&found->r->manifest), false, out, err);
    if (rc || *out)
        return rc;
    struct copy *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "shared fetch");
    c->f = f;
    c->found = found;
    flight_result_ref(&found->head);
    char key[ID_MAX + GEN_TEXT + GENS_CONTENT_TEXT + 2];
    snprintf(key, sizeof(key), "%s/%s-%s", found->key.id, found->key.gen, found->key.content);
    struct flight_start start = {.run = run_copy, .ctx = c, .ctx_free = free_copy};
    struct flight_result *r;
    rc = flight_run(f->copies, key, &start, op, &r, err);
    if (rc)
        return rc;
    *out = gens_ref(((struct landed *)r)->entry);
    *ready = ((struct landed *)r)->ready;
    flight_result_unref(r);
    return CAIRN_OK;
}

/* ---- The call -------------------------------------------------------------------------------- */

void cairn_fetch_shared_result_release(struct cairn_fetch_shared_result *result)
{
    free(result->path);
    free(result->meta);
    *result = (struct cairn_fetch_shared_result){0};
}

/* entry is transferred on success. */
static int hand_over(struct cairn_store *s, const struct found *found, struct gens_entry *entry,
                     const struct cairn_fetch_shared_options *options,
                     struct cairn_fetch_shared_result *out, struct cairn_error *err)
{
    struct cairn_record_info info;
    struct keeper_hold *hold = NULL;
    cairn_record_info(found->r, &info);
    memcpy(out->gen, found->key.gen, sizeof(out->gen));
    snprintf(out->digest, sizeof(out->digest), "%s", info.digest);
    out->logical_bytes = info.logical_bytes;
    out->data_bytes = info.data_bytes;
    out->meta_len = info.meta_len;
    out->path = strdup(gens_path(entry));
    out->meta = malloc(info.meta_len + 1);
    int rc = out->path && out->meta ? CAIRN_OK : error_oom(err, "shared fetch");
    if (!rc) {
        memcpy(out->meta, info.meta, info.meta_len);
        rc = keeper_hold(s, found->key.id, found->key.gen, atomic_load(&found->r->manifest), &hold,
                         err);
    }
    if (!rc)
        rc = lease_take(s, entry, hold, options ? options->lease_seconds : 0, out->lease,
                        &out->lease_seconds, err);
    if (rc) {
        keeper_release(s, hold);
        cairn_fetch_shared_result_release(out);
    }
    return rc;
}

static int one_round(struct cairn_store *s, const struct cairn_op *op, const char *id,
                     const struct cairn_fetch_shared_options *options,
                     struct cairn_fetch_shared_result *result, struct cairn_error *err)
{
    struct found *found = NULL;
    struct gens_entry *entry = NULL;
    bool ready = false;
    int rc = look_up(s->shared, op, id, &found, err);
    if (rc)
        return rc;
    rc = obtain(s->shared, op, found, &entry, &ready, err);
    if (!rc)
        rc = hand_over(s, found, entry, options, result, err);
    if (rc)
        gens_unref(entry);
    else if ((result->ready = ready))
        atomic_fetch_add(&s->shared->ready, 1);
    flight_result_unref(&found->head);
    return rc;
}

int cairn_fetch_shared(struct cairn_store *s, const struct cairn_op *op, const char *id,
                       const struct cairn_fetch_shared_options *options,
                       struct cairn_fetch_shared_result *result, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    *result = (struct cairn_fetch_shared_result){0};
    int rc = id_check(id, err);
    if (!rc)
        rc = op_check(op, "shared fetch", err);
    if (!rc && !s->shared)
        rc = error_set(err, CAIRN_INVALID, EINVAL,
                       "a shared fetch needs a state directory that works");
    for (int round = 0; !rc; round++) {
        rc = one_round(s, op, id, options, result, err);
        if (!rc)
            return CAIRN_OK;
        if (rc != CAIRN_TRANSIENT || err->sys_errno != ESTALE || round + 1 >= ROUNDS_MAX)
            break;
        rc = op_check(op, "shared fetch", err);
    }
    return error_wrap(err, "shared fetch of %s", id);
}

/* ---- The whole ------------------------------------------------------------------------------- */

int shared_fetch_new(struct cairn_store *s, struct gens *gens, int64_t budget_ns,
                     struct shared_fetch **out, struct cairn_error *err)
{
    struct shared_fetch *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "shared fetches");
    f->s = s;
    f->gens = gens;
    int64_t budget = budget_ns > 0 ? budget_ns : SHARED_FETCH_BUDGET_NS;
    int rc = flight_table_new(
        &(struct flight_table_options){.budget_ns = budget, .max_threads = LOOKUPS_MAX},
        &f->lookups, err);
    if (!rc)
        rc = flight_table_new(
            &(struct flight_table_options){.budget_ns = budget, .max_threads = SHARED_FETCH_MAX},
            &f->copies, err);
    if (rc) {
        shared_fetch_free(f);
        return rc;
    }
    *out = f;
    return CAIRN_OK;
}

void shared_fetch_free(struct shared_fetch *f)
{
    if (!f)
        return;
    flight_table_free(f->lookups);
    flight_table_free(f->copies);
    free(f);
}

void cairn_fetch_shared_stats(struct cairn_store *s, struct cairn_fetch_shared_stats *out)
{
    struct shared_fetch *f = s->shared;
    *out = (struct cairn_fetch_shared_stats){0};
    if (f)
        *out = (struct cairn_fetch_shared_stats){.running = f->running,
                                                 .downloaded = f->downloaded,
                                                 .failed = f->failed,
                                                 .downloaded_bytes = f->downloaded_bytes,
                                                 .ready = f->ready};
}

void shared_fetch_changed(struct cairn_store *s)
{
    if (s->shared)
        s->shared->changed_ns = clock_monotonic();
}

void shared_fetch_forget(struct cairn_store *s, const struct cairn_op *op, const char *id)
{
    struct shared_fetch *f = s->shared;
    struct cairn_error ignored; /* what is installed after all is found by nobody, and evicted */
    if (!f)
        return;
    shared_fetch_changed(s);
    (void)!flight_table_invalidate(f->lookups, id, op, &ignored);
    (void)!flight_table_invalidate(f->copies, id, op, &ignored);
    gens_forget(f->gens, id);
}
