/* Checks the collector's protocol exhaustively, scene by scene; that each known-wrong variant of it
 * loses data; and which of its rules are margins, without which nothing would be lost.
 *
 * A scene is a choice of actors, since all of them at once have too many states. Together the
 * scenes hold every pair of actors with both sweepers, and the triples in which one moves what
 * another reads and a third deletes.
 *
 *   model                 all scenes and variants; the last line is "N passed, N failed"
 *   model --trace [NAME]  only those whose name contains NAME; also print the shortest way to each
 *                         loss
 *   model --deep          only the largest scenes (minutes, some GiB) */
#include "tests/model/gcmodel.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_STATES 100000000u /* 3.5 GiB */

struct scene {
    const char *loses; /* NULL: must be safe; else the loss it must be caught at */
    struct config cfg;
};

static const char lost_manifest[] = "a committed record's manifest is gone";
static const char lost_pack[] = "a committed record names a pack that is gone";
static const char lost_reader[] = "a reader within its rules finds its data gone";

/* ---- Scenes ---- */

#define PACKS                                                                                      \
    .packs = true, .successor = true, .two_sweepers = true, .slot = {SLOT_B, SLOT_A2, SLOT_C}
#define GENS      .gens = true, .two_sweepers = true, .slot = {SLOT_A2, SLOT_A1, SLOT_C}
#define TWIN_GENS .gens = true, .two_sweepers = true, .slot = {SLOT_A2, SLOT_A2, SLOT_C}
#define TWINS                                                                                      \
    .packs = true, .successor = true, .two_sweepers = true, .s3 = true,                            \
    .slot = {SLOT_B, SLOT_B, SLOT_C}

#define DIR   .s3 = false
#define S3    .s3 = true
#define BOTH  .writer = {true, true, false}
#define PUB_A .writer = {false, true, false}
#define PUB_B .writer = {true, false, false}
#define PUB_F .writer = {true, false, true}
#define QUICK .precheck = true, .quick = true
#define FORKS .writer = {false, false, true}

static const struct scene scenes[] = {
    {NULL, {"publish, fork, rm, read (dir)", PACKS, DIR, PUB_F, .reader = true, .rm = true}},
    {NULL, {"two publishes, rm (dir)", PACKS, DIR, BOTH, .rm = true, .garbage = true}},
    {NULL, {"publish, fork, rm (S3)", PACKS, S3, PUB_F, .rm = true}},
    {NULL,
     {"publish, rm, read (S3)", PACKS, S3, PUB_B, .reader = true, .rm = true, .garbage = true}},
    {NULL,
     {"repack, rm, read (dir)", PACKS, DIR, .repacker = true, .reader = true, .rm = true,
      .garbage = true}},
    {NULL,
     {"repack, publish, rm (dir)", PACKS, DIR, PUB_B, .repacker = true, .rm = true,
      .garbage = true}},
    {NULL, {"repack, fork, rm (S3)", PACKS, S3, FORKS, .repacker = true, .rm = true}},
    {NULL, {"repack, publish, rm (S3)", PACKS, S3, PUB_B, .repacker = true, .rm = true}},
    {NULL,
     {"repack, rm, read (S3)", PACKS, S3, .repacker = true, .reader = true, .rm = true,
      .garbage = true}},
    {NULL,
     {"repack, fork, rm, read (dir)", PACKS, DIR, FORKS, .repacker = true, .reader = true,
      .rm = true}},
    {NULL,
     {"repack, publish, rm, read (dir)", PACKS, DIR, PUB_B, .repacker = true, .reader = true,
      .rm = true}},
    {NULL,
     {"repack, publish, fork, read (dir)", PACKS, DIR, PUB_F, .repacker = true, .reader = true}},
    {NULL,
     {"generations: two publishes, read, rm (dir)", GENS, DIR, BOTH, .reader = true, .rm = true,
      .garbage = true}},
    {NULL,
     {"generations: two publishes, read (S3)", GENS, S3, BOTH, .reader = true, .garbage = true}},
    {NULL,
     {"generations and packs: publish, read (dir)", PACKS, .gens = true, DIR, PUB_A, .reader = true,
      .garbage = true}},
    {NULL,
     {"generations and packs: publish (S3)", PACKS, .gens = true, S3, PUB_A, .garbage = true}},
    {NULL,
     {"generations and packs: publish, repack (dir)", PACKS, .gens = true, DIR, PUB_A,
      .repacker = true, .garbage = true}},
    {NULL,
     {"generations: publish, repack, read (dir)", GENS, DIR, PUB_B, .repacker = true,
      .reader = true}},
    {NULL,
     {"twins: one generation published twice, rm (S3)", TWINS, BOTH, .precheck = true, .rm = true,
      .garbage = true}},
    {NULL, {"quick: publish, fork, rm (S3)", PACKS, S3, PUB_F, QUICK, .rm = true}},
    {NULL,
     {"quick: publish, rm, read (S3)", PACKS, S3, PUB_B, QUICK, .reader = true, .rm = true,
      .garbage = true}},
    {NULL,
     {"quick: repack, publish, rm (S3)", PACKS, S3, PUB_B, QUICK, .repacker = true, .rm = true}},
    {NULL,
     {"quick: generations: two publishes, read (S3)", GENS, S3, BOTH, QUICK, .reader = true,
      .garbage = true}},
    {NULL,
     {"quick: generations: twins, read (S3)", TWIN_GENS, S3, BOTH, QUICK, .reader = true,
      .garbage = true}},
    {NULL,
     {"quick: generations and packs: publish (S3)", PACKS, .gens = true, S3, PUB_A, QUICK,
      .garbage = true}},
    {NULL, {"quick: twins, rm (S3)", TWINS, BOTH, QUICK, .rm = true, .garbage = true}},
};

static const struct scene deep[] = {
    {NULL, {"repack, publish, fork, rm (dir)", PACKS, DIR, PUB_F, .repacker = true, .rm = true}},
    {NULL,
     {"generations and packs: two publishes, repack (dir)", PACKS, .gens = true, DIR, BOTH,
      .repacker = true}},
};

#define SMALL PACKS, PUB_B, .rm = true

/* Rules without which nothing is lost: what they are for is written in the protocol's document. */
static const struct scene margins[] = {
    {NULL,
     {"third scan reads pins only: publish, fork, rm, read", PACKS, DIR, PUB_F, .lean = true,
      .reader = true, .rm = true}},
    {NULL,
     {"committed manifests first, but a third scan", SMALL, DIR, .wrong = WRONG_COMMITTED_FIRST}},
    {NULL, {"no second scan, but a third", SMALL, DIR, .wrong = WRONG_NO_SECOND_SCAN}},
    {NULL,
     {"ages at the end of a scan, but a third scan", SMALL, DIR, .wrong = WRONG_ELIGIBLE_LATE}},
    {NULL,
     {"pins after manifests, but a third scan", PACKS, DIR, .repacker = true,
      .wrong = WRONG_PINS_LAST}},
    {NULL,
     {"third scan reads pins only: repack, rm, read (S3)", PACKS, S3, .lean = true,
      .repacker = true, .reader = true, .rm = true}},
    {NULL,
     {"temporary root taken away at once, but a third scan", PACKS, S3, .repacker = true,
      .wrong = WRONG_ROOT_SHORT}},
    {NULL,
     {"the record's lock without the fence (dir)", GENS, DIR, BOTH, .rm = true, .reader = true,
      .wrong = WRONG_LOCK_ONLY}},
    {NULL, {"an old manifest is not put again (S3)", GENS, S3, PUB_B, .wrong = WRONG_NO_REFRESH}},
    {NULL,
     {"all that is not current is superseded (dir)", GENS, DIR, PUB_B, .wrong = WRONG_ONE_RULE}},
    {NULL,
     {"all that is not current is superseded (S3)", GENS, S3, PUB_B, .wrong = WRONG_ONE_RULE}},
};

static const struct scene wrongs[] = {
    {lost_pack, {"check before the manifest", SMALL, DIR, .wrong = WRONG_CHECK_FIRST}},
    {lost_pack,
     {"committed manifests before uncommitted ones", SMALL, DIR, .lean = true,
      .wrong = WRONG_COMMITTED_FIRST}},
    {lost_pack, {"marks that can be rescinded", SMALL, DIR, .wrong = WRONG_RESCIND}},
    {lost_reader, {"no dead mark", SMALL, DIR, .reader = true, .wrong = WRONG_NO_DEAD}},
    {lost_reader, {"no gamma", SMALL, DIR, .reader = true, .wrong = WRONG_NO_GAMMA}},
    {lost_pack, {"no second scan", SMALL, DIR, .lean = true, .wrong = WRONG_NO_SECOND_SCAN}},
    {lost_pack, {"no sigma where listings lag", SMALL, S3, .wrong = WRONG_NO_SIGMA}},
    {lost_pack,
     {"ages taken at the end of a scan", SMALL, DIR, .lean = true, .wrong = WRONG_ELIGIBLE_LATE}},
    {lost_pack,
     {"marks taken away together with the pack", SMALL, S3, .wrong = WRONG_MARKS_AT_ONCE}},
    {lost_pack,
     {"repacker without a temporary root", PACKS, DIR, .repacker = true, .wrong = WRONG_NO_ROOT}},
    {lost_pack,
     {"pins scanned after manifests", PACKS, DIR, .lean = true, .repacker = true,
      .wrong = WRONG_PINS_LAST}},
    {lost_pack,
     {"temporary root taken away at once", PACKS, S3, .lean = true, .repacker = true,
      .wrong = WRONG_ROOT_SHORT}},
    {lost_pack,
     {"root of a stalled repacker expires", PACKS, DIR, .repacker = true,
      .wrong = WRONG_ROOT_EXPIRES}},
    {lost_manifest,
     {"uncommitted generations expire unfenced", GENS, DIR, PUB_B, .wrong = WRONG_NO_FENCE}},
    {lost_manifest,
     {"fence without the record's lock", GENS, DIR, PUB_B, .wrong = WRONG_FENCE_ONLY}},
    {lost_manifest,
     {"superseded generations go without the lock", GENS, DIR, BOTH,
      .wrong = WRONG_SUPERSEDED_NO_LOCK}},
    {lost_reader,
     {"superseded generations go without a look at pins", GENS, DIR, PUB_B, .reader = true,
      .wrong = WRONG_NO_PINS}},
    {lost_manifest,
     {"looked at again just before the delete, no intent", GENS, S3, PUB_B,
      .wrong = WRONG_NO_INTENT}},
    {lost_manifest,
     {"the check does not look at the manifest", GENS, S3, PUB_B, .wrong = WRONG_NO_EXISTS}},
    {lost_manifest,
     {"any time between check and commit", GENS, S3, PUB_B, .wrong = WRONG_NO_WINDOW}},
    {lost_pack,
     {"a manifest is put over another unchecked", TWINS, BOTH, .precheck = true, .rm = true,
      .wrong = WRONG_TWIN_UNCHECKED}},
    {lost_pack,
     {"any time between the first check and the put", TWINS, BOTH, .precheck = true, .rm = true,
      .wrong = WRONG_PRECHECK_STALE}},
    {lost_pack,
     {"quick, by a first check of any age: packs", TWINS, PUB_B, QUICK, .rm = true,
      .wrong = WRONG_QUICK_STALE}},
    {lost_manifest,
     {"quick, by a first check of any age: generations", GENS, S3, PUB_B, QUICK,
      .wrong = WRONG_QUICK_STALE}},
    {lost_manifest,
     {"quick, without a look at intents first", TWIN_GENS, S3, BOTH, QUICK,
      .wrong = WRONG_QUICK_BLIND}},
};

/* ---- The property ---- */

static const char *violation(const void *ctx, struct mc_word w)
{
    struct state s;

    (void)ctx;
    state_unpack(w, &s);
    if (s.r_pc == R_FAILED)
        return lost_reader;
    for (unsigned slot = 0; slot < N_SLOTS; slot++) {
        if (!slot_is_committed(&s, slot) || (slot <= SLOT_A2 && s.removed))
            continue;
        if (!s.names[slot])
            return lost_manifest;
        if (s.pack[s.names[slot] - 1] != PACK_THERE)
            return lost_pack;
    }
    return NULL;
}

static bool quiescent(const void *ctx, struct mc_word w)
{
    const struct config *cfg = ctx;
    struct state s;

    state_unpack(w, &s);
    /* A window that the protocol bounds ends, one way or the other. */
    for (unsigned i = 0; i < N_WRITERS; i++) {
        if (s.w[i].pc == W_PRE || s.w[i].pc == W_PRE_OK || s.w[i].quick ||
            (cfg->s3 && (s.w[i].pc == W_LISTED || s.w[i].pc == W_CHECKED)))
            return false;
    }
    return (s.lock == LOCK_FREE || s.lock == LOCK_SWEEPER || s.lock == LOCK_SWEEPER + 1) &&
           (s.r_pc == R_IDLE || s.r_pc == R_DONE) && (!s.k_root || s.k_pc == K_DEAD);
}

/* Nothing is left for a sweep: no pack that no manifest names, no generation that is not the
 * committed one, no marks of packs that are gone. */
static bool clean(const void *ctx, struct mc_word w)
{
    const struct config *cfg = ctx;
    struct state s;

    state_unpack(w, &s);
    for (unsigned p = 0; cfg->packs && p < N_PACKS; p++) {
        bool named = false;

        for (unsigned slot = 0; slot < N_SLOTS; slot++)
            named |= s.names[slot] == p + 1;
        if (!named && s.pack[p] == PACK_THERE)
            return false;
        if (s.pack[p] != PACK_THERE && s.closed[p] != CLOSED_NO)
            return false;
    }
    for (unsigned slot = 0; cfg->gens && slot < 2; slot++) {
        if (s.names[slot] && !slot_is_committed(&s, slot))
            return false;
    }
    return true;
}

static void steps(const void *ctx, struct mc *mc, struct mc_word w)
{
    const struct config *cfg = ctx;
    struct state s;

    state_unpack(w, &s);
    for (unsigned i = 0; i < N_WRITERS; i++)
        writer_steps(cfg, mc, &s, i);
    for (unsigned i = 0; i < 2; i++)
        sweeper_steps(cfg, mc, &s, i);
    reader_steps(cfg, mc, &s);
    repacker_steps(cfg, mc, &s);
    rm_steps(cfg, mc, &s);
    time_steps(cfg, mc, &s);
}

static const char *twin(const char *who)
{
    if (strcmp(who, "sweeper 1") == 0)
        return "sweeper 2";
    return strcmp(who, "sweeper 2") == 0 ? "sweeper 1" : who;
}

/* ---- Running ---- */

static bool run(const struct scene *scene, bool trace, uint64_t *total)
{
    const struct config *cfg = &scene->cfg;
    struct state first = {.pack = {PACK_THERE}, .names = {1 + P}, .meta_a = 1 + SLOT_A1};
    struct mc_system sys = {cfg, {0}, steps, violation, quiescent, clean, twin};
    clock_t start = clock();
    struct mc_result r;
    bool ok, swapped;

    first.before_meta[0] = 1; /* A was committed with generation 1, which P holds */
    sys.initial = state_pack(&first, &swapped);
    if (!cfg->garbage)
        sys.quiescent = NULL;
    if (!mc_check(&sys, MAX_STATES, trace, &r)) {
        printf("FAIL %s: out of memory\n", cfg->name);
        return false;
    }
    *total += r.states;
    ok = scene->loses ? r.violation == scene->loses : !r.violation && r.exhausted;
    printf("%s %-58s %9llu states %10llu steps, depth %2u, %.1f s\n", ok ? "ok  " : "FAIL",
           cfg->name, (unsigned long long)r.states, (unsigned long long)r.steps, r.depth,
           (double)(clock() - start) / CLOCKS_PER_SEC);
    if (r.violation)
        printf("     %s, after %u steps%s\n", r.violation, r.depth,
               scene->loses ? ", as it must" : "");
    else if (scene->loses)
        printf("     no loss found: the model does not see what it should\n");
    else if (!r.exhausted)
        printf("     more than %u states: not exhausted\n", MAX_STATES);
    else if (cfg->garbage)
        printf("     safe in every state; from each of %llu quiescent ones all garbage can go\n",
               (unsigned long long)r.quiescent);
    else
        printf("     safe in every state\n");
    fflush(stdout);
    return ok;
}

struct count {
    unsigned passed, failed;
    uint64_t states;
};

static void run_all(const char *title, const struct scene *list, size_t n, const char *only,
                    bool trace, struct count *count)
{
    printf("%s\n", title);
    for (size_t i = 0; i < n; i++) {
        if (only && !strstr(list[i].cfg.name, only))
            continue;
        if (run(&list[i], trace || !list[i].loses, &count->states))
            count->passed++;
        else
            count->failed++;
    }
}

#define RUN_ALL(title, list)                                                                       \
    run_all(title, list, sizeof(list) / sizeof(*(list)), only, trace, &count)

int main(int argc, char **argv)
{
    bool trace = argc > 1 && strcmp(argv[1], "--trace") == 0;
    bool is_deep = argc > 1 && strcmp(argv[1], "--deep") == 0;
    const char *only = trace && argc > 2 ? argv[2] : NULL;
    struct count count = {0};

    if (is_deep) {
        RUN_ALL("The largest scenes: safe in every reachable state", deep);
    } else {
        RUN_ALL("The protocol: safe in every reachable state", scenes);
        RUN_ALL("Margins: one rule less, and still safe", margins);
        RUN_ALL("Known-wrong variants: each must lose data", wrongs);
    }
    printf("%llu states in all\n%u passed, %u failed\n", (unsigned long long)count.states,
           count.passed, count.failed);
    return count.failed > 0 || count.passed == 0;
}
