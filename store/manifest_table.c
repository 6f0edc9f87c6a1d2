#include "store/manifest_private.h"

#include <errno.h>
#include <string.h>

int manifest_table_init(struct manifest_table *t, size_t entry_len, size_t key_len,
                        struct cairn_error *err)
{
    *t = (struct manifest_table){.entry_len = entry_len, .key_len = key_len};
    if (!util_random(t->seed, sizeof(t->seed)))
        return error_sys(err, errno, "random bytes for a manifest");
    return CAIRN_OK;
}

void manifest_table_release(struct manifest_table *t)
{
    free(t->entries);
    free(t->slots);
    *t = (struct manifest_table){0};
}

/* Folded 128-bit product of the seeded halves of the key's first 16 bytes. */
static size_t slot_of(const struct manifest_table *t, const uint8_t *key)
{
    __uint128_t p = (__uint128_t)(get_le64(key) ^ t->seed[0]) * (get_le64(key + 8) ^ t->seed[1]);
    return (size_t)((uint64_t)p ^ (uint64_t)(p >> 64)) & (t->n_slots - 1);
}

uint32_t manifest_table_find(const struct manifest_table *t, const uint8_t *key)
{
    if (!t->n_slots)
        return UINT32_MAX;
    for (size_t s = slot_of(t, key); t->slots[s]; s = (s + 1) & (t->n_slots - 1)) {
        uint32_t i = t->slots[s] - 1;
        if (memcmp(manifest_table_at(t, i), key, t->key_len) == 0)
            return i;
    }
    return UINT32_MAX;
}

static void place(struct manifest_table *t, uint32_t i)
{
    size_t s = slot_of(t, manifest_table_at(t, i));
    while (t->slots[s])
        s = (s + 1) & (t->n_slots - 1);
    t->slots[s] = i + 1;
}

/* Room for one more entry, at most 3/4 of the slots taken. */
static int grow(struct manifest_table *t, struct cairn_error *err)
{
    /* The largest number stands for "none" and for "number + 1" of the slots. */
    if (t->n >= UINT32_MAX - 1)
        return error_set(err, CAIRN_INVALID, EFBIG, "more than %u chunks in one manifest", t->n);
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap + t->cap / 2 : 64;
        uint8_t *entries = realloc(t->entries, cap * t->entry_len);
        if (!entries)
            return error_oom(err, "manifest entries");
        t->entries = entries;
        t->cap = cap;
    }
    if (t->n + (size_t)1 <= t->n_slots / 4 * 3)
        return CAIRN_OK;
    size_t n_slots = t->n_slots ? t->n_slots * 2 : 128;
    uint32_t *slots = calloc(n_slots, sizeof(*slots));
    if (!slots)
        return error_oom(err, "manifest table");
    free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (uint32_t i = 0; i < t->n; i++)
        place(t, i);
    return CAIRN_OK;
}

int manifest_table_intern(struct manifest_table *t, const uint8_t *key, uint32_t *number,
                          bool *added, struct cairn_error *err)
{
    *number = manifest_table_find(t, key);
    *added = *number == UINT32_MAX;
    if (!*added)
        return CAIRN_OK;
    int rc = grow(t, err);
    if (rc)
        return rc;
    uint8_t *e = manifest_table_at(t, t->n);
    memcpy(e, key, t->key_len);
    memset(e + t->key_len, 0, t->entry_len - t->key_len);
    *number = t->n++;
    place(t, *number);
    return CAIRN_OK;
}
