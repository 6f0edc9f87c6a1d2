#include "store/lease.h"

#include "base/clock.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>

struct lease {
    struct lease *next;
    /* constant */
    char text[CAIRN_LEASE_TEXT];
    struct gens_entry *entry; /* owned reference */
    struct keeper_hold *hold; /* owned */
    /* guarded by the lock */
    int64_t expires_ns;
};

struct lease_table {
    struct cairn_store *s; /* constant */
    pthread_mutex_t lock;
    struct lease *first, **last; /* guarded by the lock, oldest first */
};

int lease_table_new(struct cairn_store *s, struct lease_table **out, struct cairn_error *err)
{
    struct lease_table *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "leases");
    t->s = s;
    pthread_mutex_init(&t->lock, NULL);
    t->last = &t->first;
    *out = t;
    return CAIRN_OK;
}

/* Of leases that are in no table any more. */
static size_t release_all(struct lease_table *t, struct lease *list)
{
    size_t n = 0;
    while (list) {
        struct lease *l = list;
        list = l->next;
        gens_unref(l->entry);
        keeper_release(t->s, l->hold);
        free(l);
        n++;
    }
    return n;
}

void lease_table_clear(struct lease_table *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    struct lease *all = t->first;
    t->first = NULL;
    t->last = &t->first;
    pthread_mutex_unlock(&t->lock);
    release_all(t, all);
}

void lease_table_free(struct lease_table *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- The list -------------------------------------------------------------------------------- */

static struct lease *unlink_locked(struct lease_table *t, struct lease **p)
{
    struct lease *l = *p;
    *p = l->next;
    if (!*p)
        t->last = p;
    l->next = NULL;
    return l;
}

static struct lease *expired_locked(struct lease_table *t)
{
    struct lease *dead = NULL;
    int64_t now = clock_boottime();
    for (struct lease **p = &t->first; *p;) {
        if ((*p)->expires_ns > now) {
            p = &(*p)->next;
            continue;
        }
        struct lease *l = unlink_locked(t, p);
        l->next = dead;
        dead = l;
    }
    return dead;
}

static struct lease **find_locked(struct lease_table *t, const char *text)
{
    struct lease **p = &t->first;
    while (*p && strcmp((*p)->text, text) != 0)
        p = &(*p)->next;
    return p;
}

static void describe_locked(const struct lease *l, struct cairn_lease *out)
{
    const struct gens_key *key = gens_key_of(l->entry);
    int64_t left = l->expires_ns - clock_boottime();
    memcpy(out->lease, l->text, sizeof(out->lease));
    snprintf(out->id, sizeof(out->id), "%s", key->id);
    memcpy(out->gen, key->gen, sizeof(out->gen));
    snprintf(out->path, sizeof(out->path), "%s", gens_path(l->entry));
    out->seconds_left = left > 0 ? (double)left / (double)NS_PER_S : 0;
}

static int64_t expiry(double seconds)
{
    int64_t ns = seconds > 0 ? clock_from_seconds(seconds, LEASE_DEFAULT_NS) : LEASE_DEFAULT_NS;
    return clock_add(clock_boottime(), ns < LEASE_MAX_NS ? ns : LEASE_MAX_NS);
}

int lease_take(struct cairn_store *s, struct gens_entry *entry, struct keeper_hold *hold,
               double seconds, char text[CAIRN_LEASE_TEXT], double *left, struct cairn_error *err)
{
    struct lease_table *t = s->leases;
    uint8_t raw[(CAIRN_LEASE_TEXT - 1) / 2];
    struct lease *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "lease");
    if (!util_random(raw, sizeof(raw))) {
        int e = errno;
        free(l);
        return error_sys(err, e, "name of a lease");
    }
    util_hex(raw, sizeof(raw), l->text);
    memcpy(text, l->text, CAIRN_LEASE_TEXT);
    l->entry = entry;
    l->hold = hold;
    l->expires_ns = expiry(seconds);
    *left = (double)(l->expires_ns - clock_boottime()) / (double)NS_PER_S;
    pthread_mutex_lock(&t->lock);
    struct lease *dead = expired_locked(t);
    *t->last = l;
    t->last = &l->next;
    pthread_mutex_unlock(&t->lock);
    release_all(t, dead);
    return CAIRN_OK;
}

/* ---- What cairn.h says ------------------------------------------------------------------------
 */

static int no_lease(const char *text, struct cairn_error *err)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such lease, or it has expired: %.40s", text);
}

/* Find it, and do to it what the arguments say. */
static int with_lease(struct cairn_store *s, const char *text, const double *renew, bool release,
                      struct cairn_lease *out, struct cairn_error *err)
{
    struct lease_table *t = s->leases;
    if (!t)
        return no_lease(text, err);
    pthread_mutex_lock(&t->lock);
    struct lease *dead = expired_locked(t);
    struct lease **p = find_locked(t, text);
    bool found = *p != NULL;
    if (found && renew)
        (*p)->expires_ns = expiry(*renew);
    if (found && out)
        describe_locked(*p, out);
    if (found && release) {
        struct lease *l = unlink_locked(t, p);
        l->next = dead;
        dead = l;
    }
    pthread_mutex_unlock(&t->lock);
    release_all(t, dead);
    return found ? CAIRN_OK : no_lease(text, err);
}

int cairn_lease_renew(struct cairn_store *s, const char *lease, double seconds,
                      struct cairn_lease *out, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return with_lease(s, lease, &seconds, false, out, err);
}

int cairn_lease_find(struct cairn_store *s, const char *lease, struct cairn_lease *out,
                     struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return with_lease(s, lease, NULL, false, out, err);
}

int cairn_lease_release(struct cairn_store *s, const char *lease, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    return with_lease(s, lease, NULL, true, NULL, err);
}

size_t cairn_lease_expire(struct cairn_store *s, double *next_seconds)
{
    struct lease_table *t = s->leases;
    int64_t next = INT64_MAX;
    if (next_seconds)
        *next_seconds = -1;
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    struct lease *dead = expired_locked(t);
    for (const struct lease *l = t->first; l; l = l->next)
        if (l->expires_ns < next)
            next = l->expires_ns;
    pthread_mutex_unlock(&t->lock);
    if (next_seconds && next != INT64_MAX) {
        int64_t left = next - clock_boottime();
        *next_seconds = left > 0 ? (double)left / (double)NS_PER_S : 0;
    }
    return release_all(t, dead);
}

int cairn_lease_list(struct cairn_store *s, int (*fn)(void *ctx, const struct cairn_lease *l),
                     void *ctx, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct lease_table *t = s->leases;
    size_t n = 0, cap = 0;
    CLEANUP_FREE char(*texts)[CAIRN_LEASE_TEXT] = NULL;
    (void)cairn_lease_expire(s, NULL);
    if (!t)
        return CAIRN_OK;
    /* Names first: fn is called without the lock. */
    do {
        size_t count = 0;
        pthread_mutex_lock(&t->lock);
        for (const struct lease *l = t->first; l; l = l->next, count++)
            if (count < cap)
                memcpy(texts[count], l->text, CAIRN_LEASE_TEXT);
        pthread_mutex_unlock(&t->lock);
        n = count;
        if (n <= cap)
            break;
        cap = n + 16;
        char(*more)[CAIRN_LEASE_TEXT] = reallocarray(texts, cap, CAIRN_LEASE_TEXT);
        if (!more)
            return error_oom(err, "leases");
        texts = more;
    } while (true);
    for (size_t i = 0; i < n; i++) {
        struct cairn_lease l;
        struct cairn_error gone;
        if (cairn_lease_find(s, texts[i], &l, &gone) == CAIRN_OK && fn(ctx, &l))
            break;
    }
    return CAIRN_OK;
}
