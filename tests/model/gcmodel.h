/* The model of the collector's protocol (docs/protocol-collector.md): its state, and what each
 * actor may do next. model.c holds the scenes and the known-wrong variants, mc.h the search.
 *
 * What is modelled. Two packs: P, which is old, and Q, its one successor, made by whoever first
 * copies the chunks of P elsewhere. Three records: A (a template, two generations: slots 0 and 1),
 * B (slot 2) and C (the fork of A, slot 3). A slot is the key of a manifest: absent, or naming P or
 * Q. Every request to the store (put, list, stat, get, delete, rename) is one step of its own, so
 * that everything can move between any two of them; a scan is one step for each key that it reads,
 * in any order among the manifests.
 *
 * The abstraction, and why it is sound: each rule below only adds behaviours, or removes some whose
 * outcome another one has.
 *  - No clock. An age is a flag ("closed for sigma", "older than 24 h") that may be raised at any
 *    moment, or never: actors may so stall for any time. Where the protocol states a bound, raising
 *    the flag is refused while the bounded section runs: reader_unpinned (half the grace until a
 *    pin) and, on S3 only, writer_in_window (10 minutes from check to commit, or from the first
 *    check to the commit where the second one rests on it).
 *  - Ages are taken against the probe of the scan's start: what was put or committed after a job
 *    began is new to it (`stale`).
 *  - A store whose listings lag (S3 here stands for the worst of them): a closed mark younger than
 *    sigma, and a manifest or temporary root not yet settled, may be missed by a listing or seen.
 * As sigma is twice the worst lag, whatever was put before the mark was visible everywhere is
 *    visible when sigma has passed; what was put between the two behaves as if put just after. A
 *    deleted pack may still answer a stat until its marks are taken away.
 *  - Any sweeper may close any pack at any moment: which packs the first scan picks, and their age,
 *    decide how much work is done, and nothing about safety.
 *  - A sweeper does one job at a time: one pack, or one generation. A real sweep decides about many
 *    from one scan; but a decision about one pack reads nothing that a decision about another one
 *    writes except manifests and marks, which the second sweeper moves at any time.
 *  - Manifests name one pack. One that names several is safe when it is safe for each of them:
 * check, scan and delete treat them one by one.
 *  - A reader reads once, at any moment that its rules allow: every read is the one checked in some
 *    run. A generation's bytes are not modelled, only where they lie.
 *  - An actor that crashes is one that stalls for ever, unless it holds a lock or a root, which its
 *    death gives away: only there crashing is a step. Garbage must go from every state in which
 *    nobody else moves any more and no living actor holds a lock, a pin or a root.
 *  - The two sweepers are alike: of two states that differ in who is who, one is kept.
 * Not modelled: rm of a record beside a publish of the same record on S3 (whoever is last wins, and
 * nothing orders them; docs/protocol.md), failing requests (a scan that fails decides nothing),
 * damaged objects, retention (it is rm by the sweep, under the same lock), clocks that jump, two
 * repackers (marks and locks make the second one an idle one), identical meta with different bytes.
 */
#ifndef CAIRN_TESTS_MODEL_GCMODEL_H
#define CAIRN_TESTS_MODEL_GCMODEL_H

#include "tests/model/mc.h"

enum { P = 0, Q = 1, N_PACKS = 2 };
enum { SLOT_A1, SLOT_A2, SLOT_B, SLOT_C, N_SLOTS };
enum { W0, W1, FORK, N_WRITERS };

/* Protocols that differ from the right one in one point. */
enum wrong {
    RIGHT,
    WRONG_CHECK_FIRST,        /* packs checked before the manifest is visible */
    WRONG_COMMITTED_FIRST,    /* a scan reads committed manifests first, uncommitted ones after */
    WRONG_PINS_LAST,          /* a scan reads pins after manifests */
    WRONG_RESCIND,            /* a closed mark is taken back when a reference turns up */
    WRONG_NO_DEAD,            /* deleted at the second scan */
    WRONG_NO_SECOND_SCAN,     /* dead at the end of sigma without looking again */
    WRONG_NO_GAMMA,           /* a dead pack is deleted without waiting */
    WRONG_NO_SIGMA,           /* second scan without waiting, where listings lag */
    WRONG_ELIGIBLE_LATE,      /* ages taken at the end of the scan, not at its start */
    WRONG_MARKS_AT_ONCE,      /* marks go with the pack, where a stat may lie for a while */
    WRONG_NO_ROOT,            /* repacker without a temporary root */
    WRONG_ROOT_SHORT,         /* root removed before the replaced manifest is seen everywhere */
    WRONG_ROOT_EXPIRES,       /* root of a stalled repacker expires without its record's lock */
    WRONG_NO_FENCE,           /* uncommitted generations expired with neither fence nor lock */
    WRONG_LOCK_ONLY,          /* the record's lock, but no staged meta renamed away */
    WRONG_FENCE_ONLY,         /* staged meta renamed away, then the manifest deleted, no lock */
    WRONG_SUPERSEDED_NO_LOCK, /* superseded generations deleted without the record's lock */
    WRONG_ONE_RULE,           /* every manifest that is not current counts as superseded */
    WRONG_NO_PINS,            /* superseded generations deleted without a look at pins */
    WRONG_NO_INTENT,          /* S3: manifest and meta looked at again just before the delete */
    WRONG_NO_EXISTS,          /* S3: the check does not look whether the manifest is there */
    WRONG_NO_WINDOW,          /* S3: any time may pass between check and commit */
    WRONG_NO_REFRESH,         /* a manifest older than an hour is not put again before the check */
    WRONG_TWIN_UNCHECKED,     /* S3: a manifest is put over another one unchecked */
    WRONG_PRECHECK_STALE,     /* S3: any time may pass between the first check and the put */
    WRONG_QUICK_STALE,        /* S3: looks that were saved for being recent may be of any age */
    WRONG_QUICK_BLIND,        /* S3: they are saved without a look at intents in the first check */
};

struct config {
    const char *name;
    bool s3;
    enum wrong wrong;
    bool writer[N_WRITERS];
    uint8_t slot[N_WRITERS]; /* which manifest each publishes */
    bool two_sweepers, reader, repacker, rm;
    bool packs;    /* sweeps close, kill and delete packs */
    bool gens;     /* sweeps delete superseded and uncommitted generations of A */
    bool lean;     /* the third scan reads pins only */
    bool precheck; /* writers check before the put as well (S3) */
    bool quick;    /* and do not look again within 10 minutes at what that check saw */
    bool successor;
    bool garbage; /* check as well that all garbage can be collected */
};

enum writer_pc {
    W_START,
    W_PACKED,  /* packs are there as far as it knows, meta is staged */
    W_PRE,     /* precheck: nothing closed was listed */
    W_PRE_OK,  /* precheck: packs are there */
    W_PUT,     /* manifest is visible */
    W_LISTED,  /* check: nothing closed, no intent was listed */
    W_CHECKED, /* check: packs and manifest are there */
    W_COMMITTED,
    W_DONE,
    W_DEAD, /* crashed or given up */
};

enum sweeper_pc {
    S_IDLE,
    S_PIN_READER,
    S_PIN_ROOT,
    S_SCAN,
    S_ACT,
    S_DELETED, /* the pack is gone, its marks are not */
    G_PINS,
    G_LOOK,
    G_ACQUIRE, /* decided: take the record's lock or put an intent */
    G_WAIT,    /* S3: the intent lies there */
    G_AGAIN,   /* look again, under the lock */
    G_FENCE,
    G_DELETE,
    G_RELEASE,
};

enum { JOB_NONE, JOB_KILL, JOB_DELETE };
enum { WHY_SUPERSEDED = 1, WHY_UNCOMMITTED };

enum reader_pc { R_IDLE, R_RESOLVED, R_LOADED, R_PINNED, R_RELOAD, R_DONE, R_FAILED };

enum repacker_pc {
    K_IDLE,
    K_CLOSED,
    K_LOCKED,
    K_COPIED,
    K_ROOTED,
    K_LISTED,
    K_CHECKED,
    K_READ,
    K_REPLACED,
    K_UNLOCKED,
    K_DONE,
    K_DEAD,
};

enum rm_pc { RM_IDLE, RM_TOMB, RM_FIRST, RM_SECOND, RM_DONE, RM_DEAD };

enum { PACK_NONE, PACK_THERE, PACK_LINGERS }; /* lingers: deleted, but a stat may not know */
enum { CLOSED_NO, CLOSED_FRESH, CLOSED_SETTLED };
enum { DEAD_NO, DEAD_FRESH, DEAD_SETTLED };
enum { AGE_YOUNG, AGE_HOUR, AGE_DAY };
enum { INTENT_NO, INTENT_FRESH, INTENT_SETTLED };
enum { LOCK_FREE, LOCK_WRITER, LOCK_SWEEPER = LOCK_WRITER + 2, LOCK_REPACKER = 5, LOCK_RM };

struct writer {
    uint8_t pc, pack, retried;
    uint8_t quick; /* its first check is not 10 minutes old, and saw no intent */
};

struct sweeper {
    uint8_t pc;
    uint8_t target; /* pack, or slot of A */
    uint8_t why;    /* JOB_ or WHY_ */
    uint8_t scanned;
    uint8_t stale; /* what it looks at changed after its scan began */
};

struct state {
    uint8_t pack[N_PACKS], closed[N_PACKS], dead[N_PACKS];
    uint8_t q_made;
    uint8_t names[N_SLOTS];                    /* 0: no manifest; else 1 + the pack it names */
    uint8_t unseen[N_SLOTS];                   /* S3: a listing may miss it */
    uint8_t age[2], before_meta[2], staged[2]; /* of slots 0 and 1 */
    uint8_t meta_a;                            /* 0: none; else 1 + slot */
    uint8_t meta_old;                          /* committed longer ago than the grace */
    uint8_t meta_b, meta_c;
    uint8_t removed; /* rm of A has begun, and no publish has ended since */
    uint8_t lock;    /* of record A (directory) */
    uint8_t intent[2];
    struct writer w[N_WRITERS];
    struct sweeper s[2];
    uint8_t r_pc, r_slot, r_pack;
    uint8_t r_excused;         /* rm of A had begun when it resolved, or has since */
    uint8_t r_before[N_PACKS]; /* resolved before the pack was marked dead */
    uint8_t k_pc, k_slot, k_root, k_unseen;
    uint8_t rm_pc;
};

/* In the order that is kept of the two sweepers; swapped: that is not the one of s. */
struct mc_word state_pack(const struct state *s, bool *swapped);
void state_unpack(struct mc_word w, struct state *s);

/* Where an actor's steps go. */
struct out {
    struct mc *mc;
    const struct config *cfg;
    const char *who;
    bool sweep; /* the collector's or time's */
};

void out_step(const struct out *o, const struct state *next, const char *what);

void writer_steps(const struct config *cfg, struct mc *mc, const struct state *s, unsigned i);
void sweeper_steps(const struct config *cfg, struct mc *mc, const struct state *s, unsigned i);
void reader_steps(const struct config *cfg, struct mc *mc, const struct state *s);
void repacker_steps(const struct config *cfg, struct mc *mc, const struct state *s);
void rm_steps(const struct config *cfg, struct mc *mc, const struct state *s);
void time_steps(const struct config *cfg, struct mc *mc, const struct state *s);

/* Which slot's generation is the committed one; false: slot's is not. */
bool slot_is_committed(const struct state *s, unsigned slot);
/* Reader that resolved its generation and has neither finished nor pinned it. */
bool reader_unpinned(const struct state *s);
/* A listing (closed = true: of closed marks) can miss what it shows / can show it. */
bool may_miss_closed(const struct config *cfg, const struct state *s, unsigned pack);
bool may_stat(const struct state *s, unsigned pack);
bool may_miss_pack(const struct state *s, unsigned pack);
void pack_close(const struct config *cfg, struct state *s, unsigned pack);
/* A manifest becomes visible at slot. */
void manifest_put(const struct config *cfg, struct state *s, unsigned slot, unsigned pack);

#endif
