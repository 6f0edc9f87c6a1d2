#include "fuse/generation.h"

#include "base/clock.h"
#include "base/util.h"
#include "fuse/trace.h"
#include "store/record.h"

#include <pthread.h>
#include <string.h>

/* Unused ones that are kept at hand, bytes of their manifests, and how long: what is open is held
 * from the collectors. */
#define KEEP_MAX       64
#define KEEP_MAX_BYTES ((size_t)128 * 1024 * 1024)
#define KEEP_MAX_NS    (60 * NS_PER_S)

struct generations {
    pthread_mutex_t lock;
    struct generation *all;      /* guarded by lock, as is all below; most recently made first */
    size_t unused, unused_bytes; /* of those that can be found */
    uint64_t forgets;            /* grows with each: what was loaded meanwhile may be outdated */
};

int generations_new(struct generations **out, struct cairn_error *err)
{
    struct generations *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "generations");
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return CAIRN_OK;
}

static void generation_free(struct generation *g)
{
    if (!g)
        return;
    traced_free(g->traced);
    cairn_record_close(g->record);
    free(g);
}

void generations_free(struct generations *t)
{
    if (!t)
        return;
    while (t->all) {
        struct generation *g = t->all;
        t->all = g->next;
        generation_free(g);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct generation *find_locked(struct generations *t, const char *id, const char *gen)
{
    int64_t now = clock_monotonic();
    for (struct generation *g = t->all; g; g = g->next)
        if (!g->stale && strcmp(g->gen, gen) == 0 && strcmp(g->id, id) == 0 &&
            (g->refs || now - g->used_ns < KEEP_MAX_NS))
            return g;
    return NULL;
}

static void count_unused_locked(struct generations *t, const struct generation *g, bool one_more)
{
    t->unused += one_more ? 1 : (size_t)-1;
    t->unused_bytes += one_more ? g->bytes : -g->bytes;
}

/* Not to be found any more. */
static void retire_locked(struct generations *t, struct generation *g)
{
    if (!g->stale && !g->refs)
        count_unused_locked(t, g, false);
    g->stale = true;
}

static void take_locked(struct generations *t, struct generation *g)
{
    if (!g->refs++ && !g->stale)
        count_unused_locked(t, g, false);
    g->used_ns = clock_monotonic();
}

static void unlink_locked(struct generations *t, struct generation *g)
{
    struct generation **at = &t->all;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
}

/* Out of the table: unused ones that may not be found any more, then the least recently used of too
 * many. *out: a list of them, to be freed without the lock. */
static void trim_locked(struct generations *t, struct generation **out)
{
    for (struct generation **at = &t->all; *at;) {
        struct generation *g = *at;
        if (g->refs || !g->stale) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        g->next = *out;
        *out = g;
    }
    while (t->unused > KEEP_MAX || t->unused_bytes > KEEP_MAX_BYTES) {
        struct generation *oldest = NULL;
        for (struct generation *g = t->all; g; g = g->next)
            if (!g->refs && (!oldest || g->used_ns < oldest->used_ns))
                oldest = g;
        if (!oldest)
            break;
        unlink_locked(t, oldest);
        count_unused_locked(t, oldest, false);
        oldest->next = *out;
        *out = oldest;
    }
}

static void free_list(struct generation *g)
{
    while (g) {
        struct generation *next = g->next;
        generation_free(g);
        g = next;
    }
}

static int load(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                struct generation **out, struct cairn_error *err)
{
    struct generation *g = calloc(1, sizeof(*g));
    if (!g)
        return error_oom(err, "generation");
    memcpy(g->id, id, strlen(id) + 1);
    memcpy(g->gen, gen, GEN_TEXT);
    g->used_ns = clock_monotonic();
    int rc = record_open_generation(m->store, op, id, gen, &g->record, err);
    if (rc) {
        free(g);
        return rc;
    }
    struct cairn_record_info info;
    cairn_record_info(g->record, &info);
    memcpy(g->digest, info.digest, strlen(info.digest) + 1);
    g->created_ns = info.created_ns;
    (void)manifest_bytes(atomic_load(&g->record->manifest), &g->bytes);
    *out = g;
    return CAIRN_OK;
}

int generation_get(struct mount *m, const struct cairn_op *op, const char *id, const char *gen,
                   struct generation **out, struct cairn_error *err)
{
    struct generations *t = m->generations;
    pthread_mutex_lock(&t->lock);
    struct generation *g = find_locked(t, id, gen);
    uint64_t forgets = t->forgets;
    if (g)
        take_locked(t, g);
    pthread_mutex_unlock(&t->lock);
    if (g) {
        *out = g;
        return CAIRN_OK;
    }
    struct generation *fresh = NULL, *spare = NULL;
    int rc = load(m, op, id, gen, &fresh, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    g = find_locked(t, id, gen);
    if (!g) {
        /* One that was kept too long may still be there under this name. */
        for (struct generation *old = t->all; old; old = old->next)
            if (strcmp(old->gen, gen) == 0 && strcmp(old->id, id) == 0)
                retire_locked(t, old);
        g = fresh;
        g->next = t->all;
        t->all = g;
        g->stale = t->forgets != forgets;
        if (!g->stale)
            count_unused_locked(t, g, true);
        fresh = NULL;
    }
    take_locked(t, g);
    trim_locked(t, &spare);
    pthread_mutex_unlock(&t->lock);
    generation_free(fresh);
    free_list(spare);
    *out = g;
    return CAIRN_OK;
}

struct generation *generation_ref(struct mount *m, struct generation *g)
{
    pthread_mutex_lock(&m->generations->lock);
    take_locked(m->generations, g);
    pthread_mutex_unlock(&m->generations->lock);
    return g;
}

void generation_put(struct mount *m, struct generation *g)
{
    if (!g)
        return;
    struct generations *t = m->generations;
    struct generation *spare = NULL;
    pthread_mutex_lock(&t->lock);
    g->used_ns = clock_monotonic();
    if (!--g->refs && !g->stale)
        count_unused_locked(t, g, true);
    trim_locked(t, &spare);
    pthread_mutex_unlock(&t->lock);
    free_list(spare);
}

void generations_forget(struct mount *m, const char *id)
{
    struct generations *t = m->generations;
    struct generation *spare = NULL;
    pthread_mutex_lock(&t->lock);
    t->forgets++;
    for (struct generation *g = t->all; g; g = g->next)
        if (strcmp(g->id, id) == 0)
            retire_locked(t, g);
    trim_locked(t, &spare);
    pthread_mutex_unlock(&t->lock);
    free_list(spare);
}

void generations_tidy(struct mount *m)
{
    struct generations *t = m->generations;
    struct generation *spare = NULL;
    int64_t now = clock_monotonic();
    pthread_mutex_lock(&t->lock);
    for (struct generation *g = t->all; g; g = g->next)
        if (!g->refs && now - g->used_ns >= KEEP_MAX_NS)
            retire_locked(t, g);
    trim_locked(t, &spare);
    pthread_mutex_unlock(&t->lock);
    free_list(spare);
}

/* The first file whose path is not less than path. */
static uint64_t lower_bound(const struct cairn_record *r, uint64_t n, const char *path)
{
    uint64_t lo = 0, hi = n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (strcmp(r->paths[mid], path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t generation_child(const struct generation *g, const char *path, const char *name,
                         bool *folder)
{
    char full[MANIFEST_PATH_MAX + 2];
    int n = snprintf(full, sizeof(full), "%s%s%s", path, *path ? "/" : "", name);
    *folder = false;
    if (n < 0 || (size_t)n > MANIFEST_PATH_MAX)
        return -1;
    int64_t i = cairn_record_find(g->record, full);
    if (i >= 0)
        return i;
    full[n] = '/';
    full[n + 1] = 0;
    uint64_t at, count = generation_files(g);
    at = lower_bound(g->record, count, full);
    *folder = at < count && strncmp(g->record->paths[at], full, (size_t)n + 1) == 0;
    return -1;
}

uint64_t generation_files(const struct generation *g)
{
    return manifest_info(atomic_load(&g->record->manifest))->n_files;
}

bool generation_next(const struct generation *g, const char *path, uint64_t *at,
                     struct generation_entry *out)
{
    char prefix[MANIFEST_PATH_MAX + 2];
    int n = snprintf(prefix, sizeof(prefix), "%s%s", path, *path ? "/" : "");
    if (n < 0 || (size_t)n >= sizeof(prefix))
        return false;
    uint64_t count = generation_files(g);
    if (*at == 0)
        *at = lower_bound(g->record, count, prefix);
    if (*at >= count || strncmp(g->record->paths[*at], prefix, (size_t)n) != 0)
        return false;
    const char *rest = g->record->paths[*at] + n, *slash = strchr(rest, '/');
    size_t len = slash ? (size_t)(slash - rest) : strlen(rest);
    memcpy(out->name, rest, len);
    out->name[len] = 0;
    out->file = slash ? -1 : (int64_t)*at;
    do
        ++*at;
    while (slash && *at < count && strncmp(g->record->paths[*at], prefix, (size_t)n) == 0 &&
           strncmp(g->record->paths[*at] + n, rest, len + 1) == 0);
    return true;
}
