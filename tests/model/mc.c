#include "tests/model/mc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BITS 18
#define BLOCK_LEN  (1u << BLOCK_BITS)
#define MAX_BLOCKS 1024
#define NONE       UINT32_MAX

struct node {
    struct mc_word word;
    uint32_t parent;
};

enum mode { MODE_EXPLORE, MODE_TRACE, MODE_DRAIN };

struct mc {
    const struct mc_system *sys;
    enum mode mode;
    bool failed; /* out of memory */

    /* Every state seen, in the order of discovery: the queue of the search as well. */
    struct node *blocks[MAX_BLOCKS];
    uint32_t n;
    uint64_t max;
    bool full;

    uint32_t *table; /* numbers of nodes */
    uint64_t table_len;

    uint32_t current; /* whose steps are being made */
    uint64_t steps;

    /* MODE_TRACE: the step that leads to this state is wanted. */
    struct mc_word wanted;
    const char *who, *what;
    bool swapped;

    /* MODE_DRAIN: which states are known to lead to a clean one, and the search's stack. */
    uint8_t *good, *seen;
    uint32_t *stack;
    uint32_t n_stack, cap_stack;
};

static struct node *node_at(const struct mc *mc, uint32_t i)
{
    return &mc->blocks[i >> BLOCK_BITS][i & (BLOCK_LEN - 1)];
}

static bool word_equal(struct mc_word x, struct mc_word y)
{
    return x.a == y.a && x.b == y.b;
}

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014), over both words. */
static uint64_t word_hash(struct mc_word w)
{
    uint64_t h = w.a + 0x9e3779b97f4a7c15u * (w.b ^ (w.b >> 29));

    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static uint64_t table_slot(const struct mc *mc, struct mc_word w)
{
    uint64_t i = word_hash(w) & (mc->table_len - 1);

    while (mc->table[i] != NONE && !word_equal(node_at(mc, mc->table[i])->word, w))
        i = (i + 1) & (mc->table_len - 1);
    return i;
}

static bool table_grow(struct mc *mc)
{
    uint64_t len = mc->table_len ? mc->table_len * 2 : 1u << 16;
    uint32_t *table = malloc(len * sizeof(*table));

    if (!table)
        return false;
    memset(table, 0xff, len * sizeof(*table));
    free(mc->table);
    mc->table = table;
    mc->table_len = len;
    for (uint32_t i = 0; i < mc->n; i++)
        mc->table[table_slot(mc, node_at(mc, i)->word)] = i;
    return true;
}

static void add(struct mc *mc, struct mc_word w)
{
    uint64_t slot;

    if (mc->failed || mc->full)
        return;
    if ((uint64_t)mc->n * 3 >= mc->table_len * 2 && !table_grow(mc)) {
        mc->failed = true;
        return;
    }
    slot = table_slot(mc, w);
    if (mc->table[slot] != NONE)
        return;
    if (mc->n >= mc->max || mc->n >= (uint64_t)MAX_BLOCKS * BLOCK_LEN) {
        mc->full = true;
        return;
    }
    if (!mc->blocks[mc->n >> BLOCK_BITS]) {
        mc->blocks[mc->n >> BLOCK_BITS] = malloc(BLOCK_LEN * sizeof(struct node));
        if (!mc->blocks[mc->n >> BLOCK_BITS]) {
            mc->failed = true;
            return;
        }
    }
    *node_at(mc, mc->n) = (struct node){.word = w, .parent = mc->current};
    mc->table[slot] = mc->n++;
}

static void drain_push(struct mc *mc, uint32_t i)
{
    if (mc->seen[i])
        return;
    if (mc->n_stack == mc->cap_stack) {
        uint32_t cap = mc->cap_stack ? mc->cap_stack * 2 : 1024;
        uint32_t *stack = realloc(mc->stack, cap * sizeof(*stack));

        if (!stack) {
            mc->failed = true;
            return;
        }
        mc->stack = stack;
        mc->cap_stack = cap;
    }
    mc->seen[i] = 1;
    mc->stack[mc->n_stack++] = i;
}

void mc_emit(struct mc *mc, struct mc_word next, const char *who, const char *what, unsigned flags)
{
    switch (mc->mode) {
    case MODE_EXPLORE:
        mc->steps++;
        add(mc, next);
        break;
    case MODE_TRACE:
        if (!mc->what && word_equal(next, mc->wanted)) {
            mc->who = who;
            mc->what = what;
            mc->swapped = flags & MC_SWAPPED;
        }
        break;
    case MODE_DRAIN:
        if (flags & MC_SWEEP)
            drain_push(mc, mc->table[table_slot(mc, next)]);
        break;
    }
}

static unsigned depth_of(const struct mc *mc, uint32_t i)
{
    unsigned depth = 0;

    while (node_at(mc, i)->parent != NONE) {
        i = node_at(mc, i)->parent;
        depth++;
    }
    return depth;
}

/* Print the steps from the start to state i. */
static void print_trace(struct mc *mc, uint32_t i)
{
    unsigned depth = depth_of(mc, i);
    bool swapped = false;
    uint32_t *path = malloc((depth + 1) * sizeof(*path));

    if (!path)
        return;
    for (unsigned k = depth + 1; k-- > 0; i = node_at(mc, i)->parent)
        path[k] = i;
    mc->mode = MODE_TRACE;
    for (unsigned k = 1; k <= depth; k++) {
        mc->wanted = node_at(mc, path[k])->word;
        mc->what = NULL;
        mc->sys->steps(mc->sys->ctx, mc, node_at(mc, path[k - 1])->word);
        printf("    %3u. %-10s %s\n", k, swapped ? mc->sys->twin(mc->who) : mc->who, mc->what);
        swapped ^= mc->swapped;
    }
    free(path);
}

/* Whether sweep steps alone lead from state i to a clean one. Depth first; the states on the way
 * are remembered as good when it does. Sweep steps never leave the reachable states. */
static bool drains(struct mc *mc, uint32_t i)
{
    uint32_t first = i;

    mc->n_stack = 0;
    drain_push(mc, first);
    /* The stack is never popped below what was pushed: seen states stay on it for the reset. */
    for (uint32_t next = 0; !mc->failed && next < mc->n_stack; next++) {
        /* Newest first: swap the newest one that was not looked at into place. */
        uint32_t last = mc->n_stack - 1, at = mc->stack[last];

        mc->stack[last] = mc->stack[next];
        mc->stack[next] = at;
        if (mc->good[at] || mc->sys->clean(mc->sys->ctx, node_at(mc, at)->word)) {
            for (uint32_t k = 0; k < mc->n_stack; k++)
                mc->seen[mc->stack[k]] = 0;
            mc->good[at] = 1;
            mc->good[first] = 1;
            return true;
        }
        mc->sys->steps(mc->sys->ctx, mc, node_at(mc, at)->word);
    }
    return false;
}

static bool check_garbage(struct mc *mc, struct mc_result *out, bool trace)
{
    mc->good = calloc(mc->n, 1);
    mc->seen = calloc(mc->n, 1);
    if (!mc->good || !mc->seen)
        return false;
    mc->mode = MODE_DRAIN;
    /* Latest first: they are nearest to clean, and what is good spares the earlier ones a search.
     */
    for (uint32_t i = mc->n; i-- > 0 && !mc->failed;) {
        if (!mc->sys->quiescent(mc->sys->ctx, node_at(mc, i)->word))
            continue;
        out->quiescent++;
        if (!drains(mc, i)) {
            out->violation = "garbage that no sweep will ever collect";
            out->depth = depth_of(mc, i);
            if (trace)
                print_trace(mc, i);
            break;
        }
    }
    return !mc->failed;
}

static bool explore(struct mc *mc, struct mc_result *out, bool trace)
{
    mc->current = NONE;
    add(mc, mc->sys->initial);
    for (uint32_t i = 0; i < mc->n && !mc->failed && !mc->full; i++) {
        struct mc_word w = node_at(mc, i)->word;

        mc->current = i;
        out->violation = mc->sys->violation(mc->sys->ctx, w);
        if (out->violation) {
            out->depth = depth_of(mc, i);
            if (trace)
                print_trace(mc, i);
            break;
        }
        mc->sys->steps(mc->sys->ctx, mc, w);
    }
    out->exhausted = !mc->full;
    return !mc->failed;
}

bool mc_check(const struct mc_system *sys, uint64_t max_states, bool trace, struct mc_result *out)
{
    struct mc *mc = calloc(1, sizeof(*mc));
    bool ok;

    *out = (struct mc_result){0};
    if (!mc)
        return false;
    mc->sys = sys;
    mc->max = max_states;
    ok = explore(mc, out, trace);
    if (ok && out->exhausted && !out->violation) {
        out->depth = depth_of(mc, mc->n - 1);
        ok = !sys->quiescent || check_garbage(mc, out, trace);
    }
    out->states = mc->n;
    out->steps = mc->steps;
    for (unsigned i = 0; i < MAX_BLOCKS; i++)
        free(mc->blocks[i]);
    free(mc->table);
    free(mc->good);
    free(mc->seen);
    free(mc->stack);
    free(mc);
    return ok;
}
