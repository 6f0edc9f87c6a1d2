/* Publish and fork: DESIGN section 4, steps 4 to 6. */
#include "tests/model/gcmodel.h"

static const char *const who[N_WRITERS] = {"writer 1", "writer 2", "forker"};

static const char *const put_text[2] = {"puts the manifest, naming P",
                                        "puts the manifest, naming Q"};
static const char *const list_text[2] = {"lists closed marks: P has none",
                                         "lists closed marks: Q has none"};
static const char *const stat_text[2] = {"stats P: there", "stats Q: there"};
static const char *const closed_text[2] = {"finds P closed", "finds Q closed"};
static const char *const gone_text[2] = {"finds P gone", "finds Q gone"};

/* A's keys can be used again, so its writers hold its lock where the store has locks. */
static bool takes_lock(const struct config *cfg, unsigned i)
{
    return !cfg->s3 && cfg->slot[i] <= SLOT_A2;
}

static void finish(const struct config *cfg, struct state *n, unsigned i, enum writer_pc pc)
{
    n->w[i] = (struct writer){.pc = (uint8_t)pc};
    if (n->lock == LOCK_WRITER + i)
        n->lock = LOCK_FREE;
    if (pc == W_DEAD || cfg->slot[i] > SLOT_A2)
        return;
    n->staged[cfg->slot[i]] = 0;
}

/* Upload the chunks again into the successor; where that one is bad too, give up (the next try is
 * another publish). */
static void again(const struct out *o, struct state *n, unsigned i, const char *what)
{
    if (n->w[i].pack == P && o->cfg->successor) {
        n->w[i].pack = Q;
        n->w[i].pc = W_PACKED;
        if (!n->q_made) {
            n->q_made = 1;
            n->pack[Q] = PACK_THERE;
        }
    } else {
        finish(o->cfg, n, i, W_DEAD);
    }
    out_step(o, n, what);
}

static void restart(const struct out *o, struct state *n, unsigned i, const char *what)
{
    if (n->w[i].retried) {
        finish(o->cfg, n, i, W_DEAD);
    } else {
        n->w[i].retried = 1;
        n->w[i].pc = W_PACKED;
        if (!o->cfg->s3 && o->cfg->slot[i] <= SLOT_A2)
            n->staged[o->cfg->slot[i]] = 1;
    }
    out_step(o, n, what);
}

static void start(const struct out *o, const struct state *s, unsigned i)
{
    unsigned slot = o->cfg->slot[i];
    struct state n = *s;

    if (takes_lock(o->cfg, i)) {
        if (s->lock != LOCK_FREE)
            return;
        n.lock = (uint8_t)(LOCK_WRITER + i);
    }
    if (slot <= SLOT_A2 && !o->cfg->s3)
        n.staged[slot] = 1;
    n.w[i].pc = W_PACKED;
    if (i == FORK) {
        if (!s->meta_a || !s->names[s->meta_a - 1]) {
            finish(o->cfg, &n, i, W_DEAD);
            out_step(o, &n, "finds no record A to fork");
            return;
        }
        n.w[i].pack = (uint8_t)(s->names[s->meta_a - 1] - 1);
        out_step(o, &n, "reads the manifest of A");
        return;
    }
    n.w[i].pack = P;
    out_step(o, &n, "starts; the index says its chunks lie in P");
    if (s->q_made) {
        n.w[i].pack = Q;
        out_step(o, &n, "starts; the index says its chunks lie in Q");
    }
}

/* The most advanced intent of a sweeper to delete the generation at slot. */
static unsigned intent_on(const struct state *s, unsigned slot)
{
    unsigned found = INTENT_NO;

    for (unsigned k = 0; k < 2; k++) {
        if (s->s[k].target == slot && s->intent[k] > found)
            found = s->intent[k];
    }
    return found;
}

static void list_closed(const struct out *o, const struct state *s, unsigned i, enum writer_pc pc)
{
    unsigned pack = s->w[i].pack;
    struct state n = *s;

    if (may_miss_closed(o->cfg, s, pack)) {
        n.w[i].pc = (uint8_t)pc;
        out_step(o, &n, list_text[pack]);
    }
    if (s->closed[pack] != CLOSED_NO) {
        n = *s;
        again(o, &n, i, closed_text[pack]);
    }
}

/* The first check lists intents, too, where the second one rests on it. */
static void first_list(const struct out *o, const struct state *s, unsigned i)
{
    unsigned slot = o->cfg->slot[i];
    unsigned intent = slot <= SLOT_A2 ? intent_on(s, slot) : INTENT_NO;
    struct state n = *s;

    n.w[i].quick = o->cfg->quick;
    if (intent != INTENT_SETTLED || o->cfg->wrong == WRONG_QUICK_BLIND)
        list_closed(o, &n, i, W_PRE);
    n.w[i].quick = 0;
    if (intent != INTENT_NO && o->cfg->wrong != WRONG_QUICK_BLIND && o->cfg->quick)
        list_closed(o, &n, i, W_PRE);
}

/* What the first check saw is too old: before the put it is made again, after it all is looked at.
 */
static void slow_down(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (!s->w[i].quick || s->w[i].pc < W_PRE || s->w[i].pc > W_CHECKED)
        return;
    n.w[i].quick = 0;
    n.w[i].pc = s->w[i].pc < W_PUT ? W_PACKED : W_PUT;
    out_step(o, &n, "finds its first check 10 minutes old");
}

static void stat_pack(const struct out *o, const struct state *s, unsigned i, enum writer_pc pc)
{
    unsigned pack = s->w[i].pack;
    struct state n = *s;

    if (may_stat(s, pack)) {
        n.w[i].pc = (uint8_t)pc;
        out_step(o, &n, stat_text[pack]);
    }
    if (may_miss_pack(s, pack)) {
        n = *s;
        again(o, &n, i, gone_text[pack]);
    }
}

static void put(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    manifest_put(o->cfg, &n, o->cfg->slot[i], s->w[i].pack);
    n.w[i].pc = W_PUT;
    out_step(o, &n, put_text[s->w[i].pack]);
}

/* The check after the put: intents and closed marks are listed, then the rest is looked at. */
static void check_lists(const struct out *o, const struct state *s, unsigned i)
{
    unsigned slot = o->cfg->slot[i];
    struct state n = *s;

    if (slot <= SLOT_A2 && s->age[slot] != AGE_YOUNG && o->cfg->wrong != WRONG_NO_REFRESH) {
        manifest_put(o->cfg, &n, slot, s->w[i].pack);
        out_step(o, &n, "puts its manifest again, which is over an hour old");
        return;
    }
    if (slot <= SLOT_A2 && intent_on(s, slot) != INTENT_NO) {
        finish(o->cfg, &n, i, W_DEAD);
        out_step(o, &n, "sees a collector's intent and gives up: busy");
        if (intent_on(s, slot) == INTENT_SETTLED)
            return;
    }
    list_closed(o, s, i, s->w[i].quick ? W_CHECKED : W_LISTED);
}

static void check_stats(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (o->cfg->s3 && !s->names[o->cfg->slot[i]] && o->cfg->wrong != WRONG_NO_EXISTS) {
        restart(o, &n, i, "finds its manifest gone before the commit");
        return;
    }
    stat_pack(o, s, i, W_CHECKED);
}

static void commit(const struct out *o, const struct state *s, unsigned i)
{
    unsigned slot = o->cfg->slot[i];
    struct state n = *s;

    if (slot <= SLOT_A2 && !o->cfg->s3 && !s->staged[slot]) {
        restart(o, &n, i, "cannot rename its staged meta (fenced off) and starts again");
        return;
    }
    n.w[i].pc = W_COMMITTED;
    if (slot == SLOT_B) {
        n.meta_b = 1;
    } else if (slot == SLOT_C) {
        n.meta_c = 1;
    } else {
        n.staged[slot] = 0;
        n.meta_a = (uint8_t)(slot + 1);
        n.meta_old = 0;
        n.removed = 0;
        n.before_meta[0] = s->names[SLOT_A1] != 0;
        n.before_meta[1] = s->names[SLOT_A2] != 0;
        /* The meta is younger than any scan that began before. */
        for (unsigned k = 0; k < 2; k++) {
            if (s->s[k].pc >= G_PINS)
                n.s[k].stale = 1;
        }
    }
    if (s->w[i].quick) {
        struct state done = n;
        finish(o->cfg, &done, i, W_DONE);
        out_step(o, &done, "commits, in time, and is done");
        n.w[i].quick = 0;
    }
    out_step(o, &n, "commits");
}

static void look(const struct out *o, const struct state *s, unsigned i)
{
    struct state n = *s;

    if (!s->names[o->cfg->slot[i]]) {
        restart(o, &n, i, "finds its manifest gone after the commit");
        return;
    }
    finish(o->cfg, &n, i, W_DONE);
    out_step(o, &n, "finds its manifest there and is done");
}

void writer_steps(const struct config *cfg, struct mc *mc, const struct state *s, unsigned i)
{
    struct out o = {.mc = mc, .cfg = cfg, .who = who[i]};
    bool check_first = cfg->wrong == WRONG_CHECK_FIRST;
    struct state n = *s;

    if (!cfg->writer[i] || s->w[i].pc >= W_DONE)
        return;
    switch (s->w[i].pc) {
    case W_START:
        start(&o, s, i);
        return;
    case W_PACKED:
        if (check_first)
            list_closed(&o, s, i, W_LISTED);
        else if (cfg->precheck && cfg->wrong != WRONG_TWIN_UNCHECKED)
            first_list(&o, s, i);
        else
            put(&o, s, i);
        break;
    case W_PRE:
        stat_pack(&o, s, i, W_PRE_OK);
        break;
    case W_PRE_OK:
        put(&o, s, i);
        break;
    case W_PUT:
        if (check_first)
            commit(&o, s, i);
        else
            check_lists(&o, s, i);
        break;
    case W_LISTED:
        check_stats(&o, s, i);
        break;
    case W_CHECKED:
        if (check_first)
            put(&o, s, i);
        else
            commit(&o, s, i);
        break;
    default:
        look(&o, s, i);
        break;
    }
    slow_down(&o, s, i);
    if (s->lock == LOCK_WRITER + i) {
        finish(cfg, &n, i, W_DEAD);
        out_step(&o, &n, "crashes");
    }
}
