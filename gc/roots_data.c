/* The tables of a scan. */
#include "gc/roots.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>

void roots_release(struct roots *r)
{
    free(r->packs);
    free(r->pack_slots);
    free(r->manifests);
    free(r->uses);
    free(r->records);
    free(r->staged);
    free(r->lost_pins.list);
    free(r->tombs.list);
    free(r->temps.list);
    free(r->traces.list);
    free(r->intents.list);
    free(r->pins.list);
    *r = (struct roots){0};
}

int roots_room(void *array, size_t n, size_t *cap, size_t size, struct cairn_error *err)
{
    if (n < *cap)
        return CAIRN_OK;
    size_t more = *cap ? *cap + *cap / 2 : 32;
    void *grown = reallocarray(*(void **)array, more, size);
    if (!grown)
        return error_oom(err, "what a sweep found");
    *(void **)array = grown;
    *cap = more;
    return CAIRN_OK;
}

int roots_add_object(struct roots_objects *o, const char *key, const char *id, int64_t mtime_ns,
                     struct cairn_error *err)
{
    int rc = roots_room(&o->list, o->n, &o->cap, sizeof(*o->list), err);
    if (rc)
        return rc;
    struct roots_object *x = &o->list[o->n++];
    *x = (struct roots_object){.mtime_ns = mtime_ns};
    memcpy(x->key, key, strlen(key) + 1);
    memcpy(x->id, id, strlen(id) + 1);
    return CAIRN_OK;
}

/* Pack names are random. */
static uint32_t *slot(uint32_t *slots, size_t n, const struct roots_pack *packs,
                      const uint8_t id[PACK_ID_LEN])
{
    size_t i = (size_t)get_le64(id) & (n - 1);
    while (slots[i] && memcmp(packs[slots[i] - 1].id, id, PACK_ID_LEN) != 0)
        i = (i + 1) & (n - 1);
    return &slots[i];
}

static int more_slots(struct roots *r, struct cairn_error *err)
{
    size_t n = r->n_slots ? 2 * r->n_slots : 64;
    uint32_t *slots = calloc(n, sizeof(*slots));
    if (!slots)
        return error_oom(err, "what a sweep found");
    for (size_t i = 0; i < r->n_packs; i++)
        *slot(slots, n, r->packs, r->packs[i].id) = (uint32_t)i + 1;
    free(r->pack_slots);
    r->pack_slots = slots;
    r->n_slots = n;
    return CAIRN_OK;
}

int roots_pack_of(struct roots *r, const uint8_t id[PACK_ID_LEN], uint32_t *no,
                  struct cairn_error *err)
{
    int rc = CAIRN_OK;
    if (2 * (r->n_packs + 1) > r->n_slots)
        rc = more_slots(r, err);
    if (rc)
        return rc;
    uint32_t *s = slot(r->pack_slots, r->n_slots, r->packs, id);
    if (!*s) {
        rc = roots_room(&r->packs, r->n_packs, &r->cap_packs, sizeof(*r->packs), err);
        if (rc)
            return rc;
        r->packs[r->n_packs] = (struct roots_pack){0};
        memcpy(r->packs[r->n_packs++].id, id, PACK_ID_LEN);
        *s = (uint32_t)r->n_packs;
    }
    *no = *s - 1;
    return CAIRN_OK;
}

static int by_id(const void *key, const void *record)
{
    return strcmp(key, ((const struct roots_record *)record)->id);
}

struct roots_record *roots_find_record(const struct roots *r, const char *id)
{
    return r->n_records ? bsearch(id, r->records, r->n_records, sizeof(*r->records), by_id) : NULL;
}

/* The first pin whose "<id>/<gen>" is not less than text. */
static size_t lower_bound(const struct roots_objects *pins, const char *text)
{
    size_t lo = 0, hi = pins->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(pins->list[mid].key, text) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool roots_is_pinned(const struct roots *r, const char *id, const char *gen)
{
    char text[ID_MAX + GEN_TEXT + 2];
    size_t n = (size_t)snprintf(text, sizeof(text), "%s/%s", id, gen ? gen : "");
    size_t i = lower_bound(&r->pins, text);
    return i < r->pins.n && strncmp(r->pins.list[i].key, text, n) == 0;
}
