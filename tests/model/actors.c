/* The reader, the repacker, rm, and time. */
#include "tests/model/gcmodel.h"

/* ---- Reader: DESIGN section 5 ---- */

static void reader_ends(struct state *n, enum reader_pc pc)
{
    n->r_pc = (uint8_t)pc;
    n->r_slot = n->r_pack = n->r_excused = 0;
    n->r_before[P] = n->r_before[Q] = 0;
}

static void reader_load(const struct out *o, const struct state *s)
{
    struct state n = *s;
    uint8_t names = s->names[s->r_slot];

    if (!names) {
        /* After a removal "not found" is the truth. */
        reader_ends(&n, s->r_excused ? R_DONE : R_FAILED);
        out_step(o, &n, "finds the manifest gone");
        return;
    }
    n.r_pc = R_LOADED;
    n.r_pack = (uint8_t)(names - 1);
    out_step(o, &n,
             names - 1 == P ? "loads the manifest, naming P" : "loads the manifest, naming Q");
}

static void reader_read(const struct out *o, const struct state *s)
{
    struct state n = *s;

    if (s->pack[s->r_pack] == PACK_THERE) {
        reader_ends(&n, R_DONE);
        out_step(o, &n, "reads its chunks");
    } else {
        n.r_pc = R_RELOAD;
        out_step(o, &n, "finds the pack gone");
    }
}

static void reader_reload(const struct out *o, const struct state *s)
{
    struct state n = *s;
    uint8_t names = s->names[s->r_slot];
    bool ok = names && s->pack[names - 1] == PACK_THERE;

    reader_ends(&n, ok ? R_DONE : R_FAILED);
    out_step(o, &n,
             ok ? "loads the manifest again and reads its chunks"
                : "loads the manifest again, in vain");
}

void reader_steps(const struct config *cfg, struct mc *mc, const struct state *s)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = "reader"};
    struct state n = *s;

    if (!cfg->reader)
        return;
    switch (s->r_pc) {
    case R_IDLE:
        if (!s->meta_a)
            break;
        n.r_pc = R_RESOLVED;
        n.r_slot = (uint8_t)(s->meta_a - 1);
        n.r_excused = s->removed;
        out_step(&o, &n, "reads meta.json of A");
        break;
    case R_RESOLVED:
        reader_load(&o, s);
        break;
    case R_LOADED:
        n.r_pc = R_PINNED;
        n.r_before[P] = n.r_before[Q] = 0;
        out_step(&o, &n, "pins its generation and the pack");
        reader_read(&o, s);
        break;
    case R_PINNED:
        reader_read(&o, s);
        if (!s->names[s->r_slot] && !s->r_excused) {
            reader_ends(&n, R_FAILED);
            out_step(&o, &n, "opens its pinned generation again and finds the manifest gone");
        }
        break;
    case R_RELOAD:
        reader_reload(&o, s);
        break;
    default:
        break;
    }
}

/* ---- Repacker: DESIGN section 7, "Repacking" ---- */

static void repacker_ends(struct state *n, enum repacker_pc pc)
{
    if (n->lock == LOCK_REPACKER)
        n->lock = LOCK_FREE;
    n->k_pc = (uint8_t)pc;
    if (pc == K_DONE)
        n->k_slot = n->k_root = n->k_unseen = 0;
}

static void repacker_choose(const struct out *o, const struct state *s)
{
    static const char *const text[N_SLOTS] = {"takes up A's manifest 1", "takes up A's manifest 2",
                                              "takes up B's manifest", "takes up C's manifest"};
    struct state n = *s;

    for (unsigned slot = 0; slot < N_SLOTS; slot++) {
        if (s->names[slot] != 1 + P || !slot_is_committed(s, slot))
            continue;
        if (slot <= SLOT_A2 && !o->cfg->s3) {
            if (s->lock != LOCK_FREE)
                continue;
            n.lock = LOCK_REPACKER;
        }
        n.k_slot = (uint8_t)slot;
        n.k_pc = K_LOCKED;
        out_step(o, &n, text[slot]);
        n = *s;
    }
    repacker_ends(&n, K_DONE);
    out_step(o, &n, "leaves P closed");
}

static void repacker_check(const struct out *o, const struct state *s)
{
    struct state n = *s;
    bool listing = s->k_pc == K_ROOTED;
    bool fine = listing ? may_miss_closed(o->cfg, s, Q) : may_stat(s, Q);
    bool bad = listing ? s->closed[Q] != CLOSED_NO : may_miss_pack(s, Q);

    if (fine) {
        n.k_pc++;
        out_step(o, &n, listing ? "lists closed marks: Q has none" : "stats Q: there");
    }
    if (bad) {
        n = *s;
        repacker_ends(&n, K_DONE);
        out_step(o, &n, listing ? "finds Q closed and gives up" : "finds Q gone and gives up");
    }
}

static void repacker_read(const struct out *o, const struct state *s)
{
    struct state n = *s;
    bool root = s->k_root || o->cfg->wrong == WRONG_NO_ROOT || o->cfg->wrong == WRONG_ROOT_EXPIRES;

    if (s->names[s->k_slot] != 1 + P || !slot_is_committed(s, s->k_slot) || !root) {
        repacker_ends(&n, K_DONE);
        out_step(o, &n, "finds the manifest changed, or its root gone, and gives up");
        return;
    }
    n.k_pc = K_READ;
    out_step(o, &n, "reads the manifest once more: it names P still");
}

static void repacker_tail(const struct out *o, const struct state *s)
{
    struct state n = *s;

    if (s->k_pc == K_READ) {
        manifest_put(o->cfg, &n, s->k_slot, Q);
        n.k_pc = K_REPLACED;
        out_step(o, &n, "replaces the manifest: it names Q now");
    } else if (s->k_pc == K_REPLACED) {
        if (n.lock == LOCK_REPACKER)
            n.lock = LOCK_FREE;
        n.k_pc = K_UNLOCKED;
        out_step(o, &n, "lets the record go");
    } else {
        if (o->cfg->wrong != WRONG_ROOT_SHORT)
            n.unseen[s->k_slot] = 0; /* sigma has passed since the replacement */
        repacker_ends(&n, K_DONE);
        out_step(o, &n, "removes its temporary root");
    }
}

static void repacker_run(const struct out *o, const struct state *s)
{
    struct state n = *s;

    switch (s->k_pc) {
    case K_CLOSED:
        repacker_choose(o, s);
        break;
    case K_LOCKED:
        if (s->q_made) {
            repacker_ends(&n, K_DONE);
            out_step(o, &n, "leaves P closed");
            break;
        }
        n.q_made = 1;
        n.pack[Q] = PACK_THERE;
        n.k_pc = K_COPIED;
        out_step(o, &n, "copies the live chunks of P to the fresh pack Q");
        break;
    case K_COPIED:
        n.k_pc = K_ROOTED;
        if (o->cfg->wrong != WRONG_NO_ROOT) {
            n.k_root = 1;
            n.k_unseen = o->cfg->s3;
        }
        out_step(o, &n, n.k_root ? "puts a temporary root, naming Q" : "puts no temporary root");
        break;
    case K_ROOTED:
    case K_LISTED:
        repacker_check(o, s);
        break;
    case K_CHECKED:
        repacker_read(o, s);
        break;
    default:
        repacker_tail(o, s);
        break;
    }
}

void repacker_steps(const struct config *cfg, struct mc *mc, const struct state *s)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = "repacker"};
    struct state n = *s;

    if (!cfg->repacker || s->k_pc >= K_DONE)
        return;
    if (s->k_pc == K_IDLE) {
        if (s->pack[P] != PACK_THERE)
            return;
        pack_close(cfg, &n, P);
        n.k_pc = K_CLOSED;
        out_step(&o, &n, "marks P closed, to repack it");
        return;
    }
    repacker_run(&o, s);
    if (s->lock == LOCK_REPACKER || s->k_root) {
        repacker_ends(&n, K_DEAD);
        out_step(&o, &n, "crashes");
    }
}

/* ---- rm of A: DESIGN section 6 ---- */

static void remove_manifest(struct state *n, unsigned slot)
{
    n->names[slot] = 0;
    n->unseen[slot] = 0;
    n->age[slot] = AGE_YOUNG;
    n->before_meta[slot] = 0;
}

void rm_steps(const struct config *cfg, struct mc *mc, const struct state *s)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = "rm"};
    struct state n = *s;

    if (!cfg->rm || s->rm_pc >= RM_DONE)
        return;
    switch (s->rm_pc) {
    case RM_IDLE:
        if (!s->meta_a || (!cfg->s3 && s->lock != LOCK_FREE))
            return;
        if (!cfg->s3)
            n.lock = LOCK_RM;
        n.removed = 1;
        n.r_excused = reader_unpinned(s) || s->r_pc == R_PINNED;
        n.rm_pc = RM_TOMB;
        out_step(&o, &n, "puts the tombstone of A");
        return;
    case RM_TOMB:
        remove_manifest(&n, SLOT_A1);
        n.rm_pc = RM_FIRST;
        out_step(&o, &n, "deletes A's manifest 1");
        break;
    case RM_FIRST:
        remove_manifest(&n, SLOT_A2);
        n.rm_pc = RM_SECOND;
        out_step(&o, &n, "deletes A's manifest 2");
        break;
    default:
        n.meta_a = 0;
        n.meta_old = 0;
        n.lock = n.lock == LOCK_RM ? LOCK_FREE : n.lock;
        n.rm_pc = RM_DONE;
        out_step(&o, &n, "deletes A's meta.json");
        break;
    }
    n = *s;
    if (s->lock == LOCK_RM) {
        n.lock = LOCK_FREE;
        n.rm_pc = RM_DEAD;
        out_step(&o, &n, "crashes");
    }
}

/* ---- Time ---- */

/* Between its first check and its commit, which rests on it: 10 minutes as well. */
static bool writer_is_quick(const struct config *cfg, const struct writer *w)
{
    return w->quick && w->pc >= W_PRE && w->pc <= W_CHECKED && cfg->wrong != WRONG_QUICK_STALE;
}

/* A writer of this slot of A between its check and its commit: at most 10 minutes, on S3. */
static bool writer_in_window(const struct config *cfg, const struct state *s, unsigned slot)
{
    if (!cfg->s3 || cfg->wrong == WRONG_NO_WINDOW)
        return false;
    for (unsigned i = 0; i < N_WRITERS; i++) {
        if (cfg->writer[i] && cfg->slot[i] == slot &&
            (s->w[i].pc == W_LISTED || s->w[i].pc == W_CHECKED ? !s->w[i].quick : false))
            return true;
        if (cfg->writer[i] && cfg->slot[i] == slot && writer_is_quick(cfg, &s->w[i]))
            return true;
    }
    return false;
}

/* A writer between its first check and its put, which is bounded likewise. */
static bool writer_before_put(const struct config *cfg, const struct state *s, unsigned p)
{
    if (cfg->wrong == WRONG_PRECHECK_STALE)
        return false;
    for (unsigned i = 0; i < N_WRITERS; i++) {
        if ((s->w[i].pc == W_PRE || s->w[i].pc == W_PRE_OK) && s->w[i].pack == p)
            return cfg->wrong != WRONG_QUICK_STALE;
        if (s->w[i].pack == p && writer_is_quick(cfg, &s->w[i]))
            return true;
    }
    return false;
}

/* Whatever was put before the waiting began has become visible to every listing. */
static void all_seen(struct state *n, unsigned p)
{
    for (unsigned slot = 0; slot < N_SLOTS; slot++) {
        if (n->names[slot] == p + 1)
            n->unseen[slot] = 0;
    }
    if (p == Q)
        n->k_unseen = 0;
}

static void settle_pack(const struct out *o, const struct state *s, unsigned p)
{
    struct state n = *s;

    if (s->closed[p] == CLOSED_FRESH && !writer_before_put(o->cfg, s, p)) {
        n.closed[p] = CLOSED_SETTLED;
        all_seen(&n, p);
        out_step(o, &n,
                 p == P ? "sigma passes since P was closed" : "sigma passes since Q was closed");
        n = *s;
    }
    if (s->dead[p] == DEAD_FRESH && !(reader_unpinned(s) && s->r_before[p])) {
        n.dead[p] = DEAD_SETTLED;
        n.r_before[p] = 0;
        all_seen(&n, p);
        out_step(o, &n, p == P ? "gamma passes since P died" : "gamma passes since Q died");
    }
}

static void age_generation(const struct out *o, const struct state *s, unsigned slot)
{
    struct state n = *s;

    if (!s->names[slot] || s->age[slot] == AGE_DAY)
        return;
    if (s->age[slot] == AGE_HOUR && writer_in_window(o->cfg, s, slot))
        return;
    /* It was superseded, and put again after that: its reader has pinned it within the day. */
    if (s->age[slot] == AGE_HOUR && reader_unpinned(s) && s->r_slot == slot &&
        s->meta_a != slot + 1)
        return;
    n.age[slot]++;
    out_step(
        o, &n,
        s->age[slot] == AGE_YOUNG
            ? (slot ? "A's manifest 2 is over an hour old" : "A's manifest 1 is over an hour old")
            : (slot ? "A's manifest 2 is over a day old" : "A's manifest 1 is over a day old"));
}

void time_steps(const struct config *cfg, struct mc *mc, const struct state *s)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = "time", .sweep = true};
    struct state n = *s;

    for (unsigned p = 0; cfg->packs && p < N_PACKS; p++)
        settle_pack(&o, s, p);
    for (unsigned slot = 0; cfg->gens && slot < 2; slot++)
        age_generation(&o, s, slot);
    if (cfg->gens && s->meta_a && !s->meta_old &&
        !(reader_unpinned(s) && s->r_slot != s->meta_a - 1)) {
        n.meta_old = 1;
        out_step(&o, &n, "the grace passes since A's last commit");
        n = *s;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (s->intent[i] != INTENT_FRESH || writer_in_window(cfg, s, s->s[i].target))
            continue;
        n.intent[i] = INTENT_SETTLED;
        out_step(&o, &n, "sigma and 10 minutes pass since the intent");
        n = *s;
    }
    /* The root of a repacker that died, or on S3 of one that stalled outside its window. */
    if (s->k_root && (s->k_pc == K_DEAD || (cfg->s3 && s->k_pc == K_ROOTED) ||
                      (cfg->wrong == WRONG_ROOT_EXPIRES && s->k_pc < K_REPLACED))) {
        n.k_root = n.k_unseen = 0;
        if (s->k_pc == K_DEAD) {
            /* Twice the grace has passed since: what it put is visible everywhere. */
            n.unseen[s->k_slot] = 0;
            n.k_slot = 0;
        }
        out_step(&o, &n, "the repacker's root expires and is swept");
    }
}
