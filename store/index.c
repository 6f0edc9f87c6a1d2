#include "store/index.h"

#include "base/util.h"
#include "store/index_private.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define AT_FIXED    13 /* le32 offset, stored_len, plain_len; u8 encoding */
#define AT_CHECK    8
#define AT_LEN      (AT_FIXED + AT_CHECK)
#define AT_LEN_BASE (AT_FIXED + SHA256_LEN + AT_CHECK)

/* The rows' checksum is keyed by the store, so that no row of another one passes. */
static int make_secret(struct index *x, struct cairn_error *err)
{
    uint8_t seed[INDEX_STORE_ID_LEN + 1];
    memcpy(seed, x->store_id, INDEX_STORE_ID_LEN);
    for (size_t i = 0; i < XXH3_SECRET_LEN / SHA256_LEN; i++) {
        seed[INDEX_STORE_ID_LEN] = (uint8_t)i;
        int rc = hash_sha256(seed, sizeof(seed), x->secret + i * SHA256_LEN, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int index_new(const char *path, const char *store_id, struct index **out, struct cairn_error *err)
{
    uint8_t raw[INDEX_STORE_ID_LEN / 2];
    if (!util_unhex(store_id, raw, sizeof(raw)))
        return error_set(err, CAIRN_INVALID, EINVAL, "index %s: bad store id", path);
    struct index *x = calloc(1, sizeof(*x));
    if (!x)
        return error_oom(err, "index");
    pthread_mutex_init(&x->lock, NULL);
    memcpy(x->store_id, store_id, INDEX_STORE_ID_LEN);
    x->path = strdup(path);
    if (asprintf(&x->lock_path, "%s.lock", path) < 0)
        x->lock_path = NULL;
    int rc = x->path && x->lock_path ? make_secret(x, err) : error_oom(err, "index");
    if (rc) {
        index_close(x);
        return rc;
    }
    *out = x;
    return CAIRN_OK;
}

void index_close(struct index *x)
{
    if (!x)
        return;
    index_db_close_locked(x); /* nobody else is left */
    pthread_mutex_destroy(&x->lock);
    free(x->path);
    free(x->lock_path);
    free(x);
}

static int get_built(struct index *x, void *arg, struct cairn_error *err)
{
    return index_sql_get_meta_locked(x, "built", arg, NULL, 0, err);
}

bool index_is_new(struct index *x)
{
    int64_t built = 0;
    return index_db_call(x, get_built, &built, false, NULL) != CAIRN_OK || !built;
}

static int set_built(struct index *x, void *arg, struct cairn_error *err)
{
    (void)arg;
    return index_sql_set_meta_locked(x, "built", 1, err);
}

int index_set_built(struct index *x, struct cairn_error *err)
{
    return index_db_call(x, set_built, NULL, true, err);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

struct row {
    uint8_t pack[PACK_ID_LEN];
    uint8_t at[AT_LEN_BASE];
    size_t at_len;
};

static void check_of(const struct index *x, const uint8_t *sha, const struct row *r,
                     uint8_t out[XXH3_LEN])
{
    uint8_t all[SHA256_LEN + PACK_ID_LEN + AT_LEN_BASE];
    size_t body = r->at_len - AT_CHECK;
    memcpy(all, sha, SHA256_LEN);
    memcpy(all + SHA256_LEN, r->pack, PACK_ID_LEN);
    memcpy(all + SHA256_LEN + PACK_ID_LEN, r->at, body);
    hash_xxh3(x->secret, all, SHA256_LEN + PACK_ID_LEN + body, out);
}

static void encode_row(const struct index *x, const uint8_t *pack, const struct pack_entry *e,
                       struct row *r)
{
    uint8_t check[XXH3_LEN];
    bool based = e->encoding == CHUNK_ZSTD_BASE;
    memcpy(r->pack, pack, PACK_ID_LEN);
    put_le32(r->at, e->offset);
    put_le32(r->at + 4, e->stored_len);
    put_le32(r->at + 8, e->plain_len);
    r->at[12] = e->encoding;
    if (based)
        memcpy(r->at + AT_FIXED, e->base_sha, SHA256_LEN);
    r->at_len = based ? AT_LEN_BASE : AT_LEN;
    check_of(x, e->sha, r, check);
    memcpy(r->at + r->at_len - AT_CHECK, check, AT_CHECK);
}

static bool decode_row(const struct index *x, const uint8_t *sha, const struct row *r,
                       struct chunk_loc *loc, uint8_t base_sha[SHA256_LEN])
{
    uint8_t check[XXH3_LEN];
    check_of(x, sha, r, check);
    if (memcmp(r->at + r->at_len - AT_CHECK, check, AT_CHECK) != 0)
        return false;
    memcpy(loc->pack, r->pack, PACK_ID_LEN);
    loc->offset = get_le32(r->at);
    loc->stored_len = get_le32(r->at + 4);
    loc->plain_len = get_le32(r->at + 8);
    loc->encoding = r->at[12];
    bool based = loc->encoding == CHUNK_ZSTD_BASE;
    if (based != (r->at_len == AT_LEN_BASE))
        return false;
    memset(base_sha, 0, SHA256_LEN);
    if (based)
        memcpy(base_sha, r->at + AT_FIXED, SHA256_LEN);
    return true;
}

/* not_found without a message: this is the usual answer. */
static int find_one_locked(struct index *x, const uint8_t *sha, struct chunk_loc *loc,
                           uint8_t base_sha[SHA256_LEN], struct cairn_error *err)
{
    sqlite3_stmt *s = x->statements[INDEX_FIND_CHUNK];
    index_sql_bind(s, 1, sha, SHA256_LEN);
    int sql = sqlite3_step(s);
    bool dangling = false, sound = false;
    struct row r;
    if (sql == SQLITE_ROW) {
        const void *pack = sqlite3_column_blob(s, 0), *at = sqlite3_column_blob(s, 1);
        int pack_len = sqlite3_column_bytes(s, 0), at_len = sqlite3_column_bytes(s, 1);
        dangling = !pack;
        if (pack && at && pack_len == PACK_ID_LEN && (at_len == AT_LEN || at_len == AT_LEN_BASE)) {
            memcpy(r.pack, pack, PACK_ID_LEN);
            r.at_len = (size_t)at_len;
            memcpy(r.at, at, r.at_len);
            sound = decode_row(x, sha, &r, loc, base_sha);
        }
    }
    index_sql_done(s);
    if (sql == SQLITE_DONE || dangling)
        return CAIRN_NOT_FOUND;
    if (sql != SQLITE_ROW)
        return index_sql_fail_locked(x, sql, "looking up a chunk", err);
    return sound ? CAIRN_OK : index_sql_damaged_locked(x, "a row fails its checksum", err);
}

static int find_locked(struct index *x, struct chunk *out, struct cairn_error *err)
{
    uint8_t none[SHA256_LEN];
    memset(&out->base, 0, sizeof(out->base));
    int rc = find_one_locked(x, out->sha, &out->loc, out->base_sha, err);
    if (rc || out->loc.encoding != CHUNK_ZSTD_BASE)
        return rc;
    rc = find_one_locked(x, out->base_sha, &out->base, none, err);
    /* The base may have been stored again meanwhile, and based itself: of no use then. */
    return !rc && out->base.encoding == CHUNK_ZSTD_BASE ? CAIRN_NOT_FOUND : rc;
}

static int lookup(struct index *x, void *arg, struct cairn_error *err)
{
    return find_locked(x, arg, err);
}

int index_lookup(struct index *x, const uint8_t sha[SHA256_LEN], struct chunk *out,
                 struct cairn_error *err)
{
    memcpy(out->sha, sha, SHA256_LEN);
    int rc = index_db_call(x, lookup, out, false, err);
    return rc == CAIRN_NOT_FOUND
               ? error_set(err, CAIRN_NOT_FOUND, ENOENT, "index: the chunk is not known")
               : rc;
}

struct many {
    struct index_query *queries;
    size_t n;
};

static int lookup_many_in(struct index *x, void *arg, struct cairn_error *err)
{
    const struct many *m = arg;
    for (size_t i = 0; i < m->n; i++) {
        int rc = find_locked(x, &m->queries[i].chunk, err);
        m->queries[i].found = rc == CAIRN_OK;
        if (rc && rc != CAIRN_NOT_FOUND)
            return rc;
    }
    return CAIRN_OK;
}

static int lookup_many(struct index *x, void *arg, struct cairn_error *err)
{
    return index_db_snapshot_locked(x, lookup_many_in, arg, err);
}

int index_lookup_many(struct index *x, struct index_query *queries, size_t n,
                      struct cairn_error *err)
{
    struct many m = {queries, n};
    int rc = n ? index_db_call(x, lookup_many, &m, false, err) : CAIRN_OK;
    for (size_t i = 0; rc && i < n; i++)
        queries[i].found = false;
    return rc;
}

/* ---- Packs ----------------------------------------------------------------------------------- */

struct pack_arg {
    const uint8_t *pack;
    const struct pack_entry *entries;
    uint32_t n;
    bool has;
};

static int pack_no_locked(struct index *x, const uint8_t *pack, bool *has, int64_t *no,
                          struct cairn_error *err)
{
    sqlite3_stmt *s = x->statements[INDEX_FIND_PACK];
    index_sql_bind(s, 1, pack, PACK_ID_LEN);
    int sql = sqlite3_step(s);
    *has = sql == SQLITE_ROW;
    if (*has)
        *no = sqlite3_column_int64(s, 0);
    index_sql_done(s);
    return *has || sql == SQLITE_DONE ? CAIRN_OK
                                      : index_sql_fail_locked(x, sql, "looking up a pack", err);
}

static int put_chunk_locked(struct index *x, const uint8_t *pack, int64_t no,
                            const struct pack_entry *e, int64_t *added, struct cairn_error *err)
{
    struct chunk known;
    memcpy(known.sha, e->sha, SHA256_LEN);
    int rc = find_locked(x, &known, err);
    if (rc != CAIRN_NOT_FOUND)
        return rc;
    /* There may be a row that is of no use. */
    index_sql_bind(x->statements[INDEX_UNCOUNT], 1, e->sha, SHA256_LEN);
    rc = index_sql_run_locked(x, INDEX_UNCOUNT, "adding a chunk", err);
    if (rc)
        return rc;
    struct row r;
    encode_row(x, pack, e, &r);
    sqlite3_stmt *s = x->statements[INDEX_PUT_CHUNK];
    index_sql_bind(s, 1, e->sha, SHA256_LEN);
    sqlite3_bind_int64(s, 2, no);
    index_sql_bind(s, 3, r.at, r.at_len);
    ++*added;
    return index_sql_run_locked(x, INDEX_PUT_CHUNK, "adding a chunk", err);
}

static int add_pack_in(struct index *x, void *arg, struct cairn_error *err)
{
    const struct pack_arg *a = arg;
    index_sql_bind(x->statements[INDEX_ADD_PACK], 1, a->pack, PACK_ID_LEN);
    int rc = index_sql_run_locked(x, INDEX_ADD_PACK, "adding a pack", err);
    bool has = false;
    int64_t no = 0, added = 0;
    if (!rc)
        rc = pack_no_locked(x, a->pack, &has, &no, err);
    if (!rc && !has)
        rc = index_sql_damaged_locked(x, "a pack is gone while it is added", err);
    for (uint32_t i = 0; !rc && i < a->n; i++)
        rc = put_chunk_locked(x, a->pack, no, &a->entries[i], &added, err);
    if (rc || !added)
        return rc;
    sqlite3_bind_int64(x->statements[INDEX_COUNT], 1, no);
    sqlite3_bind_int64(x->statements[INDEX_COUNT], 2, added);
    return index_sql_run_locked(x, INDEX_COUNT, "adding a pack", err);
}

static int add_pack(struct index *x, void *arg, struct cairn_error *err)
{
    return index_db_transaction_locked(x, add_pack_in, arg, err);
}

int index_add_pack(struct index *x, const uint8_t pack[PACK_ID_LEN],
                   const struct pack_entry *entries, uint32_t n, struct cairn_error *err)
{
    struct pack_arg a = {.pack = pack, .entries = entries, .n = n};
    return index_db_call(x, add_pack, &a, true, err);
}

static int drop_pack_in(struct index *x, void *arg, struct cairn_error *err)
{
    const struct pack_arg *a = arg;
    index_sql_bind(x->statements[INDEX_DROP_PACK], 1, a->pack, PACK_ID_LEN);
    int rc = index_sql_run_locked(x, INDEX_DROP_PACK, "dropping a pack", err);
    int64_t slice = 0;
    if (!rc)
        rc = index_sql_get_meta_locked(x, "purge", &slice, NULL, 0, err);
    if (rc)
        return rc;
    /* Names of chunks with this first byte; the last slice ends above every name. */
    uint8_t from = (uint8_t)slice, to[SHA256_LEN + 1];
    memset(to, from == 0xff ? 0xff : from + 1, sizeof(to));
    index_sql_bind(x->statements[INDEX_PURGE], 1, &from, 1);
    index_sql_bind(x->statements[INDEX_PURGE], 2, to, from == 0xff ? sizeof(to) : 1);
    rc = index_sql_run_locked(x, INDEX_PURGE, "purging chunks", err);
    return rc ? rc : index_sql_set_meta_locked(x, "purge", (uint8_t)(from + 1), err);
}

static int drop_pack(struct index *x, void *arg, struct cairn_error *err)
{
    struct pack_arg *a = arg;
    int64_t no;
    int rc = pack_no_locked(x, a->pack, &a->has, &no, err);
    return rc || !a->has ? rc : index_db_transaction_locked(x, drop_pack_in, a, err);
}

int index_drop_pack(struct index *x, const uint8_t pack[PACK_ID_LEN], struct cairn_error *err)
{
    struct pack_arg a = {.pack = pack};
    return index_db_call(x, drop_pack, &a, true, err);
}

static int has_pack(struct index *x, void *arg, struct cairn_error *err)
{
    struct pack_arg *a = arg;
    int64_t no;
    return pack_no_locked(x, a->pack, &a->has, &no, err);
}

int index_has_pack(struct index *x, const uint8_t pack[PACK_ID_LEN], bool *has,
                   struct cairn_error *err)
{
    struct pack_arg a = {.pack = pack};
    int rc = index_db_call(x, has_pack, &a, true, err);
    if (!rc)
        *has = a.has;
    return rc;
}

static int clear_in(struct index *x, void *arg, struct cairn_error *err)
{
    (void)arg;
    int rc = index_sql_run_locked(x, INDEX_CLEAR_CHUNKS, "clearing", err);
    if (!rc)
        rc = index_sql_run_locked(x, INDEX_CLEAR_PACKS, "clearing", err);
    return rc ? rc : index_sql_set_meta_locked(x, "built", 0, err);
}

static int clear_all(struct index *x, void *arg, struct cairn_error *err)
{
    return index_db_transaction_locked(x, clear_in, arg, err);
}

int index_clear(struct index *x, struct cairn_error *err)
{
    return index_db_call(x, clear_all, NULL, true, err);
}

static int stats_of(struct index *x, void *arg, struct cairn_error *err)
{
    struct index_stats *out = arg;
    sqlite3_stmt *s = x->statements[INDEX_STATS];
    int sql = sqlite3_step(s);
    if (sql == SQLITE_ROW) {
        out->packs = (uint64_t)sqlite3_column_int64(s, 0);
        out->chunks = (uint64_t)sqlite3_column_int64(s, 1);
    }
    index_sql_done(s);
    return sql == SQLITE_ROW ? CAIRN_OK : index_sql_fail_locked(x, sql, "counting", err);
}

int index_stats(struct index *x, struct index_stats *out, struct cairn_error *err)
{
    *out = (struct index_stats){0};
    int rc = index_db_call(x, stats_of, out, true, err);
    if (rc)
        return rc;
    char *wal CLEANUP_FREE = NULL;
    if (asprintf(&wal, "%s-wal", x->path) < 0)
        return error_oom(err, "index");
    const char *const files[] = {x->path, wal};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct stat st;
        if (stat(files[i], &st) == 0)
            out->bytes += (uint64_t)st.st_size;
    }
    return CAIRN_OK;
}
