#include "store/pack_set.h"

#include <stdlib.h>
#include <string.h>

/* Where pack is, or would be inserted. */
static size_t position(const struct pack_set *s, const uint8_t pack[PACK_ID_LEN], bool *found)
{
    size_t lo = 0, hi = s->n;
    *found = false;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = memcmp(s->packs[mid], pack, PACK_ID_LEN);
        if (c == 0) {
            *found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int pack_set_add(struct pack_set *s, const uint8_t pack[PACK_ID_LEN], struct cairn_error *err)
{
    bool found;
    size_t at = position(s, pack, &found);
    if (found)
        return CAIRN_OK;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        uint8_t(*packs)[PACK_ID_LEN] = reallocarray(s->packs, cap, PACK_ID_LEN);
        if (!packs)
            return error_oom(err, "set of packs");
        s->packs = packs;
        s->cap = cap;
    }
    memmove(s->packs + at + 1, s->packs + at, (s->n - at) * PACK_ID_LEN);
    memcpy(s->packs[at], pack, PACK_ID_LEN);
    s->n++;
    return CAIRN_OK;
}

bool pack_set_has(const struct pack_set *s, const uint8_t pack[PACK_ID_LEN])
{
    bool found = false;
    if (s && s->n)
        position(s, pack, &found);
    return found;
}

void pack_set_release(struct pack_set *s)
{
    free(s->packs);
    *s = (struct pack_set){0};
}
