#include "store/cache_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAUSE_MIN_NS NS_PER_S
#define PAUSE_MAX_NS (64 * NS_PER_S)
#define LOG_EVERY_NS (60 * NS_PER_S)
/* How coarsely the last use of a pack is kept for later processes. */
#define TOUCH_NS (60 * NS_PER_S)

int cache_new(const char *folder, const uint8_t *secret, uint32_t chunk_size, struct budget *budget,
              struct cache **out, struct cairn_error *err)
{
    struct cache *c = calloc(1, sizeof(*c));
    if (!c || !(c->folder = strdup(folder))) {
        free(c);
        return error_oom(err, "cache");
    }
    memcpy(c->secret, secret, XXH3_SECRET_LEN);
    c->chunk_size = chunk_size;
    c->budget = budget;
    c->logged_ns = -LOG_EVERY_NS;
    pthread_mutex_init(&c->lock, NULL);
    struct budget_source source = cache_source;
    source.ctx = c;
    budget_add_source(budget, &source);
    *out = c;
    return CAIRN_OK;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < CACHE_CHAINS; i++)
        while (c->chains[i])
            cache_pack_forget(c, c->chains[i]);
    pthread_mutex_destroy(&c->lock);
    explicit_bzero(c->secret, sizeof(c->secret));
    free(c->folder);
    free(c);
}

void cache_path(const struct cache *c, const uint8_t pack[PACK_ID_LEN], char out[CACHE_PATH_MAX])
{
    char hex[2 * PACK_ID_LEN + 1];
    util_hex(pack, PACK_ID_LEN, hex);
    snprintf(out, CACHE_PATH_MAX, "%s/%.2s/%s", c->folder, hex, hex);
}

void cache_failed(struct cache *c, const struct cairn_error *why)
{
    pthread_mutex_lock(&c->lock);
    int64_t now = clock_monotonic();
    c->pause_ns = c->pause_ns ? 2 * c->pause_ns : PAUSE_MIN_NS;
    if (c->pause_ns > PAUSE_MAX_NS)
        c->pause_ns = PAUSE_MAX_NS;
    c->pause_until_ns = now + c->pause_ns;
    bool tell = now - c->logged_ns >= LOG_EVERY_NS;
    if (tell)
        c->logged_ns = now;
    pthread_mutex_unlock(&c->lock);
    if (why->error_class == CAIRN_NO_SPACE)
        budget_look(c->budget);
    if (tell)
        log_line(LOG_LEVEL_WARNING, "cache: nothing is added for a while: %s", why->message);
}

bool cache_paused(struct cache *c)
{
    pthread_mutex_lock(&c->lock);
    bool paused = c->pause_ns && clock_monotonic() < c->pause_until_ns;
    pthread_mutex_unlock(&c->lock);
    return paused;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* Once a minute of use: tell later processes, and see whether another one removed the file. */
static void touch(struct cache *c, struct cache_pack *p)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    struct stat st;
    (void)!futimens(p->fd, times);
    if (fstat(p->fd, &st) != 0 || st.st_nlink == 0)
        cache_pack_forget(c, p);
}

/* In a pack that is open. With a reference on success. */
static bool find_locked(struct cache *c, struct cache_pack *p, uint32_t offset,
                        struct cache_ref *out, bool *touches)
{
    struct cache_slot *slot = cache_slot_locked(p, offset);
    if (!slot || slot->state == CACHE_REJECTED)
        return false;
    struct cache_file file = cache_file_of(c, p->id);
    *out = (struct cache_ref){.pack = p,
                              .fd = p->fd,
                              .at = cache_file_at(&file, slot->place),
                              .offset = offset,
                              .len = slot->len,
                              .confirmed = slot->state == CACHE_CONFIRMED};
    p->refs++;
    p->used = ++c->clock;
    c->stats.hits++;
    int64_t now = clock_monotonic();
    *touches = p->touched_ns < now - TOUCH_NS;
    if (*touches)
        p->touched_ns = now;
    return true;
}

bool cache_find(struct cache *c, const uint8_t pack[PACK_ID_LEN], uint32_t offset,
                struct cache_ref *out)
{
    bool touches = false, found = false;
    pthread_mutex_lock(&c->lock);
    struct cache_pack *p = cache_pack_find_locked(c, pack);
    bool done = p || cache_pack_is_absent_locked(c, pack);
    if (p)
        found = find_locked(c, p, offset, out, &touches);
    pthread_mutex_unlock(&c->lock);
    if (!done && (p = cache_pack_get(c, pack, false, NULL))) {
        pthread_mutex_lock(&c->lock);
        found = find_locked(c, p, offset, out, &touches);
        pthread_mutex_unlock(&c->lock);
        cache_pack_put(c, p);
    }
    if (touches)
        touch(c, out->pack);
    if (!found) {
        pthread_mutex_lock(&c->lock);
        c->stats.misses++;
        pthread_mutex_unlock(&c->lock);
    }
    return found;
}

void cache_put(struct cache *c, struct cache_ref *ref)
{
    cache_pack_put(c, ref->pack);
    *ref = (struct cache_ref){.fd = -1};
}

static void set_state(struct cache *c, const struct cache_ref *ref, enum cache_state state)
{
    pthread_mutex_lock(&c->lock);
    struct cache_slot *slot = cache_slot_locked(ref->pack, ref->offset);
    if (slot)
        slot->state = state;
    if (state == CACHE_REJECTED)
        c->stats.rejected++;
    pthread_mutex_unlock(&c->lock);
}

void cache_confirm(struct cache *c, struct cache_ref *ref)
{
    ref->confirmed = true;
    set_state(c, ref, CACHE_CONFIRMED);
}

void cache_reject(struct cache *c, const struct cache_ref *ref)
{
    set_state(c, ref, CACHE_REJECTED);
}

void cache_doubt(struct cache *c, const struct cache_ref *ref)
{
    cache_pack_forget(c, ref->pack);
}

void cache_refresh(struct cache *c, const uint8_t pack[PACK_ID_LEN])
{
    struct cache_pack *p = cache_pack_get(c, pack, false, NULL);
    if (!p)
        return;
    uint32_t end;
    (void)!cache_pack_read(c, p, p->fd, false, &end, NULL);
    cache_pack_put(c, p);
}

void cache_tidy(struct cache *c)
{
    struct cache_pack *open[CACHE_OPEN_MAX];
    size_t n = 0;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < CACHE_CHAINS; i++)
        for (struct cache_pack *p = c->chains[i]; p && n < CACHE_OPEN_MAX; p = p->next) {
            p->refs++;
            open[n++] = p;
        }
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstat(open[i]->fd, &st) != 0 || st.st_nlink == 0)
            cache_pack_forget(c, open[i]);
        cache_pack_put(c, open[i]);
    }
}

void cache_stats(struct cache *c, struct cache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
