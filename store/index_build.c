#include "store/index_build.h"

#include "base/log.h"
#include "base/util.h"
#include "store/listing.h"

#include <errno.h>
#include <stdlib.h>

int index_read_pack(struct cairn_store *s, const struct cairn_op *op,
                    const uint8_t pack[PACK_ID_LEN], uint64_t size, struct pack_entry **entries,
                    uint32_t *n, struct cairn_error *err)
{
    struct backend *b = s->backend;
    char key[KEY_MAX];
    layout_pack(pack, key);
    uint8_t header[PACK_HEADER_LEN], trailer[PACK_TRAILER_LEN];
    uint64_t index_off;
    if (size < PACK_HEADER_LEN + PACK_TRAILER_LEN || size > PACK_SIZE_MAX)
        return error_set(err, CAIRN_CORRUPT, EIO, "%s: %llu bytes are no pack", key,
                         (unsigned long long)size);
    int rc = b->ops->read(b, op, key, size - PACK_TRAILER_LEN, trailer, sizeof(trailer), err);
    if (!rc)
        rc = b->ops->read(b, op, key, 0, header, sizeof(header), err);
    if (rc)
        return rc;
    rc = pack_trailer_decode(trailer, size, &index_off, n, err);
    if (rc)
        return error_wrap(err, "%s", key);
    size_t len = (size_t)*n * PACK_ENTRY_LEN;
    CLEANUP_FREE uint8_t *index = malloc(len ? len : 1);
    if (!index)
        return error_oom(err, "index of a pack");
    rc = b->ops->read(b, op, key, index_off, index, len, err);
    if (rc)
        return rc;
    rc = pack_index_decode(pack, header, index, index_off, *n, trailer, entries, NULL, err);
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}

static int add_pack(struct cairn_store *s, const struct cairn_op *op,
                    const uint8_t pack[PACK_ID_LEN], uint64_t size, struct cairn_error *err)
{
    bool has;
    int rc = index_has_pack(s->index, pack, &has, err);
    if (rc || has)
        return rc;
    CLEANUP_FREE struct pack_entry *entries = NULL;
    uint32_t n;
    struct cairn_error e;
    rc = index_read_pack(s, op, pack, size, &entries, &n, &e);
    if (rc == CAIRN_CORRUPT || rc == CAIRN_NOT_FOUND) {
        if (rc == CAIRN_CORRUPT)
            log_line(LOG_LEVEL_WARNING, "left out of the index: %s", e.message);
        return CAIRN_OK;
    }
    if (rc)
        return error_pass(err, &e);
    return index_add_pack(s->index, pack, entries, n, err);
}

int index_build(struct cairn_store *s, const struct cairn_op *op, bool anew,
                struct cairn_error *err)
{
    if (!s->index)
        return CAIRN_OK;
    int rc = anew ? index_clear(s->index, err) : CAIRN_OK;
    CLEANUP_LISTING struct listing l = {0};
    if (!rc)
        rc = listing_open(&l, s->backend, op, LAYOUT_PACKS, "", err);
    while (listing_next(&l, &rc, err))
        if (l.key.kind == LAYOUT_KIND_PACK)
            rc = add_pack(s, op, l.key.pack, l.entry.stat.size, err);
    if (!rc)
        rc = index_set_built(s->index, err);
    return rc ? error_wrap(err, "building the index") : CAIRN_OK;
}
