#include "store/commit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "store/fresh.h"
#include "store/listing.h"
#include "store/shared_fetch.h"
#include "store/tomb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int put_manifest(struct commit *c, const struct manifest *m, int64_t *when,
                        struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_export(c->id, c->gen, key);
    size_t len;
    const uint8_t *data = manifest_bytes(m, &len);
    /* Before the put: the store may stamp it as early as now, however long the put takes. */
    *when = clock_boottime();
    int rc = c->store->backend->ops->put(c->store->backend, c->op, key, data, len, err);
    return rc ? error_wrap(err, "writing the manifest") : CAIRN_OK;
}

/* Those of closed that m names into bad. */
static int add_those_of(const struct manifest *m, const struct pack_set *closed,
                        struct pack_set *bad, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && closed->n && i < manifest_info(m)->n_packs; i++)
        if (pack_set_has(closed, manifest_pack(m, i)))
            rc = pack_set_add(bad, manifest_pack(m, i), err);
    return rc;
}

/* The closed packs of the store that m names. Only those are kept: the list may be long. */
static int closed_packs(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
                        struct pack_set *bad, struct cairn_error *err)
{
    CLEANUP_PACK_SET struct pack_set closed = {0};
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, s->backend, op, LAYOUT_CLOSED, "", err);
    while (listing_next(&l, &rc, err))
        if (l.key.kind == LAYOUT_KIND_CLOSED)
            rc = pack_set_add(&closed, l.key.pack, err);
    return rc ? rc : add_those_of(m, &closed, bad, err);
}

/* For each pack that m names where the last of m's chunks in it ends; owned by the caller. */
static int pack_ends(const struct manifest *m, uint64_t **out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    uint64_t *ends = calloc((size_t)info->n_packs + 1, sizeof(*ends));
    if (!ends)
        return error_oom(err, "packs of a manifest");
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        uint64_t end = (uint64_t)c.loc.offset + c.loc.stored_len;
        uint64_t *of_pack = &ends[manifest_chunk_pack(m, i)];
        *of_pack = end > *of_pack ? end : *of_pack;
    }
    *out = ends;
    return CAIRN_OK;
}

/* Which of m's packs are gone, or cut; those made since since_ns are not asked for. */
static int stat_packs(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
                      int64_t since_ns, struct pack_set *bad, struct cairn_error *err)
{
    CLEANUP_FREE uint64_t *ends = NULL;
    int rc = pack_ends(m, &ends, err);
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_packs; i++) {
        char key[KEY_MAX];
        if (since_ns && fresh_has(manifest_pack(m, i), since_ns))
            continue;
        layout_pack(manifest_pack(m, i), key);
        struct backend_stat st;
        struct cairn_error e;
        rc = s->backend->ops->stat(s->backend, op, key, &st, &e);
        if (rc && rc != CAIRN_NOT_FOUND)
            rc = error_pass(err, &e);
        else if (rc || st.size < ends[i])
            rc = pack_set_add(bad, manifest_pack(m, i), err);
    }
    return rc;
}

int commit_check_packs_since(struct cairn_store *s, const struct cairn_op *op,
                             const struct manifest *m, int64_t since_ns, struct pack_set *bad,
                             struct cairn_error *err)
{
    int rc = closed_packs(s, op, m, bad, err);
    if (!rc)
        rc = stat_packs(s, op, m, since_ns, bad, err);
    return rc ? error_wrap(err, "checking the packs") : CAIRN_OK;
}

int commit_check_packs(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
                       struct pack_set *bad, struct cairn_error *err)
{
    return commit_check_packs_since(s, op, m, 0, bad, err);
}

static int told_busy(const char *key, struct cairn_error *err)
{
    return error_set(err, CAIRN_BUSY, EBUSY,
                     "a collector is about to delete this generation, which was given up: try "
                     "again after its next sweep (%s)",
                     key);
}

/* Where nothing can lock or fence, a collector that is about to delete this generation says so
 * first, and waits longer than any check that did not see it is good for. */
static int check_intents(struct commit *c, struct cairn_error *err)
{
    char prefix[KEY_MAX];
    layout_intent(c->id, c->gen, "", prefix);
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, c->store->backend, c->op, prefix, "", err);
    if (listing_next(&l, &rc, err))
        return told_busy(l.entry.key, err);
    return rc ? error_wrap(err, "checking the generation") : CAIRN_OK;
}

/* Step 5. *checked: when the check that passed began. *gone: a collector took the manifest, whose
 * intent came and went before this looked for it. */
static int check(struct commit *c, const struct manifest *m, int64_t *written, struct pack_set *bad,
                 int64_t *checked, bool *gone, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_export(c->id, c->gen, key);
    *gone = false;
    for (;;) {
        if (clock_boottime() - *written > COMMIT_MANIFEST_MAX_NS) {
            int rc = put_manifest(c, m, written, err);
            if (rc)
                return rc;
        }
        *checked = clock_boottime();
        size_t before = bad->n;
        bool exists = true;
        int rc = check_intents(c, err);
        if (!rc && !c->locked)
            rc = backend_exists(c->store->backend, c->op, key, &exists, err);
        *gone = !rc && !exists;
        if (!rc && exists)
            rc = commit_check_packs(c->store, c->op, m, bad, err);
        if (rc || !exists || bad->n > before)
            return rc;
        if (clock_boottime() - *checked <= COMMIT_CHECK_MAX_NS)
            return CAIRN_OK;
        rc = op_check(c->op, "publish", err);
        if (rc)
            return rc;
    }
}

/* ---- Where nothing locks ---------------------------------------------------------------------
 *
 * The same looks, in fewer requests (docs/protocol-collector.md, "Fewer requests"): closed packs,
 * intents and tombstones lie side by side and are listed together, and what the first check saw
 * need not be looked at again while it is less than COMMIT_CHECK_MAX_NS ago: a pack that was there
 * and is still not closed has not been deleted in between, and an intent that was not there deletes
 * nothing for longer than that. */

/* Entries of one listing that are read on for the sake of a tombstone alone: a page of a bucket. */
#define TOMB_ENTRIES_MAX 900

static bool is_fresh(const struct commit *c)
{
    return clock_boottime() - c->looked_ns <= COMMIT_CHECK_MAX_NS;
}

/* Closed packs of m into bad. found: the key of an intent on the generation, else "". tomb: NULL,
 * or set if there is a tombstone of the id. */
static int list_marks(struct commit *c, const struct manifest *m, struct pack_set *bad,
                      char found[KEY_MAX], bool *tomb, struct cairn_error *err)
{
    struct backend *b = c->store->backend;
    CLEANUP_PACK_SET struct pack_set closed = {0};
    CLEANUP_LISTING struct listing l;
    char intent[KEY_MAX], tomb_key[KEY_MAX];
    bool ask = false;
    found[0] = 0;
    layout_intent(c->id, c->gen, "", intent);
    layout_tomb(c->id, tomb_key);
    int rc = listing_open(&l, b, c->op, LAYOUT_GC, LAYOUT_CLOSED, err);
    for (size_t n = 0; listing_next(&l, &rc, err); n++) {
        const char *key = l.entry.key;
        if (l.key.kind == LAYOUT_KIND_CLOSED)
            rc = pack_set_add(&closed, l.key.pack, err);
        if (strncmp(key, intent, strlen(intent)) == 0)
            snprintf(found, KEY_MAX, "%s%s", intent, key + strlen(intent));
        if (strcmp(key, intent) < 0)
            continue;
        int past = tomb ? strcmp(key, tomb_key) : 1;
        if (tomb && past == 0)
            *tomb = true;
        ask = tomb && past < 0 && n > TOMB_ENTRIES_MAX;
        if (past >= 0 || ask)
            break;
    }
    if (!rc && ask)
        rc = backend_exists(b, c->op, tomb_key, tomb, err);
    return rc ? rc : add_those_of(m, &closed, bad, err);
}

/* Before the manifest is written: this very generation may have been committed by an earlier try
 * that was taken for failed, or be committed by another just now; its manifest must not be replaced
 * by one that names a dead pack, even if this process dies right after. */
static int check_before(struct commit *c, const struct manifest *m, struct pack_set *bad,
                        struct cairn_error *err)
{
    size_t before = bad->n;
    do {
        bool tomb = false;
        char intent[KEY_MAX];
        int rc = op_check(c->op, "publish", err);
        c->looked_ns = clock_boottime();
        if (!rc)
            rc = list_marks(c, m, bad, intent, &tomb, err);
        /* The manifest, which is young then, tells the collector that somebody is at it again; the
         * check after that tells this writer to leave. */
        c->intended = !rc && intent[0];
        if (!rc && bad->n == before)
            rc = stat_packs(c->store, c->op, m, c->began_ns, bad, err);
        if (!rc && tomb && bad->n == before) {
            struct tomb empty = {0};
            c->has_tomb = true;
            rc = tomb_put(c->store, c->op, c->id, &empty, err);
        }
        if (rc)
            return error_wrap(err, "checking the packs");
    } while (bad->n == before && !is_fresh(c));
    return CAIRN_OK;
}

/* Step 5 after check_before: what may have come since. *fresh: that was little enough for the rest
 * to be as it was; else all of it has to be looked at. */
static int check_since(struct commit *c, const struct manifest *m, struct pack_set *bad,
                       bool *fresh, struct cairn_error *err)
{
    char intent[KEY_MAX];
    *fresh = is_fresh(c) && !c->intended;
    if (!*fresh)
        return CAIRN_OK;
    int rc = list_marks(c, m, bad, intent, NULL, err);
    if (!rc && intent[0])
        return told_busy(intent, err);
    *fresh = is_fresh(c);
    return rc ? error_wrap(err, "checking the packs") : CAIRN_OK;
}

/* ---------------------------------------------------------------------------------------------- */

int commit_run(struct commit *c, const struct manifest *m, struct pack_set *bad, bool *again,
               struct cairn_error *err)
{
    struct backend *b = c->store->backend;
    size_t bad_before = bad->n;
    *again = false;
    c->attempted = c->committed;
    STEP("commit.begin");
    int rc = b->ops->stage(b, c->op, c->id, c->gen, c->meta, c->meta_len, err);
    if (rc)
        return error_wrap(err, "staging meta.json");
    STEP("commit.staged");
    int64_t written, checked;
    bool gone = false, fresh = false;
    if (!c->locked) {
        rc = check_before(c, m, bad, err);
        if (rc || bad->n > bad_before) {
            *again = !rc;
            return rc;
        }
    }
    rc = put_manifest(c, m, &written, err);
    if (rc)
        return rc;
    STEP("commit.manifest");
    if (!c->locked)
        rc = check_since(c, m, bad, &fresh, err);
    if (!rc && !fresh && bad->n == bad_before)
        rc = check(c, m, &written, bad, &checked, &gone, err);
    if (rc)
        return rc;
    if (gone || bad->n > bad_before) {
        *again = true;
        return CAIRN_OK;
    }
    STEP("commit.checked");
    rc = op_check(c->op, "publish", err);
    if (rc)
        return rc;
    c->attempted = true;
    struct cairn_error e;
    enum backend_once once = BACKEND_REPLACE;
    if (!id_is_template(c->id) && !c->committed)
        once = c->absent_ns && clock_boottime() - c->absent_ns <= COMMIT_LOOK_MAX_NS
                   ? BACKEND_ONCE_LOOKED
                   : BACKEND_ONCE;
    rc = b->ops->commit(b, c->op, c->id, c->gen, c->meta, c->meta_len, once, &e);
    shared_fetch_changed(c->store);
    if (rc == CAIRN_BUSY && e.sys_errno == ENOENT) {
        /* A collector took the staged meta, and will take the manifest: this writer was too slow.
         */
        c->attempted = c->committed;
        *again = true;
        return CAIRN_OK;
    }
    if (rc)
        return error_set(err, rc, e.sys_errno, "committing meta.json: %s", e.message);
    c->committed = true;
    STEP("commit.committed");
    if (fresh && is_fresh(c))
        return CAIRN_OK; /* no collector can have been that far */
    /* The look after the commit: where nothing can fence (S3), a collector may have taken the
     * manifest of a writer that it gave up, just before this commit. */
    char key[KEY_MAX];
    layout_export(c->id, c->gen, key);
    bool exists;
    struct cairn_op after; /* what is committed is not reported as failed because c->op has ended */
    cairn_op_init(&after, 10, NULL);
    rc = backend_exists(b, &after, key, &exists, err);
    if (rc)
        return error_wrap(err, "looking at the manifest after the commit");
    if (!exists)
        *again = true;
    STEP("commit.looked");
    return CAIRN_OK;
}

void commit_abandon(struct commit *c)
{
    struct cairn_store *s = c->store;
    /* The caller's own op may be spent; what is left to do is short. */
    struct cairn_op op;
    cairn_op_init(&op, 10, NULL);
    s->backend->ops->unstage(s->backend, c->id, c->gen);
    if (c->attempted || !c->locked)
        return;
    /* Under the lock, and with another generation committed (or none), nobody else means this
     * manifest. In doubt it stays: the collector knows what to do with it. */
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT], key[KEY_MAX];
    struct cairn_error ignored;
    int rc = store_get_meta(s, &op, c->id, &meta, gen, &ignored);
    if (rc != CAIRN_NOT_FOUND && (rc || strcmp(gen, c->gen) == 0))
        return;
    layout_export(c->id, c->gen, key);
    if (backend_remove_one(s->backend, &op, key, &ignored))
        log_line(LOG_LEVEL_WARNING, "left for the collector: %s: %s", key, ignored.message);
}

int commit_before(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  struct cairn_error *err)
{
    CLEANUP_TOMB struct tomb t = {0};
    bool exists;
    int rc = tomb_get_or_empty(s, op, id, &t, &exists, err);
    t.n = 0;
    return rc || !exists ? rc : tomb_put(s, op, id, &t, err);
}

static void commit_after(struct cairn_store *s, const struct cairn_op *op, const char *id)
{
    char key[KEY_MAX];
    layout_tomb(id, key);
    struct cairn_error ignored;
    bool exists;
    int rc = backend_exists(s->backend, op, key, &exists, &ignored);
    if (!rc && exists)
        rc = backend_remove_one(s->backend, op, key, &ignored);
    if (rc)
        log_line(LOG_LEVEL_WARNING, "left for the collector: %s: %s", key, ignored.message);
}

int commit_begin(struct commit *c, struct cairn_error *err)
{
    return c->locked ? commit_before(c->store, c->op, c->id, err) : CAIRN_OK;
}

void commit_end(struct commit *c)
{
    char key[KEY_MAX];
    struct cairn_error ignored;
    if (c->locked) {
        commit_after(c->store, c->op, c->id);
        return;
    }
    layout_tomb(c->id, key);
    if (c->has_tomb && backend_remove_one(c->store->backend, c->op, key, &ignored))
        log_line(LOG_LEVEL_WARNING, "left for the collector: %s: %s", key, ignored.message);
}

void commit_forget_packs(struct cairn_store *s, const struct pack_set *bad)
{
    struct cairn_error ignored;
    for (size_t i = 0; s->index && i < bad->n; i++)
        if (index_drop_pack(s->index, bad->packs[i], &ignored))
            log_line(LOG_LEVEL_WARNING, "index: dropping a pack: %s", ignored.message);
}

int commit_gave_up(struct cairn_error *err)
{
    return error_set(err, CAIRN_TRANSIENT, EAGAIN,
                     "a collector took packs away faster than they could be stored again");
}
