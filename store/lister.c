#include "store/lister.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/listing.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Records that are read at once where each read is a request, and those that may be waiting to be
 * handed out behind one that is. */
#define READERS 16
#define RING    64

/* A folder that changed less than this before the listing began may change again within one tick of
 * its file system's clock: what is in it is not remembered. */
#define SETTLED_NS (10 * NS_PER_S)

/* So many records of a directory are read as fast as the memory of many more is. */
#define FEW 1000

struct export
{
    char gen[GEN_TEXT];
    struct backend_stat st;
};

/* A record of the listing. Owned by the caller's thread, but by a reader between pool_submit and
 * pool_wait. */
struct slot {
    struct pool_work work;
    struct lister *l;
    bool pending;
    char id[ID_MAX + 1];
    bool has_folder; /* folder tells; else meta and exports do */
    struct backend_stat folder, meta;
    struct export *exports; /* owned; kept from use to use */
    size_t n_exports, cap_exports;
    struct head head;
    int rc;
    bool vanished; /* removed since it was listed */
    struct cairn_error err;
};

struct lister {
    struct cairn_store *s;
    const struct cairn_op *op;
    struct heads *heads;  /* borrowed; NULL: not worth it */
    uint32_t listing;     /* of heads */
    int64_t began_ns;     /* realtime */
    atomic_bool quit;     /* nobody waits for what readers have not begun */
    struct pool *readers; /* NULL: none were needed yet */
    struct slot *ring;
    size_t ring_n, head, used;
    uint64_t left;
    bool stopped; /* fn wants no more, or left is 0 */
    lister_fn *fn;
    void *ctx;
};

/* ---- Reading one ---- */

int lister_read(struct cairn_store *s, const struct cairn_op *op, const char *id,
                char gen[GEN_TEXT], struct manifest_info *info, struct backend_stat *meta_st,
                struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    uint8_t header[MANIFEST_HEADER_LEN];
    char key[KEY_MAX];
    gen[0] = 0;
    layout_meta(id, key);
    int rc = s->backend->ops->get(s->backend, op, key, META_MAX, &meta, meta_st, err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such record: %s", id);
    if (!rc)
        rc = gen_of_meta(meta.data, meta.len, gen, err);
    if (rc)
        return rc;
    layout_export(id, gen, key);
    rc = s->backend->ops->read(s->backend, op, key, 0, header, sizeof(header), err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s has no export (generation %s)", id, gen);
    if (!rc)
        rc = manifest_header_decode(header, info, err);
    if (!rc && (strcmp(info->id, id) != 0 || strcmp(info->gen, gen) != 0))
        rc = error_set(err, CAIRN_CORRUPT, EIO, "it is the manifest of %s, generation %s", info->id,
                       info->gen);
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}

/* ---- Stamps ---- */

static size_t add_object(uint8_t *out, const struct backend_stat *st)
{
    put_le64(out, st->size);
    memcpy(out + 8, st->etag, strnlen(st->etag, sizeof(st->etag)));
    return 8 + sizeof(st->etag);
}

/* Of what was listed, if the committed generation is gen. False: nothing that could be told from
 * what may stand there later. */
static bool stamp(const struct slot *c, const char *gen, uint8_t out[XXH3_LEN])
{
    uint8_t text[2 * (8 + BACKEND_ETAG_MAX) + GEN_TEXT] = {0};
    size_t n = 0;
    if (c->has_folder) {
        put_le64(text, (uint64_t)c->folder.mtime_ns);
        hash_xxh3(c->l->s->format.secret, text, 8, out);
        return c->folder.mtime_ns > 0;
    }
    const struct export *e = NULL;
    for (size_t i = 0; i < c->n_exports; i++)
        if (strcmp(c->exports[i].gen, gen) == 0)
            e = &c->exports[i];
    if (!e || !e->st.etag[0] || !c->meta.etag[0])
        return false;
    n = add_object(text, &c->meta);
    n += add_object(text + n, &e->st);
    memcpy(text + n, gen, GEN_TEXT);
    hash_xxh3(c->l->s->format.secret, text, n + GEN_TEXT, out);
    return true;
}

static bool known(struct slot *c)
{
    uint8_t now[XXH3_LEN];
    return heads_find(c->l->heads, c->l->listing, c->id, &c->head) && stamp(c, c->head.gen, now) &&
           memcmp(now, c->head.stamp, XXH3_LEN) == 0;
}

/* What was read is remembered under the stamp of what was listed before, if it is of that. */
static void remember(struct slot *c, const struct backend_stat *meta_st)
{
    const struct lister *l = c->l;
    bool same = c->has_folder
                    ? l->began_ns - c->folder.mtime_ns >= SETTLED_NS
                    : meta_st->size == c->meta.size && strcmp(meta_st->etag, c->meta.etag) == 0;
    if (same && stamp(c, c->head.gen, c->head.stamp))
        heads_put(l->heads, l->listing, &c->head);
}

static void read_slot(struct slot *c)
{
    struct cairn_store *s = c->l->s;
    struct manifest_info info;
    struct backend_stat st = {0};
    c->rc = lister_read(s, c->l->op, c->id, c->head.gen, &info, &st, &c->err);
    /* A template may be published again between the reads of meta.json and of its manifest. */
    if (c->rc == CAIRN_NOT_FOUND)
        c->rc = lister_read(s, c->l->op, c->id, c->head.gen, &info, &st, &c->err);
    c->vanished = c->rc == CAIRN_NOT_FOUND && !c->head.gen[0];
    if (c->rc)
        return;
    memcpy(c->head.id, c->id, sizeof(c->head.id));
    c->head.created_ns = info.created_ns;
    c->head.logical_bytes = info.logical_bytes;
    c->head.stored_bytes = info.stored_bytes;
    c->head.files = info.n_files;
    c->head.has_digest = info.has_digest;
    memcpy(c->head.digest, info.digest, sizeof(c->head.digest));
    remember(c, &st);
}

static void run_slot(struct pool_work *work, unsigned worker)
{
    (void)worker;
    struct slot *c = (struct slot *)((char *)work - offsetof(struct slot, work));
    if (!atomic_load(&c->l->quit))
        read_slot(c);
}

/* ---- The ring ---- */

static int deliver_oldest(struct lister *l, struct cairn_error *err)
{
    struct slot *c = &l->ring[l->head];
    if (c->pending)
        pool_wait(&c->work);
    c->pending = false;
    l->head = (l->head + 1) % l->ring_n;
    l->used--;
    if (l->stopped || c->vanished)
        return CAIRN_OK;
    if (c->rc == CAIRN_TIMEOUT || c->rc == CAIRN_CANCELLED || c->rc == CAIRN_INTERNAL)
        return error_pass(err, &c->err);
    struct lister_entry e = {.id = c->id, .rc = c->rc, .err = &c->err, .head = &c->head};
    l->stopped = l->fn(l->ctx, &e) != 0 || --l->left == 0;
    return CAIRN_OK;
}

/* No more are read than are asked for, unless some of them turn out to be none. */
static int make_room(struct lister *l, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    while (!rc && !l->stopped && l->used && (l->used == l->ring_n || l->used >= l->left))
        rc = deliver_oldest(l, err);
    return rc;
}

/* The slot that is filled next. */
static struct slot *next_slot(struct lister *l)
{
    return &l->ring[(l->head + l->used) % l->ring_n];
}

static int take(struct lister *l, struct slot *c, struct cairn_error *err)
{
    l->used++;
    c->rc = CAIRN_OK;
    c->vanished = false;
    if (known(c))
        return CAIRN_OK;
    if (l->ring_n == 1) {
        read_slot(c);
        return CAIRN_OK;
    }
    int rc = l->readers ? CAIRN_OK : pool_new(READERS, &l->readers, err);
    if (rc)
        return rc;
    c->work.run = run_slot;
    c->pending = true;
    pool_submit(l->readers, &c->work);
    return CAIRN_OK;
}

/* ---- The listings ---- */

static void key_range(const char *prefix, const char *after, char from[KEY_MAX],
                      char behind[KEY_MAX])
{
    snprintf(from, KEY_MAX, LAYOUT_RECORDS "%s", prefix ? prefix : "");
    behind[0] = 0;
    /* '0' follows '/': behind every key of the record `after`. */
    if (after && *after)
        snprintf(behind, KEY_MAX, LAYOUT_RECORDS "%s0", after);
}

/* "records/<id>/" */
static bool folder_id(const char *key, char id[ID_MAX + 1])
{
    size_t skip = strlen(LAYOUT_RECORDS), n = strlen(key);
    if (n <= skip + 1 || n - skip - 1 > ID_MAX)
        return false;
    memcpy(id, key + skip, n - skip - 1);
    id[n - skip - 1] = 0;
    return id_is_valid(id);
}

static int each_folder(struct lister *l, const char *prefix, const char *after,
                       struct cairn_error *err)
{
    struct backend *b = l->s->backend;
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    int rc = b->ops->list_folders(b, l->op, prefix, after, &it, err);
    while (!rc) {
        struct backend_entry e;
        rc = it->ops->iter_next(it, l->op, &e, err);
        if (!rc && e.key)
            rc = make_room(l, err);
        if (rc || !e.key || l->stopped)
            break;
        struct slot *c = next_slot(l);
        if (!folder_id(e.key, c->id))
            continue;
        c->has_folder = true;
        c->folder = e.stat;
        rc = take(l, c, err);
    }
    return rc;
}

static int add_export(struct slot *c, const char *gen, const struct backend_stat *st,
                      struct cairn_error *err)
{
    if (c->n_exports == c->cap_exports) {
        size_t cap = c->cap_exports ? 2 * c->cap_exports : 2;
        struct export *more = reallocarray(c->exports, cap, sizeof(*more));
        if (!more)
            return error_oom(err, "listing");
        c->exports = more;
        c->cap_exports = cap;
    }
    struct export *e = &c->exports[c->n_exports++];
    memcpy(e->gen, gen, GEN_TEXT);
    e->st = *st;
    return CAIRN_OK;
}

/* The exports of a record come before its meta.json. */
static int each_key(struct lister *l, const char *prefix, const char *after,
                    struct cairn_error *err)
{
    CLEANUP_LISTING struct listing at;
    struct slot *c = next_slot(l);
    c->id[0] = 0;
    int rc = listing_open(&at, l->s->backend, l->op, prefix, after, err);
    while (listing_next(&at, &rc, err)) {
        const struct layout_key *k = &at.key;
        if (k->kind != LAYOUT_KIND_META && k->kind != LAYOUT_KIND_EXPORT)
            continue;
        if (strcmp(c->id, k->id) != 0) {
            memcpy(c->id, k->id, sizeof(c->id));
            c->n_exports = 0;
        }
        if (k->kind == LAYOUT_KIND_EXPORT) {
            rc = add_export(c, k->gen, &at.entry.stat, err);
            continue;
        }
        c->has_folder = false;
        c->meta = at.entry.stat;
        rc = take(l, c, err);
        if (!rc)
            rc = make_room(l, err);
        if (rc || l->stopped)
            break;
        c = next_slot(l);
        c->id[0] = 0;
    }
    return rc;
}

static int run(struct lister *l, const char *prefix, const char *after, struct cairn_error *err)
{
    char from[KEY_MAX], behind[KEY_MAX];
    key_range(prefix, after, from, behind);
    int rc = l->s->backend->ops->list_folders ? each_folder(l, from, behind, err)
                                              : each_key(l, from, behind, err);
    while (!rc && l->used && !l->stopped)
        rc = deliver_oldest(l, err);
    return rc;
}

static void release(struct lister *l)
{
    atomic_store(&l->quit, true);
    for (size_t i = 0; l->ring && i < l->ring_n; i++) {
        if (l->ring[i].pending)
            pool_wait(&l->ring[i].work);
        free(l->ring[i].exports);
    }
    pool_free(l->readers);
    free(l->ring);
}

int lister_run(struct cairn_store *s, const struct cairn_op *op, const char *prefix,
               const char *after, uint64_t limit, lister_fn *fn, void *ctx, struct cairn_error *err)
{
    struct lister l = {.s = s,
                       .op = op,
                       .began_ns = clock_realtime(),
                       .ring_n = s->backend->ops->open_fd ? 1 : RING,
                       .left = limit,
                       .stopped = limit == 0,
                       .fn = fn,
                       .ctx = ctx};
    l.ring = calloc(l.ring_n, sizeof(l.ring[0]));
    if (!l.ring)
        return error_oom(err, "listing");
    for (size_t i = 0; i < l.ring_n; i++)
        l.ring[i].l = &l;
    if (!s->backend->ops->open_fd || limit > FEW)
        l.heads = s->heads;
    l.listing = heads_begin(l.heads);
    int rc = run(&l, prefix, after, err);
    bool all = !rc && !l.stopped && !(prefix && *prefix) && !(after && *after);
    release(&l);
    heads_end(l.heads, l.listing, all);
    return rc;
}
