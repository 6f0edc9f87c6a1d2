#include "gc/packs.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "gc/plan.h"

#include <stdlib.h>

/* Keys of one call of remove. */
#define BATCH 256

struct batch {
    struct gc_run *run;
    char keys[BATCH][KEY_MAX];
    uint64_t sizes[BATCH];
    size_t n;
};

static int flush(struct batch *b, struct cairn_error *err)
{
    struct gc_run *run = b->run;
    struct backend *backend = run->s->backend;
    const char *keys[BATCH];
    bool failed[BATCH] = {false};
    struct cairn_error e;
    if (!b->n)
        return CAIRN_OK;
    for (size_t i = 0; i < b->n; i++)
        keys[i] = b->keys[i];
    int rc = backend->ops->remove(backend, run->op, keys, b->n, failed, &e);
    STEP("gc.packs-deleted");
    for (size_t i = 0; i < b->n; i++) {
        if (failed[i])
            continue;
        run->result->packs_deleted++;
        run->result->bytes_freed += b->sizes[i];
        run->changes++;
    }
    gc_progress(run, b->n, 0);
    b->n = 0;
    if (rc)
        error_wrap(&e, "deleting packs");
    return gc_settle(run, rc, &e, err);
}

int packs_delete(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    gc_phase(run, "delete");
    struct batch *b = calloc(1, sizeof(*b));
    if (!b)
        return error_oom(err, "deleting packs");
    b->run = run;
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_packs; i++) {
        const struct roots_pack *p = &r->packs[i];
        if (plan_pack(run, p, NULL) != PLAN_PACK_DELETE)
            continue;
        layout_pack(p->id, b->keys[b->n]);
        gc_say(run, "delete", b->keys[b->n], "dead for %lld s",
               (long long)((run->now - p->dead_ns) / NS_PER_S));
        if (run->dry_run) {
            run->result->packs_deleted++;
            run->result->bytes_freed += p->size;
            continue;
        }
        b->sizes[b->n++] = p->size;
        if (b->n == BATCH)
            rc = flush(b, err);
    }
    if (!rc)
        rc = flush(b, err);
    free(b);
    return rc;
}

static int put_mark(struct gc_run *run, const char *key, const char *verb, const char *why,
                    struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    gc_say(run, verb, key, "%s", why);
    int rc = run->dry_run ? CAIRN_OK : b->ops->put(b, run->op, key, "", 0, err);
    if (!run->dry_run)
        STEP("gc.marked");
    return rc;
}

int packs_close(struct gc_run *run, const struct roots_pack *p, const char *why,
                struct cairn_error *err)
{
    char key[KEY_MAX];
    struct cairn_error e;
    layout_closed(p->id, key);
    int rc = put_mark(run, key, "close", why, &e);
    if (rc)
        return gc_settle(run, rc, &e, err);
    run->result->packs_closed++;
    if (run->dry_run)
        return CAIRN_OK;
    run->changes++;
    /* A hint to this node's writers, who would find out at their check. */
    if (run->s->index && index_drop_pack(run->s->index, p->id, &e))
        log_line(LOG_LEVEL_WARNING, "gc: %s", e.message);
    return CAIRN_OK;
}

static int kill_pack(struct gc_run *run, const struct roots_pack *p, struct cairn_error *err)
{
    char key[KEY_MAX];
    struct cairn_error e;
    layout_dead(p->id, key);
    int rc = put_mark(run, key, "bury", "closed, and nobody refers to it", &e);
    if (rc)
        return gc_settle(run, rc, &e, err);
    run->result->packs_dead++;
    run->changes += !run->dry_run;
    return CAIRN_OK;
}

/* The closed mark is put again: its time is now that of this look. */
static int stamp(struct gc_run *run, const struct roots_pack *p, struct cairn_error *err)
{
    char key[KEY_MAX];
    struct cairn_error e;
    layout_closed(p->id, key);
    int rc = put_mark(run, key, "mark", "the pack is gone", &e);
    return gc_settle(run, rc, &e, err);
}

/* The dead mark first: a closed one that is left alone goes later, by age. */
static int unmark(struct gc_run *run, const struct roots_pack *p, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    char dead[KEY_MAX], closed[KEY_MAX];
    struct cairn_error e;
    layout_dead(p->id, dead);
    layout_closed(p->id, closed);
    gc_say(run, "delete", closed, "the pack is gone");
    if (run->dry_run)
        return CAIRN_OK;
    const char *keys[] = {dead, closed};
    int rc = b->ops->remove(b, run->op, keys, 2, NULL, &e);
    STEP("gc.unmarked");
    return gc_settle(run, rc, &e, err);
}

int packs_mark(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    gc_phase(run, "mark");
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_packs; i++) {
        const struct roots_pack *p = &r->packs[i];
        rc = op_check(run->op, "gc", err);
        if (rc)
            break;
        switch (plan_pack(run, p, NULL)) {
        case PLAN_PACK_CLOSE:
            rc = packs_close(run, p, "nobody refers to it", err);
            break;
        case PLAN_PACK_KILL:
            rc = kill_pack(run, p, err);
            break;
        case PLAN_PACK_STAMP:
            rc = stamp(run, p, err);
            break;
        case PLAN_PACK_UNMARK:
            rc = unmark(run, p, err);
            break;
        default:
            break;
        }
    }
    return rc;
}

static void count_young(struct gc_run *run, const struct roots_pack *p)
{
    struct cairn_gc_result *out = run->result;
    if (!p->present || p->closed || p->refs || p->pinned ||
        gc_is_older(run, p->mtime_ns, run->t.young))
        return;
    int64_t due = clock_add(p->mtime_ns, run->t.young);
    int64_t in = due > run->now ? due - run->now : 0;
    out->young_ns = out->young_ns < 0 || in < out->young_ns ? in : out->young_ns;
    out->young++;
}

void packs_count(struct gc_run *run, const struct roots *r)
{
    struct cairn_gc_result *out = run->result;
    uint64_t present = 0;
    out->waiting_closed = out->waiting_dead = 0;
    out->next_ns = out->young_ns = -1;
    out->young = 0;
    for (size_t i = 0; i < r->n_packs; i++) {
        const struct roots_pack *p = &r->packs[i];
        int64_t due;
        present += p->present;
        count_young(run, p);
        if (plan_pack(run, p, &due) != PLAN_PACK_WAIT)
            continue;
        if (p->dead)
            out->waiting_dead++;
        else
            out->waiting_closed++;
        if (due == INT64_MAX)
            continue;
        int64_t in = due > run->now ? due - run->now : 0;
        if (out->next_ns < 0 || in < out->next_ns)
            out->next_ns = in;
    }
    out->packs_scanned = present > out->packs_scanned ? present : out->packs_scanned;
}
