#include "tests/model/gcmodel.h"

#include <string.h>

/* Every field with its width in bits; the first group goes to word a, the second to word b. */
/* The formatter finds no end with these. */
/* clang-format off */
#define FIELDS_A(F) \
    F(pack[0], 2) F(pack[1], 2) F(closed[0], 2) F(closed[1], 2) F(dead[0], 2) F(dead[1], 2) \
    F(q_made, 1) F(names[0], 2) F(names[1], 2) F(names[2], 2) F(names[3], 2) F(unseen[0], 1) \
    F(unseen[1], 1) F(unseen[2], 1) F(unseen[3], 1) F(age[0], 2) F(age[1], 2) \
    F(before_meta[0], 1) F(before_meta[1], 1) F(staged[0], 1) F(staged[1], 1) F(meta_a, 2) \
    F(meta_old, 1) F(meta_b, 1) F(meta_c, 1) F(removed, 1) F(lock, 3) F(intent[0], 2) \
    F(intent[1], 2) F(rm_pc, 3) F(r_pc, 3)

#define FIELDS_B(F) \
    F(w[0].pc, 4) F(w[0].pack, 1) F(w[0].retried, 1) F(w[1].pc, 4) F(w[1].pack, 1) \
    F(w[1].retried, 1) F(w[2].pc, 4) F(w[2].pack, 1) F(w[2].retried, 1) F(s[0].pc, 4) \
    F(s[0].target, 1) F(s[0].why, 2) F(s[0].scanned, 4) F(s[0].stale, 1) F(s[1].pc, 4) \
    F(s[1].target, 1) F(s[1].why, 2) F(s[1].scanned, 4) F(s[1].stale, 1) F(r_slot, 1) \
    F(r_pack, 1) F(r_excused, 1) F(r_before[0], 1) F(r_before[1], 1) F(k_pc, 4) F(k_slot, 2) \
    F(k_root, 1) F(k_unseen, 1) F(w[0].quick, 1) F(w[1].quick, 1) F(w[2].quick, 1)
/* clang-format on */

#define WIDTH(field, bits) +(bits)
_Static_assert(0 FIELDS_A(WIDTH) <= 64, "word a is full");
_Static_assert(0 FIELDS_B(WIDTH) <= 64, "word b is full");

#define PUT(field, bits) word = word << (bits) | s->field;
#define GET(field, bits)                                                                           \
    shift -= (bits);                                                                               \
    s->field = (uint8_t)(word >> shift & ((1u << (bits)) - 1));

static struct mc_word pack(const struct state *s)
{
    struct mc_word w;
    uint64_t word = 0;

    FIELDS_A(PUT)
    w.a = word;
    word = 0;
    FIELDS_B(PUT)
    w.b = word;
    return w;
}

void state_unpack(struct mc_word w, struct state *s)
{
    uint64_t word = w.a;
    unsigned shift = 0 FIELDS_A(WIDTH);

    memset(s, 0, sizeof(*s));
    FIELDS_A(GET)
    word = w.b;
    shift = 0 FIELDS_B(WIDTH);
    FIELDS_B(GET)
}

static void swap_sweepers(struct state *s)
{
    struct sweeper first = s->s[0];
    uint8_t intent = s->intent[0];

    s->s[0] = s->s[1];
    s->s[1] = first;
    s->intent[0] = s->intent[1];
    s->intent[1] = intent;
    if (s->lock == LOCK_SWEEPER)
        s->lock = LOCK_SWEEPER + 1;
    else if (s->lock == LOCK_SWEEPER + 1)
        s->lock = LOCK_SWEEPER;
}

struct mc_word state_pack(const struct state *s, bool *swapped)
{
    struct mc_word w = pack(s), v;
    struct state other = *s;

    swap_sweepers(&other);
    v = pack(&other);
    *swapped = v.b < w.b || (v.b == w.b && v.a < w.a); /* an idle one comes first */
    return *swapped ? v : w;
}

void out_step(const struct out *o, const struct state *next, const char *what)
{
    bool swapped;
    struct mc_word w = state_pack(next, &swapped);

    mc_emit(o->mc, w, o->who, what, (o->sweep ? MC_SWEEP : 0) | (swapped ? MC_SWAPPED : 0));
}

bool slot_is_committed(const struct state *s, unsigned slot)
{
    switch (slot) {
    case SLOT_A1:
    case SLOT_A2:
        return s->meta_a == slot + 1;
    case SLOT_B:
        return s->meta_b;
    default:
        return s->meta_c;
    }
}

bool reader_unpinned(const struct state *s)
{
    return s->r_pc == R_RESOLVED || s->r_pc == R_LOADED || s->r_pc == R_RELOAD;
}

bool may_miss_closed(const struct config *cfg, const struct state *s, unsigned pack)
{
    if (s->closed[pack] == CLOSED_NO)
        return true;
    return cfg->s3 && s->closed[pack] == CLOSED_FRESH;
}

bool may_stat(const struct state *s, unsigned pack)
{
    return s->pack[pack] != PACK_NONE;
}

bool may_miss_pack(const struct state *s, unsigned pack)
{
    return s->pack[pack] != PACK_THERE;
}

void pack_close(const struct config *cfg, struct state *s, unsigned pack)
{
    /* On a directory sigma may be 0, which allows more than any other value. */
    if (s->pack[pack] == PACK_THERE && s->closed[pack] == CLOSED_NO)
        s->closed[pack] = cfg->s3 ? CLOSED_FRESH : CLOSED_SETTLED;
}

void manifest_put(const struct config *cfg, struct state *s, unsigned slot, unsigned pack)
{
    /* A listing that lags shows what was there before. */
    if (s->names[slot] != 1 + pack)
        s->unseen[slot] = cfg->s3 && cfg->packs;
    s->names[slot] = (uint8_t)(1 + pack);
    if (slot > SLOT_A2)
        return;
    s->age[slot] = AGE_YOUNG;
    s->before_meta[slot] = 0;
    for (unsigned i = 0; i < 2; i++) {
        if (s->s[i].pc >= G_PINS && s->s[i].target == slot)
            s->s[i].stale = 1;
    }
}
