/* An explicit-state model checker: breadth first over every state that can be reached, so the trace
 * of a violation is a shortest one.
 *
 * Visited states are kept whole (two words each) in an open-addressing table, never as bare hashes:
 * two different states are never taken for one. Not thread-safe; one check at a time. */
#ifndef CAIRN_TESTS_MODEL_MC_H
#define CAIRN_TESTS_MODEL_MC_H

#include <stdbool.h>
#include <stdint.h>

/* A state as the checker keeps it: equal states have equal words. */
struct mc_word {
    uint64_t a, b;
};

struct mc;

/* What is checked. All functions are pure. */
struct mc_system {
    const void *ctx;
    struct mc_word initial;
    /* Call mc_emit once for each step that is possible in s. */
    void (*steps)(const void *ctx, struct mc *mc, struct mc_word s);
    /* NULL: s is fine; else what is wrong with it. */
    const char *(*violation)(const void *ctx, struct mc_word s);
    /* Whether s must be able to reach, by sweep steps alone, a state that is clean. NULL: none. */
    bool (*quiescent)(const void *ctx, struct mc_word s);
    bool (*clean)(const void *ctx, struct mc_word s);
    /* Two actors of whom it does not matter which is which: states are written with them in a fixed
     * order. For the trace: the name of the other one; any other name comes back as it is. */
    const char *(*twin)(const char *who);
};

/* who and what are string literals. */
enum {
    MC_SWEEP = 1,   /* the collector or time alone makes this step */
    MC_SWAPPED = 2, /* next is written with the twins (below) in each other's place */
};
void mc_emit(struct mc *mc, struct mc_word next, const char *who, const char *what, unsigned flags);

struct mc_result {
    const char *violation; /* NULL: none in any reachable state */
    uint64_t states, steps, quiescent;
    unsigned depth; /* steps from the start to the violation, or to the last new state */
    bool exhausted; /* every reachable state was looked at, or a violation was found */
};

/* Look at every reachable state, at most max_states. Prints the trace of a violation as numbered
 * steps to standard output if asked. False: out of memory. */
bool mc_check(const struct mc_system *sys, uint64_t max_states, bool print_trace,
              struct mc_result *out);

#endif
