#include "base/util.h"
#include "store/digest.h"
#include "store/index_build.h"
#include "store/lister.h"
#include "store/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ids that are held, in order: few, as a rule, and one listing tells them all. */
struct holds {
    char (*ids)[ID_MAX + 1]; /* owned */
    size_t n;
};

static void holds_release(struct holds *h)
{
    free(h->ids);
}

static int holds_load(struct cairn_store *s, const struct cairn_op *op, struct holds *h,
                      struct cairn_error *err)
{
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, s->backend, op, LAYOUT_HOLDS, "", err);
    for (size_t cap = 0; listing_next(&l, &rc, err);) {
        if (l.key.kind != LAYOUT_KIND_HOLD)
            continue;
        if (h->n == cap) {
            cap = cap ? 2 * cap : 16;
            void *ids = reallocarray(h->ids, cap, sizeof(h->ids[0]));
            if (!ids)
                return error_oom(err, "holds");
            h->ids = ids;
        }
        memcpy(h->ids[h->n++], l.key.id, sizeof(h->ids[0]));
    }
    return rc;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool holds_has(const struct holds *h, const char *id)
{
    return h->n && bsearch(id, h->ids, h->n, sizeof(h->ids[0]), by_id);
}

struct telling {
    struct holds holds;
    int (*fn)(void *ctx, const struct cairn_list_entry *entry);
    void *ctx;
};

static int list_one(void *ctx, const struct lister_entry *e)
{
    static const struct head none;
    struct telling *t = ctx;
    const struct head *h = e->rc ? &none : e->head;
    char digest[DIGEST_TEXT] = "";
    if (h->has_digest)
        digest_text(h->digest, digest);
    struct cairn_list_entry entry = {.id = e->id,
                                     .error_class = e->rc,
                                     .error_message = e->rc ? e->err->message : "",
                                     .gen = h->gen,
                                     .digest = digest,
                                     .created_ns = h->created_ns,
                                     .logical_bytes = h->logical_bytes,
                                     .stored_bytes = h->stored_bytes,
                                     .files = h->files,
                                     .held = holds_has(&t->holds, e->id)};
    return t->fn(t->ctx, &entry);
}

int cairn_list(struct cairn_store *s, const struct cairn_op *op,
               const struct cairn_list_options *options,
               int (*fn)(void *ctx, const struct cairn_list_entry *entry), void *ctx,
               struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    static const struct cairn_list_options all;
    const struct cairn_list_options *o = options ? options : &all;
    if ((o->prefix && strchr(o->prefix, '/')) || (o->after && strchr(o->after, '/')) ||
        (o->after && strlen(o->after) > ID_MAX))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "list: prefix and after are (the beginning of) an id");
    if (o->prefix && strlen(o->prefix) > ID_MAX)
        return CAIRN_OK; /* no id is that long */
    struct telling t = {.fn = fn, .ctx = ctx};
    int rc = op_check(op, "list", err);
    if (!rc)
        rc = holds_load(s, op, &t.holds, err);
    if (!rc)
        rc = lister_run(s, op, o->prefix, o->after, o->limit ? o->limit : UINT64_MAX, list_one, &t,
                        err);
    holds_release(&t.holds);
    return rc ? error_wrap(err, "list") : CAIRN_OK;
}

static int count_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                        struct cairn_stats *out, struct cairn_error *err)
{
    char gen[GEN_TEXT];
    struct manifest_info info;
    struct cairn_error e;
    out->records++;
    int rc = lister_read(s, op, id, gen, &info, NULL, &e);
    if (!rc)
        out->logical_bytes += info.logical_bytes;
    else
        out->unreadable++;
    /* A damaged record counts as one; verify is what names it. */
    if (!rc || rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
        return CAIRN_OK;
    return error_pass(err, &e);
}

/* How many chunks a pack holds, from its trailer. */
static int count_chunks(struct cairn_store *s, const struct cairn_op *op, const char *key,
                        uint64_t size, uint64_t *chunks, struct cairn_error *err)
{
    uint8_t trailer[PACK_TRAILER_LEN];
    uint64_t index_off;
    uint32_t n;
    struct cairn_error e;
    if (size < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return CAIRN_OK;
    int rc = s->backend->ops->read(s->backend, op, key, size - PACK_TRAILER_LEN, trailer,
                                   sizeof(trailer), &e);
    if (!rc && pack_trailer_decode(trailer, size, &index_off, &n, &e) == CAIRN_OK)
        *chunks += n;
    if (!rc || rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
        return CAIRN_OK;
    return error_pass(err, &e);
}

static int count_key(struct cairn_store *s, const struct listing *l, struct cairn_stats *out,
                     struct cairn_error *err)
{
    const struct backend_entry *e = &l->entry;
    switch (l->key.kind) {
    case LAYOUT_KIND_META:
        return count_record(s, l->op, l->key.id, out, err);
    case LAYOUT_KIND_EXPORT:
        out->generations++;
        out->manifest_bytes += e->stat.size;
        return CAIRN_OK;
    case LAYOUT_KIND_PACK:
        out->packs++;
        out->stored_bytes += e->stat.size;
        return count_chunks(s, l->op, e->key, e->stat.size, &out->chunks, err);
    default:
        return CAIRN_OK;
    }
}

int cairn_stats(struct cairn_store *s, const struct cairn_op *op, struct cairn_stats *out,
                struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    static const char *const prefixes[] = {LAYOUT_RECORDS, LAYOUT_PACKS};
    *out = (struct cairn_stats){0};
    int rc = op_check(op, "stats", err);
    for (size_t i = 0; !rc && i < ARRAY_SIZE(prefixes); i++) {
        CLEANUP_LISTING struct listing l;
        rc = listing_open(&l, s->backend, op, prefixes[i], "", err);
        while (listing_next(&l, &rc, err))
            rc = count_key(s, &l, out, err);
    }
    struct index_stats x;
    struct cairn_error ignored;
    if (!rc && s->index && !index_stats(s->index, &x, &ignored))
        out->index_bytes = x.bytes;
    return rc ? error_wrap(err, "stats") : CAIRN_OK;
}
