#include "store/fetch_repeats.h"

#include "base/util.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct kept {
    size_t len;
    uint8_t plain[];
};

struct repeat {
    uint32_t chunk;
    _Atomic(struct kept *) kept; /* owned; set once */
};

struct fetch_repeats {
    const struct manifest *m;
    atomic_size_t bytes;
    size_t n;
    struct repeat repeats[]; /* by chunk, constant but for kept */
};

/* Sets the bit; true: it was set before. */
static bool mark(uint8_t *bits, uint32_t i)
{
    uint8_t bit = (uint8_t)(1u << (i % 8));
    bool was = bits[i / 8] & bit;
    bits[i / 8] |= bit;
    return was;
}

int fetch_repeats_new(const struct manifest *m, struct fetch_repeats **out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    size_t len = info->n_chunks / 8 + 1, n = 0;
    CLEANUP_FREE uint8_t *once = calloc(2, len);
    *out = NULL;
    if (!once)
        return error_oom(err, "fetch");
    uint8_t *again = once + len;
    for (uint32_t x = 0; x < info->n_extents; x++) {
        struct manifest_extent ext;
        manifest_extent(m, x, &ext);
        for (uint32_t k = 0; n < FETCH_REPEATS_MAX && k < ext.count; k++)
            if (mark(once, ext.first + k) && !mark(again, ext.first + k))
                n++;
    }
    if (!n)
        return CAIRN_OK;
    struct fetch_repeats *r = calloc(1, sizeof(*r) + n * sizeof(r->repeats[0]));
    if (!r)
        return error_oom(err, "fetch");
    r->m = m;
    for (uint32_t i = 0; r->n < n && i < info->n_chunks; i++)
        if (again[i / 8] >> (i % 8) & 1)
            r->repeats[r->n++].chunk = i;
    *out = r;
    return CAIRN_OK;
}

void fetch_repeats_free(struct fetch_repeats *r)
{
    for (size_t i = 0; r && i < r->n; i++)
        free(atomic_load(&r->repeats[i].kept));
    free(r);
}

static struct repeat *find(struct fetch_repeats *r, const struct manifest *m, uint32_t chunk)
{
    size_t low = 0, high = r && r->m == m ? r->n : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->repeats[middle].chunk == chunk)
            return &r->repeats[middle];
        if (r->repeats[middle].chunk < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void fetch_repeats_give(struct fetch_repeats *r, const struct manifest *m, uint32_t i,
                        const void *plain, size_t len)
{
    struct repeat *repeat = find(r, m, i);
    if (!repeat || atomic_load(&repeat->kept) ||
        atomic_fetch_add(&r->bytes, len) + len > FETCH_REPEATS_BYTES)
        return;
    struct kept *kept = malloc(sizeof(*kept) + len), *none = NULL;
    if (!kept)
        return;
    kept->len = len;
    memcpy(kept->plain, plain, len);
    if (!atomic_compare_exchange_strong(&repeat->kept, &none, kept))
        free(kept);
}

const void *fetch_repeats_find(struct fetch_repeats *r, const struct manifest *m, uint32_t i,
                               size_t *len)
{
    struct repeat *repeat = find(r, m, i);
    struct kept *kept = repeat ? atomic_load(&repeat->kept) : NULL;
    if (!kept)
        return NULL;
    *len = kept->len;
    return kept->plain;
}
