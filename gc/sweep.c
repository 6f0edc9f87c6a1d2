#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "gc/generations.h"
#include "gc/lock.h"
#include "gc/packs.h"
#include "gc/repack.h"
#include "store/commit.h"
#include "store/pin.h"

#include <errno.h>

/* Scans of one call: close, move, bury, delete, and what turns up in between. */
#define ROUNDS_MAX 8

void cairn_gc_config_init(struct cairn_gc_config *c)
{
    *c = (struct cairn_gc_config){
        .grace_ns = -1, .visibility_ns = -1, .young_ns = -1, .dead_margin_ns = -1, .ttl_ns = -1};
}

void cairn_gc_settings(const struct cairn_store *s, const struct cairn_gc_config *config,
                       struct cairn_gc_config *out)
{
    struct gc_times t;
    struct cairn_gc_config given;
    cairn_gc_config_init(&given);
    if (config)
        given = *config;
    gc_times_of(&given, s->backend->ops->open_fd != NULL, &t);
    *out = (struct cairn_gc_config){.grace_ns = t.grace,
                                    .visibility_ns = t.visibility,
                                    .young_ns = t.young,
                                    .dead_margin_ns = t.dead - t.grace,
                                    .ttl_ns = t.ttl,
                                    .no_repack = given.no_repack};
}

/* After a scan without doubt. What gives space back comes first, what takes some last. */
static int act(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = packs_delete(run, r, err);
    STEP("gc.deleted");
    if (!rc)
        rc = generations_sweep(run, r, err);
    STEP("gc.generations");
    if (!rc)
        rc = retention_sweep(run, r, err);
    if (!rc)
        rc = leftovers_sweep(run, r, err);
    STEP("gc.leftovers");
    if (!rc)
        rc = packs_mark(run, r, err);
    STEP("gc.marks");
    if (!rc)
        rc = repack_run(run, r, err);
    if (!rc)
        rc = repack_choose(run, r, err);
    STEP("gc.acted");
    return rc;
}

/* Packs that entered a state in this round wait from now on. */
static void count_entered(struct gc_run *run, uint64_t closed, uint64_t dead)
{
    struct cairn_gc_result *out = run->result;
    out->waiting_closed += closed;
    out->waiting_dead += dead;
    int64_t next = closed ? run->t.visibility : dead ? run->t.dead : -1;
    if (next >= 0 && (out->next_ns < 0 || next < out->next_ns))
        out->next_ns = next;
}

static int rounds(struct gc_run *run, struct cairn_error *err)
{
    CLEANUP_ROOTS struct roots r = {0};
    for (int i = 0; i < ROUNDS_MAX; i++) {
        run->changes = 0;
        int rc = roots_scan(run, &r, err);
        if (rc) {
            run->result->aborted = i == 0 && rc != CAIRN_TIMEOUT && rc != CAIRN_CANCELLED;
            return rc;
        }
        run->result->records = 0;
        for (size_t k = 0; k < r.n_records; k++)
            run->result->records += r.records[k].has_meta;
        STEP("gc.scanned");
        packs_count(run, &r);
        uint64_t closed = run->result->packs_closed, dead = run->result->packs_dead;
        rc = act(run, &r, err);
        count_entered(run, run->result->packs_closed - closed, run->result->packs_dead - dead);
        /* Where everybody sees a mark at once, what follows from this round is due now. Else the
         * next sweep goes on. */
        if (rc || run->dry_run || !run->changes || run->t.visibility)
            return rc;
    }
    return CAIRN_OK;
}

/* Writers without a lock count on what they saw for COMMIT_CHECK_MAX_NS. */
#define VISIBILITY_MIN_NS (COMMIT_CHECK_MAX_NS + 60 * NS_PER_S)

static void warn_of_haste(const struct gc_run *run)
{
    if (run->s->backend->ops->looks_first && run->t.visibility < VISIBILITY_MIN_NS)
        log_line(LOG_LEVEL_WARNING,
                 "gc: gc_visibility_seconds is %lld, less than %lld: safe only while nobody "
                 "publishes to the bucket",
                 (long long)(run->t.visibility / NS_PER_S),
                 (long long)(VISIBILITY_MIN_NS / NS_PER_S));
}

/* One sweep, by the holder of the lock among processes. db: the memory (borrowed), or NULL. */
static int sweep_run(struct cairn_store *s, const struct cairn_op *op,
                     const struct cairn_gc_config *config, const struct cairn_gc_options *options,
                     struct sweep_db *db, struct cairn_gc_result *result, struct cairn_error *err)
{
    struct cairn_gc_config defaults;
    cairn_gc_config_init(&defaults);
    config = config ? config : &defaults;
    struct gc_run run = {.s = s,
                         .op = op,
                         .dry_run = options && options->dry_run,
                         .repack = !config->no_repack,
                         .db = db,
                         .options = options,
                         .result = result};
    int64_t start = clock_monotonic();
    gc_times_of(config, s->backend->ops->open_fd != NULL, &run.t);
    warn_of_haste(&run);
    int rc = pin_node(s, run.node, err);
    if (!rc)
        rc = rounds(&run, err);
    if (!rc && run.late_rc) {
        rc = run.late_rc;
        *err = run.late;
    }
    if (!rc)
        result->phase = "done";
    result->seconds = (double)(clock_monotonic() - start) / (double)NS_PER_S;
    return rc;
}

int cairn_gc(struct cairn_store *s, const struct cairn_op *op, const struct cairn_gc_config *config,
             const struct cairn_gc_options *options, struct cairn_gc_result *result,
             struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    *result = (struct cairn_gc_result){.phase = "start", .next_ns = -1, .young_ns = -1};
    CLEANUP_FD int lock = -1;
    int rc = gc_lock_take(s, op, options && options->wait, &lock, err);
    result->aborted = rc && rc != CAIRN_TIMEOUT && rc != CAIRN_CANCELLED;
    struct sweep_db *db = NULL;
    struct cairn_error ignored;
    if (!rc && lock >= 0 && sweep_db_open(s, &db, &ignored))
        log_line(LOG_LEVEL_WARNING, "gc: without a memory: %s", ignored.message);
    if (!rc)
        rc = sweep_run(s, op, config, options, db, result, err);
    sweep_db_close(db);
    return rc ? error_wrap(err, "gc") : CAIRN_OK;
}
