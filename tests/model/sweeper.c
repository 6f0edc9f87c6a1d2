/* The collector's jobs: one pack (DESIGN section 7, A to D), or one generation. */
#include "tests/model/gcmodel.h"

static const char *const who[2] = {"sweeper 1", "sweeper 2"};

static void to_idle(struct state *n, unsigned i)
{
    n->s[i] = (struct sweeper){0};
}

static unsigned all_slots(const struct config *cfg)
{
    return cfg->wrong == WRONG_COMMITTED_FIRST ? 2 * N_SLOTS : (1u << N_SLOTS) - 1;
}

/* Keys that no actor of this scene ever makes need no reading. */
static uint8_t unused_slots(const struct config *cfg)
{
    unsigned used = 1u << SLOT_A1;

    if (cfg->wrong == WRONG_COMMITTED_FIRST)
        return 0;
    for (unsigned i = 0; i < N_WRITERS; i++)
        used |= cfg->writer[i] ? 1u << cfg->slot[i] : 0;
    return (uint8_t)(all_slots(cfg) & ~used);
}

static unsigned job_of(const struct config *cfg, const struct state *s, unsigned p)
{
    bool closed =
        cfg->wrong == WRONG_NO_SIGMA ? s->closed[p] != CLOSED_NO : s->closed[p] == CLOSED_SETTLED;
    bool dead = cfg->wrong == WRONG_NO_GAMMA ? s->dead[p] != DEAD_NO : s->dead[p] == DEAD_SETTLED;

    if (s->pack[p] != PACK_THERE)
        return JOB_NONE;
    if (s->dead[p] == DEAD_NO)
        return closed ? JOB_KILL : JOB_NONE;
    return dead ? JOB_DELETE : JOB_NONE;
}

static void start_pack(const struct out *o, const struct state *s, unsigned i, unsigned p)
{
    static const char *const text[3][2] = {
        {"begins a scan about P", "begins a scan about Q"},
        {"begins a scan: P has been closed for sigma",
         "begins a scan: Q has been closed for sigma"},
        {"begins a scan: P has been dead for gamma", "begins a scan: Q has been dead for gamma"},
    };
    unsigned job = job_of(o->cfg, s, p);
    struct state n = *s;

    if (s->pack[p] == PACK_THERE && s->closed[p] == CLOSED_NO && i == 0) {
        pack_close(o->cfg, &n, p);
        out_step(o, &n, p == P ? "marks P closed" : "marks Q closed");
        n = *s;
    }
    if (job == JOB_NONE && !(o->cfg->wrong == WRONG_ELIGIBLE_LATE && s->pack[p] == PACK_THERE))
        return;
    n.s[i].target = (uint8_t)p;
    n.s[i].why = (uint8_t)job;
    n.s[i].scanned = unused_slots(o->cfg);
    if (o->cfg->wrong == WRONG_NO_SECOND_SCAN && job == JOB_KILL) {
        n.s[i].pc = S_ACT;
        out_step(o, &n, "does not scan again");
        return;
    }
    n.s[i].pc = S_PIN_READER;
    if (o->cfg->wrong == WRONG_PINS_LAST && !(o->cfg->lean && job == JOB_DELETE))
        n.s[i].pc = S_SCAN;
    out_step(o, &n, text[job][p]);
}

static void start_gen(const struct out *o, const struct state *s, unsigned i, unsigned slot)
{
    struct state n = *s;
    unsigned why;

    if (!s->names[slot] || s->meta_a == slot + 1)
        return;
    /* A manifest put before the current meta was superseded by it or by an earlier one. */
    if (s->meta_a && s->meta_old && (s->before_meta[slot] || o->cfg->wrong == WRONG_ONE_RULE))
        why = WHY_SUPERSEDED;
    else if (!(s->meta_a && s->before_meta[slot]) && s->age[slot] == AGE_DAY)
        why = WHY_UNCOMMITTED;
    else
        return;
    n.s[i] = (struct sweeper){.pc = G_PINS, .target = (uint8_t)slot, .why = (uint8_t)why};
    out_step(o, &n,
             why == WHY_SUPERSEDED
                 ? (slot ? "begins: the grace of A's generation 2 is over"
                         : "begins: the grace of A's generation 1 is over")
                 : (slot ? "begins: A's generation 2 has been uncommitted for a day"
                         : "begins: A's generation 1 has been uncommitted for a day"));
}

static void found(const struct out *o, const struct state *s, unsigned i, const char *what)
{
    struct state n = *s;

    if (o->cfg->wrong == WRONG_RESCIND && s->s[i].why == JOB_KILL)
        n.closed[s->s[i].target] = CLOSED_NO;
    to_idle(&n, i);
    out_step(o, &n, what);
}

static void after_pins(const struct out *o, struct state *n, unsigned i, const char *what)
{
    bool last = o->cfg->wrong == WRONG_PINS_LAST || (o->cfg->lean && n->s[i].why == JOB_DELETE);

    n->s[i].pc = last ? S_ACT : S_SCAN;
    if (last)
        n->s[i].scanned = 0;
    out_step(o, n, what);
}

static void pin_reader(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (s->r_pc == R_PINNED && s->r_pack == s->s[i].target) {
        found(o, s, i, "sees the reader's pin");
        return;
    }
    if (o->cfg->repacker && s->s[i].target == Q) {
        n.s[i].pc = S_PIN_ROOT;
        out_step(o, &n, "sees no reader's pin");
        return;
    }
    after_pins(o, &n, i, "sees no pin");
}

static void pin_root(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (s->k_root)
        found(o, s, i, "sees the repacker's root");
    if (!s->k_root || s->k_unseen)
        after_pins(o, &n, i, "sees no repacker's root");
}

/* Read the manifest at slot, if this scan can be at it. */
static void scan_slot(const struct out *o, const struct state *s, unsigned i, unsigned slot)
{
    static const char *const names_it[N_SLOTS] = {
        "reads A's manifest 1: it names the pack", "reads A's manifest 2: it names the pack",
        "reads B's manifest: it names the pack", "reads C's manifest: it names the pack"};
    static const char *const names_not[N_SLOTS] = {
        "reads A's manifest 1: absent or without the pack",
        "reads A's manifest 2: absent or without the pack",
        "reads B's manifest: absent or without the pack",
        "reads C's manifest: absent or without the pack"};
    struct state n = *s;
    bool names = s->names[slot] == s->s[i].target + 1;
    bool skip = false;

    if (o->cfg->wrong == WRONG_COMMITTED_FIRST) {
        if (s->s[i].scanned % N_SLOTS != slot)
            return;
        skip = slot_is_committed(s, slot) != (s->s[i].scanned < N_SLOTS);
        n.s[i].scanned++;
    } else {
        if (s->s[i].scanned >> slot & 1)
            return;
        n.s[i].scanned |= (uint8_t)(1u << slot);
    }
    if (names && !skip)
        found(o, s, i, names_it[slot]);
    if (names && !skip && !s->unseen[slot])
        return;
    if (n.s[i].scanned == all_slots(o->cfg)) {
        n.s[i].scanned = 0;
        n.s[i].pc = o->cfg->wrong == WRONG_PINS_LAST ? S_PIN_READER : S_ACT;
    }
    out_step(o, &n, skip ? "skips a manifest of the other kind" : names_not[slot]);
}

static void act(const struct out *o, const struct state *s, unsigned i)
{
    static const char *const dead_text[2] = {"marks P dead", "marks Q dead"};
    static const char *const delete_text[2] = {"deletes P", "deletes Q"};
    unsigned p = s->s[i].target;
    unsigned job = o->cfg->wrong == WRONG_ELIGIBLE_LATE ? job_of(o->cfg, s, p) : s->s[i].why;
    struct state n = *s;

    to_idle(&n, i);
    if (job == JOB_KILL && o->cfg->wrong == WRONG_NO_DEAD)
        job = JOB_DELETE;
    switch (job) {
    case JOB_KILL:
        if (n.pack[p] == PACK_THERE && n.dead[p] == DEAD_NO) {
            n.dead[p] = DEAD_FRESH;
            n.r_before[p] = reader_unpinned(s);
        }
        out_step(o, &n, dead_text[p]);
        break;
    case JOB_DELETE:
        if (n.pack[p] == PACK_THERE)
            n.pack[p] = o->cfg->s3 ? PACK_LINGERS : PACK_NONE;
        if (o->cfg->wrong == WRONG_MARKS_AT_ONCE)
            n.closed[p] = n.dead[p] = 0;
        out_step(o, &n, delete_text[p]);
        break;
    default:
        out_step(o, &n, "has nothing to do");
        break;
    }
}

/* Marks of a pack that has been gone for sigma. */
static void remove_marks(const struct out *o, const struct state *s)
{
    for (unsigned p = 0; p < N_PACKS; p++) {
        struct state n = *s;

        if (s->pack[p] == PACK_THERE || (s->closed[p] == CLOSED_NO && s->pack[p] == PACK_NONE))
            continue;
        n.pack[p] = PACK_NONE;
        n.closed[p] = CLOSED_NO;
        n.dead[p] = DEAD_NO;
        n.r_before[p] = 0;
        out_step(o, &n, p == P ? "takes the marks of P away" : "takes the marks of Q away");
    }
}

static void finish_tomb(const struct out *o, const struct state *s)
{
    struct state n = *s;

    if (s->rm_pc != RM_DEAD || !s->removed || s->lock != LOCK_FREE || !s->meta_a)
        return;
    n.names[SLOT_A1] = n.names[SLOT_A2] = 0;
    n.meta_a = 0;
    out_step(o, &n, "finishes the removal of A");
}

/* ---- Generations of A ---- */

static bool gen_uses_lock(const struct config *cfg, const struct sweeper *me)
{
    if (cfg->s3 || cfg->wrong == WRONG_NO_FENCE || cfg->wrong == WRONG_FENCE_ONLY)
        return false;
    return cfg->wrong != WRONG_SUPERSEDED_NO_LOCK || me->why != WHY_SUPERSEDED;
}

static bool gen_still_due(const struct state *s, unsigned i)
{
    const struct sweeper *me = &s->s[i];

    return s->names[me->target] && s->meta_a != me->target + 1 && !me->stale;
}

static void gen_release(struct state *n, unsigned i)
{
    if (n->lock == LOCK_SWEEPER + i)
        n->lock = LOCK_FREE;
    n->intent[i] = INTENT_NO;
    to_idle(n, i);
}

static void gen_pins(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (s->r_pc == R_PINNED && s->r_slot == s->s[i].target && o->cfg->wrong != WRONG_NO_PINS) {
        to_idle(&n, i);
        out_step(o, &n, "sees a pin of that generation");
        return;
    }
    n.s[i].pc = G_LOOK;
    out_step(o, &n, "sees no pin of that generation");
}

static void gen_look(const struct out *o, const struct state *s, unsigned i, enum sweeper_pc pc,
                     const char *what)
{
    struct state n = *s;

    if (!gen_still_due(s, i)) {
        gen_release(&n, i);
        out_step(o, &n, "sees that the generation is no longer due");
        return;
    }
    n.s[i].pc = (uint8_t)pc;
    out_step(o, &n, what);
}

static void gen_acquire(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (o->cfg->s3) {
        if (o->cfg->wrong == WRONG_NO_INTENT) {
            n.s[i].pc = G_AGAIN;
            out_step(o, &n, "goes on without an intent");
        } else {
            n.intent[i] = INTENT_FRESH;
            n.s[i].pc = G_WAIT;
            out_step(o, &n, "puts its intent to delete that generation");
        }
        return;
    }
    if (gen_uses_lock(o->cfg, &s->s[i])) {
        if (s->lock != LOCK_FREE) {
            to_idle(&n, i);
            out_step(o, &n, "finds record A locked and leaves it");
            return;
        }
        n.lock = (uint8_t)(LOCK_SWEEPER + i);
    }
    n.s[i].pc = G_AGAIN;
    out_step(o, &n,
             gen_uses_lock(o->cfg, &s->s[i]) ? "locks record A" : "goes on without the lock");
}

static void gen_fence(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (!s->staged[s->s[i].target] && o->cfg->wrong == WRONG_FENCE_ONLY) {
        gen_release(&n, i);
        out_step(o, &n, "finds no staged meta to rename away and leaves the generation");
        return;
    }
    n.staged[s->s[i].target] = 0;
    n.s[i].pc = G_DELETE;
    out_step(o, &n, "renames the staged meta away");
}

static void gen_delete(const struct out *o, const struct state *s, unsigned i)
{
    unsigned slot = s->s[i].target;
    struct state n = *s;

    n.names[slot] = 0;
    n.unseen[slot] = 0;
    n.age[slot] = AGE_YOUNG;
    n.before_meta[slot] = 0;
    n.s[i].pc = G_RELEASE;
    out_step(o, &n, slot ? "deletes A's manifest 2" : "deletes A's manifest 1");
}

static void generation(const struct out *o, const struct state *s, unsigned i)
{
    bool fence = !o->cfg->s3 && s->s[i].why == WHY_UNCOMMITTED && o->cfg->wrong != WRONG_NO_FENCE &&
                 o->cfg->wrong != WRONG_LOCK_ONLY;
    struct state n = *s;

    switch (s->s[i].pc) {
    case G_PINS:
        gen_pins(o, s, i);
        break;
    case G_LOOK:
        gen_look(o, s, i, G_ACQUIRE, "reads meta.json: that generation is not the committed one");
        break;
    case G_ACQUIRE:
        gen_acquire(o, s, i);
        break;
    case G_WAIT:
        if (s->intent[i] == INTENT_SETTLED)
            gen_look(o, s, i, G_DELETE, "looks at manifest and meta again: still so");
        break;
    case G_AGAIN:
        gen_look(o, s, i, fence ? G_FENCE : G_DELETE, "looks at manifest and meta again: still so");
        break;
    case G_FENCE:
        gen_fence(o, s, i);
        break;
    case G_DELETE:
        gen_delete(o, s, i);
        break;
    default:
        gen_release(&n, i);
        out_step(o, &n, "is done with record A");
        return;
    }
}

void sweeper_steps(const struct config *cfg, struct mc *mc, const struct state *s, unsigned i)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = who[i], .sweep = true};
    struct state n = *s;

    if (i == 1 && !cfg->two_sweepers)
        return;
    switch (s->s[i].pc) {
    case S_IDLE:
        for (unsigned p = 0; cfg->packs && p < N_PACKS; p++)
            start_pack(&o, s, i, p);
        for (unsigned slot = 0; cfg->gens && slot < 2; slot++)
            start_gen(&o, s, i, slot);
        if (i == 0) {
            remove_marks(&o, s);
            finish_tomb(&o, s);
        }
        return;
    case S_PIN_READER:
        pin_reader(&o, s, i);
        return;
    case S_PIN_ROOT:
        pin_root(&o, s, i);
        return;
    case S_SCAN:
        for (unsigned slot = 0; slot < N_SLOTS; slot++)
            scan_slot(&o, s, i, slot);
        return;
    case S_ACT:
        act(&o, s, i);
        return;
    default:
        generation(&o, s, i);
        if (s->lock == LOCK_SWEEPER + i) {
            o.sweep = false;
            gen_release(&n, i);
            out_step(&o, &n, "crashes");
        }
        return;
    }
}
