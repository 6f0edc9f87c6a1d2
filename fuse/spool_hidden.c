#include "fuse/spool_hidden.h"

#include "base/clock.h"
#include "store/ids.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What is hidden of one record. */
struct group {
    char id[ID_MAX + 1];
    int64_t last_ns; /* CLOCK_BOOTTIME of the last addition */
    char **names;    /* owned, sorted */
    size_t n, cap;
    struct group *next;
};

struct hidden {
    pthread_mutex_t lock;
    struct group *groups; /* guarded by lock */
    atomic_uint n_groups; /* so that the usual case takes no lock */
};

int hidden_new(struct hidden **out, struct cairn_error *err)
{
    struct hidden *h = calloc(1, sizeof(*h));
    if (!h)
        return error_oom(err, "what is removed on the mount");
    pthread_mutex_init(&h->lock, NULL);
    *out = h;
    return CAIRN_OK;
}

static void free_group(struct group *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->names[i]);
    free(g->names);
    free(g);
}

void hidden_free(struct hidden *h)
{
    if (!h)
        return;
    while (h->groups) {
        struct group *g = h->groups;
        h->groups = g->next;
        free_group(g);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* The group of id; those that are too old go. */
static struct group *find_locked(struct hidden *h, const char *id)
{
    int64_t now = clock_boottime();
    struct group *found = NULL;
    for (struct group **at = &h->groups; *at;) {
        struct group *g = *at;
        if (now - g->last_ns > HIDDEN_NS) {
            *at = g->next;
            free_group(g);
            atomic_fetch_sub(&h->n_groups, 1);
            continue;
        }
        if (strcmp(g->id, id) == 0)
            found = g;
        at = &g->next;
    }
    return found;
}

/* Where name is, or belongs. */
static size_t place(const struct group *g, const char *name, bool *there)
{
    size_t lo = 0, hi = g->n;
    *there = false;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = strcmp(g->names[mid], name);
        if (c == 0) {
            *there = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int insert(struct group *g, const char *name)
{
    bool there;
    size_t at = place(g, name, &there);
    g->last_ns = clock_boottime();
    if (there)
        return 0;
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 16;
        char **names = reallocarray(g->names, cap, sizeof(*names));
        if (!names)
            return ENOMEM;
        g->names = names;
        g->cap = cap;
    }
    char *copy = strdup(name);
    if (!copy)
        return ENOMEM;
    memmove(&g->names[at + 1], &g->names[at], (g->n - at) * sizeof(g->names[0]));
    g->names[at] = copy;
    g->n++;
    return 0;
}

int hidden_add(struct hidden *h, const char *id, const char *name)
{
    int e = 0;
    pthread_mutex_lock(&h->lock);
    struct group *g = find_locked(h, id);
    if (!g) {
        g = calloc(1, sizeof(*g));
        if (!g)
            e = ENOMEM;
    }
    if (g && !g->id[0]) {
        memcpy(g->id, id, strnlen(id, ID_MAX));
        g->next = h->groups;
        h->groups = g;
        atomic_fetch_add(&h->n_groups, 1);
    }
    if (g)
        e = insert(g, name);
    pthread_mutex_unlock(&h->lock);
    return e;
}

bool hidden_has(struct hidden *h, const char *id, const char *name)
{
    bool there = false;
    if (!atomic_load(&h->n_groups))
        return false;
    pthread_mutex_lock(&h->lock);
    const struct group *g = find_locked(h, id);
    if (g)
        (void)place(g, name, &there);
    pthread_mutex_unlock(&h->lock);
    return there;
}

static bool is_below(const char *name, const char *top)
{
    size_t len = strlen(top);
    return !len || (strncmp(name, top, len) == 0 && (!name[len] || name[len] == '/'));
}

void hidden_drop(struct hidden *h, const char *id, const char *name)
{
    if (!atomic_load(&h->n_groups))
        return;
    pthread_mutex_lock(&h->lock);
    struct group *g = find_locked(h, id);
    size_t kept = 0;
    for (size_t i = 0; g && i < g->n; i++) {
        if (is_below(g->names[i], name))
            free(g->names[i]);
        else
            g->names[kept++] = g->names[i];
    }
    if (g)
        g->n = kept;
    pthread_mutex_unlock(&h->lock);
}
