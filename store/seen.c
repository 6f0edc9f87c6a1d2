#include "store/seen.h"

#include "base/util.h"

#include <stdlib.h>

/* Pack names are random already; the finalizer of MurmurHash3 (Appleby, public domain) spreads the
 * offsets. */
static uint64_t fingerprint(const uint8_t pack[PACK_ID_LEN], uint32_t offset)
{
    uint64_t h = get_le64(pack) ^ (get_le64(pack + 8) + (uint64_t)offset * 0x9e3779b97f4a7c15u);
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53u;
    h ^= h >> 33;
    return h ? h : 1;
}

/* True when h was put in. There is a free slot. */
static bool put(uint64_t *slots, size_t cap, uint64_t h)
{
    size_t i = h & (cap - 1);
    while (slots[i] && slots[i] != h)
        i = (i + 1) & (cap - 1);
    bool fresh = !slots[i];
    slots[i] = h;
    return fresh;
}

int seen_add(struct seen *s, const uint8_t pack[PACK_ID_LEN], uint32_t offset, bool *fresh,
             struct cairn_error *err)
{
    if (2 * (s->n + 1) > s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        uint64_t *slots = calloc(cap, sizeof(*slots));
        if (!slots)
            return error_oom(err, "set of checked chunks");
        for (size_t i = 0; i < s->cap; i++)
            if (s->slots[i])
                put(slots, cap, s->slots[i]);
        free(s->slots);
        s->slots = slots;
        s->cap = cap;
    }
    *fresh = put(s->slots, s->cap, fingerprint(pack, offset));
    s->n += *fresh;
    return CAIRN_OK;
}

bool seen_has(const struct seen *s, const uint8_t pack[PACK_ID_LEN], uint32_t offset)
{
    if (!s->n)
        return false;
    uint64_t h = fingerprint(pack, offset);
    size_t i = h & (s->cap - 1);
    while (s->slots[i] && s->slots[i] != h)
        i = (i + 1) & (s->cap - 1);
    return s->slots[i] == h;
}

void seen_release(struct seen *s)
{
    free(s->slots);
    *s = (struct seen){0};
}
