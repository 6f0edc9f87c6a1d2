#include "store/sweep_db.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define APPLICATION_ID 0x43524e53 /* "CRNS" */
#define SCHEMA_VERSION 2
#define USE_LEN        (PACK_ID_LEN + 8 + SWEEP_WINDOWS / 8)
#define STAMP_MAX      (16 + BACKEND_ETAG_MAX)
#define BUSY_MS        2000
/* Of the body of a manifest: as many packs as fit into a blob that SQLite takes by default. */
#define BODY_MAX ((size_t)256 * 1024 * 1024)

enum statement {
    FIND_MANIFEST,
    PUT_MANIFEST,
    TOUCH_MANIFEST,
    FIND_META,
    PUT_META,
    TOUCH_META,
    FIND_TOMB,
    PUT_TOMB,
    TOUCH_TOMB,
    FIND_STUCK,
    PUT_STUCK,
    FIND_SUPERSEDED,
    PUT_SUPERSEDED,
    PUT_RECORD,
    MISSING,
    GET_VALUE,
    PUT_VALUE,
    STATEMENTS,
};

static const char *const sql_text[STATEMENTS] = {
    [FIND_MANIFEST] = "SELECT body FROM manifest WHERE key = ?1",
    [PUT_MANIFEST] = "INSERT OR REPLACE INTO manifest(key, body, sweep) VALUES(?1, ?2, ?3)",
    [TOUCH_MANIFEST] = "UPDATE manifest SET sweep = ?2 WHERE key = ?1",
    [FIND_META] = "SELECT body FROM meta WHERE key = ?1",
    [PUT_META] = "INSERT OR REPLACE INTO meta(key, body, sweep) VALUES(?1, ?2, ?3)",
    [TOUCH_META] = "UPDATE meta SET sweep = ?2 WHERE key = ?1",
    [FIND_TOMB] = "SELECT body FROM tomb WHERE key = ?1",
    [PUT_TOMB] = "INSERT OR REPLACE INTO tomb(key, body, sweep) VALUES(?1, ?2, ?3)",
    [TOUCH_TOMB] = "UPDATE tomb SET sweep = ?2 WHERE key = ?1",
    [FIND_STUCK] = "SELECT body FROM stuck WHERE key = ?1",
    [PUT_STUCK] = "INSERT OR REPLACE INTO stuck(key, body, at) VALUES(?1, ?2, ?3)",
    [FIND_SUPERSEDED] = "SELECT at FROM superseded WHERE id = ?1 AND gen = ?2 AND mtime = ?3",
    [PUT_SUPERSEDED] = ("INSERT OR REPLACE INTO superseded(id, gen, mtime, at, sweep) "
                        "VALUES(?1, ?2, ?3, ?4, ?5)"),
    [PUT_RECORD] = "INSERT OR REPLACE INTO record(id, sweep) VALUES(?1, ?2)",
    [MISSING] = "SELECT id FROM record WHERE sweep < ?1 ORDER BY id",
    [GET_VALUE] = "SELECT value FROM value WHERE name = ?1",
    [PUT_VALUE] = "INSERT OR REPLACE INTO value(name, value) VALUES(?1, ?2)",
};

static const char schema_sql[] =
    "BEGIN EXCLUSIVE;"
    "PRAGMA application_id = %d;"
    "PRAGMA user_version = %d;"
    "CREATE TABLE value(name TEXT PRIMARY KEY NOT NULL, value) WITHOUT ROWID;"
    "CREATE TABLE manifest(key TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL, sweep INTEGER);"
    "CREATE TABLE meta(key TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL, sweep INTEGER)"
    " WITHOUT ROWID;"
    "CREATE TABLE tomb(key TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL, sweep INTEGER);"
    "CREATE TABLE stuck(key TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL, at INTEGER);"
    "CREATE TABLE superseded(id TEXT, gen TEXT, mtime INTEGER, at INTEGER, sweep INTEGER,"
    " PRIMARY KEY(id, gen)) WITHOUT ROWID;"
    "CREATE TABLE record(id TEXT PRIMARY KEY NOT NULL, sweep INTEGER) WITHOUT ROWID;"
    "INSERT INTO value VALUES('sweep', 0);"
    "COMMIT;";

struct sweep_db {
    char *path; /* owned */
    const uint8_t *secret;
    sqlite3 *db; /* NULL: no memory any more */
    sqlite3_stmt *statements[STATEMENTS];
    int64_t sweep; /* the number of this one */
};

/* ---- The file ---- */

static void disconnect(struct sweep_db *d)
{
    for (int i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(d->statements[i]);
        d->statements[i] = NULL;
    }
    sqlite3_close(d->db);
    d->db = NULL;
}

static void remove_files(const struct sweep_db *d)
{
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        char *path CLEANUP_FREE = NULL;
        if (asprintf(&path, "%s%s", d->path, suffixes[i]) < 0)
            path = NULL;
        else
            (void)unlink(path);
    }
}

static bool is_damage(int sql)
{
    int c = sql & 0xff;
    return c == SQLITE_CORRUPT || c == SQLITE_NOTADB || c == SQLITE_ERROR || c == SQLITE_SCHEMA ||
           c == SQLITE_FORMAT || c == SQLITE_CONSTRAINT || c == SQLITE_MISMATCH ||
           sql == SQLITE_IOERR_SHORT_READ;
}

/* From here on nothing is remembered. A damaged file makes room for a new one. */
static void give_up(struct sweep_db *d, int sql)
{
    log_line(LOG_LEVEL_WARNING, "%s: %s; the sweep goes on without it", d->path,
             sqlite3_errstr(sql));
    disconnect(d);
    if (is_damage(sql))
        remove_files(d);
}

/* The first column of the only row; a row that is not there counts as 0. */
static int64_t number(sqlite3 *db, const char *text, int *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t v = 0;
    *sql = sqlite3_prepare_v2(db, text, -1, &s, NULL);
    if (!*sql) {
        int step = sqlite3_step(s);
        if (step == SQLITE_ROW)
            v = sqlite3_column_int64(s, 0);
        else if (step != SQLITE_DONE)
            *sql = step;
    }
    sqlite3_finalize(s);
    return v;
}

static int connect_db(struct sweep_db *d)
{
    int sql = sqlite3_open_v2(d->path, &d->db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                  SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE,
                              NULL);
    if (sql)
        return sql;
    sqlite3_busy_timeout(d->db, BUSY_MS);
    sql = sqlite3_exec(d->db,
                       "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                       "PRAGMA cache_size = -8192; PRAGMA journal_size_limit = 16777216;"
                       "PRAGMA trusted_schema = OFF;",
                       NULL, NULL, NULL);
    int64_t id = 0, version = 0;
    if (!sql)
        id = number(d->db, "PRAGMA application_id", &sql);
    if (!sql)
        version = number(d->db, "PRAGMA user_version", &sql);
    if (!sql && id == 0 && version == 0) {
        char text[sizeof(schema_sql) + 32];
        snprintf(text, sizeof(text), schema_sql, APPLICATION_ID, SCHEMA_VERSION);
        sql = sqlite3_exec(d->db, text, NULL, NULL, NULL);
    } else if (!sql && (id != APPLICATION_ID || version != SCHEMA_VERSION)) {
        sql = SQLITE_NOTADB;
    }
    for (int i = 0; !sql && i < STATEMENTS; i++)
        sql = sqlite3_prepare_v3(d->db, sql_text[i], -1, SQLITE_PREPARE_PERSISTENT,
                                 &d->statements[i], NULL);
    if (!sql)
        d->sweep = 1 + number(d->db, "SELECT value FROM value WHERE name = 'sweep'", &sql);
    return sql;
}

int sweep_db_open(const struct cairn_store *s, struct sweep_db **out, struct cairn_error *err)
{
    struct sweep_db *d = calloc(1, sizeof(*d));
    if (d && asprintf(&d->path, "%s/sweep.db", s->state) < 0)
        d->path = NULL;
    if (!d || !d->path) {
        free(d);
        return error_oom(err, "memory of sweeps");
    }
    d->secret = s->format.secret;
    int sql = connect_db(d);
    if (sql && is_damage(sql)) {
        give_up(d, sql);
        sql = connect_db(d);
    }
    if (sql) {
        int rc = error_set(err, CAIRN_PERMANENT, d->db ? sqlite3_system_errno(d->db) : 0, "%s: %s",
                           d->path, sqlite3_errstr(sql));
        sweep_db_close(d);
        return rc;
    }
    *out = d;
    return CAIRN_OK;
}

void sweep_db_close(struct sweep_db *d)
{
    if (!d)
        return;
    if (d->db && !sqlite3_get_autocommit(d->db))
        (void)sqlite3_exec(d->db, "COMMIT", NULL, NULL, NULL);
    disconnect(d);
    free(d->path);
    free(d);
}

/* ---- Statements ---- */

static sqlite3_stmt *use(struct sweep_db *d, enum statement id)
{
    return d && d->db ? d->statements[id] : NULL;
}

static void text_arg(sqlite3_stmt *s, int i, const char *text)
{
    sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
}

static void blob_arg(sqlite3_stmt *s, int i, const void *data, size_t len)
{
    sqlite3_bind_blob64(s, i, data, len, SQLITE_STATIC);
}

/* True: a row is there; call done once it was looked at. False: none, and done was called. */
static bool row(struct sweep_db *d, sqlite3_stmt *s)
{
    int sql = sqlite3_step(s);
    if (sql == SQLITE_ROW)
        return true;
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (sql != SQLITE_DONE)
        give_up(d, sql);
    return false;
}

static void done(sqlite3_stmt *s)
{
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

static void run(struct sweep_db *d, sqlite3_stmt *s)
{
    if (row(d, s))
        done(s);
}

static void exec(struct sweep_db *d, const char *text)
{
    if (!d || !d->db)
        return;
    int sql = sqlite3_exec(d->db, text, NULL, NULL, NULL);
    if (sql)
        give_up(d, sql);
}

/* ---- Bodies: what is kept, and a checksum that binds it to the object ---- */

/* Little-endian size and mtime, and the etag. */
static size_t stamp(const struct backend_stat *st, uint8_t out[STAMP_MAX])
{
    put_le64(out, st->size);
    put_le64(out + 8, (uint64_t)st->mtime_ns);
    size_t n = strnlen(st->etag, BACKEND_ETAG_MAX);
    memcpy(out + 16, st->etag, n);
    return 16 + n;
}

/* XXH3 under the store's secret over key, NUL, stamp and what is kept. */
static bool checksum(const struct sweep_db *d, const void *key, size_t key_len,
                     const struct backend_stat *st, const void *body, size_t len,
                     uint8_t out[XXH3_LEN])
{
    uint8_t at[STAMP_MAX];
    size_t n = st ? stamp(st, at) : 0;
    CLEANUP_FREE uint8_t *all = malloc(key_len + 1 + n + len);
    if (!all)
        return false;
    memcpy(all, key, key_len);
    all[key_len] = 0;
    memcpy(all + key_len + 1, at, n);
    memcpy(all + key_len + 1 + n, body, len);
    hash_xxh3(d->secret, all, key_len + 1 + n + len, out);
    return true;
}

/* body has room for XXH3_LEN more. number: the row's third column. */
static void put_row(struct sweep_db *d, enum statement id, const char *key,
                    const struct backend_stat *st, uint8_t *body, size_t len, int64_t number)
{
    sqlite3_stmt *s = use(d, id);
    if (!s || len > BODY_MAX || !checksum(d, key, strlen(key), st, body, len, body + len))
        return;
    text_arg(s, 1, key);
    blob_arg(s, 2, body, len + XXH3_LEN);
    sqlite3_bind_int64(s, 3, number);
    run(d, s);
}

static void put_body(struct sweep_db *d, enum statement id, const char *key,
                     const struct backend_stat *st, uint8_t *body, size_t len)
{
    if (d)
        put_row(d, id, key, st, body, len, d->sweep);
}

/* The body without its checksum into *out (owned), if it is of this very object. */
static bool find_row(struct sweep_db *d, enum statement id, const char *key,
                     const struct backend_stat *st, uint8_t **out, size_t *len)
{
    sqlite3_stmt *s = use(d, id);
    if (!s)
        return false;
    text_arg(s, 1, key);
    if (!row(d, s))
        return false;
    const uint8_t *body = sqlite3_column_blob(s, 0);
    size_t n = (size_t)sqlite3_column_bytes(s, 0);
    uint8_t sum[XXH3_LEN];
    bool ok = body && n > XXH3_LEN && checksum(d, key, strlen(key), st, body, n - XXH3_LEN, sum) &&
              memcmp(sum, body + n - XXH3_LEN, XXH3_LEN) == 0;
    *out = ok ? malloc(n) : NULL;
    if (*out)
        memcpy(*out, body, n);
    *len = n - XXH3_LEN;
    done(s);
    return *out != NULL;
}

/* The same of a row that stays as long as sweeps meet its object. */
static bool find_body(struct sweep_db *d, enum statement id, enum statement touch, const char *key,
                      const struct backend_stat *st, uint8_t **out, size_t *len)
{
    if (!find_row(d, id, key, st, out, len))
        return false;
    sqlite3_stmt *s = use(d, touch);
    if (s) {
        text_arg(s, 1, key);
        sqlite3_bind_int64(s, 2, d->sweep);
        run(d, s);
    }
    return true;
}

void sweep_manifest_release(struct sweep_manifest *m)
{
    free(m->uses);
    *m = (struct sweep_manifest){0};
}

bool sweep_db_find_manifest(struct sweep_db *d, const char *key, const struct backend_stat *st,
                            struct sweep_manifest *out)
{
    CLEANUP_FREE uint8_t *body = NULL;
    size_t len;
    *out = (struct sweep_manifest){0};
    if (!find_body(d, FIND_MANIFEST, TOUCH_MANIFEST, key, st, &body, &len) || len < SHA256_LEN ||
        (len - SHA256_LEN) % USE_LEN)
        return false;
    uint32_t n = (uint32_t)((len - SHA256_LEN) / USE_LEN);
    out->uses = calloc(n ? n : 1, sizeof(*out->uses));
    if (!out->uses)
        return false;
    out->n_uses = n;
    memcpy(out->trailer, body, SHA256_LEN);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *p = body + SHA256_LEN + (size_t)i * USE_LEN;
        memcpy(out->uses[i].pack, p, PACK_ID_LEN);
        out->uses[i].live = get_le64(p + PACK_ID_LEN);
        for (size_t k = 0; k < SWEEP_WINDOWS / 64; k++)
            out->uses[i].windows[k] = get_le64(p + PACK_ID_LEN + 8 + 8 * k);
    }
    return true;
}

void sweep_db_put_manifest(struct sweep_db *d, const char *key, const struct backend_stat *st,
                           const struct sweep_manifest *m)
{
    size_t len = SHA256_LEN + (size_t)m->n_uses * USE_LEN;
    CLEANUP_FREE uint8_t *body = malloc(len + XXH3_LEN);
    if (!body)
        return;
    memcpy(body, m->trailer, SHA256_LEN);
    for (uint32_t i = 0; i < m->n_uses; i++) {
        uint8_t *p = body + SHA256_LEN + (size_t)i * USE_LEN;
        memcpy(p, m->uses[i].pack, PACK_ID_LEN);
        put_le64(p + PACK_ID_LEN, m->uses[i].live);
        for (size_t k = 0; k < SWEEP_WINDOWS / 64; k++)
            put_le64(p + PACK_ID_LEN + 8 + 8 * k, m->uses[i].windows[k]);
    }
    put_body(d, PUT_MANIFEST, key, st, body, len);
}

bool sweep_db_find_meta(struct sweep_db *d, const char *key, const struct backend_stat *st,
                        char gen[GEN_TEXT])
{
    CLEANUP_FREE uint8_t *body = NULL;
    size_t len;
    if (!find_body(d, FIND_META, TOUCH_META, key, st, &body, &len) || len != GEN_TEXT - 1)
        return false;
    memcpy(gen, body, GEN_TEXT - 1);
    gen[GEN_TEXT - 1] = 0;
    return gen_is_valid(gen);
}

void sweep_db_put_meta(struct sweep_db *d, const char *key, const struct backend_stat *st,
                       const char gen[GEN_TEXT])
{
    uint8_t body[GEN_TEXT + XXH3_LEN];
    memcpy(body, gen, GEN_TEXT - 1);
    put_body(d, PUT_META, key, st, body, GEN_TEXT - 1);
}

bool sweep_db_find_tomb(struct sweep_db *d, const char *key, const struct backend_stat *st,
                        struct tomb *out)
{
    CLEANUP_FREE uint8_t *body = NULL;
    size_t len;
    struct cairn_error ignored;
    *out = (struct tomb){0};
    if (!st->etag[0] || !find_body(d, FIND_TOMB, TOUCH_TOMB, key, st, &body, &len) ||
        len % (GEN_TEXT - 1) != 1)
        return false;
    for (size_t at = 1; at < len; at += GEN_TEXT - 1) {
        char gen[GEN_TEXT] = "";
        memcpy(gen, body + at, GEN_TEXT - 1);
        if (!gen_is_valid(gen) || tomb_add_gen(out, gen, &ignored)) {
            tomb_release(out);
            return false;
        }
    }
    return true;
}

void sweep_db_put_tomb(struct sweep_db *d, const char *key, const struct backend_stat *st,
                       const struct tomb *t)
{
    size_t len = 1 + t->n * (GEN_TEXT - 1);
    CLEANUP_FREE uint8_t *body = st->etag[0] ? malloc(len + XXH3_LEN) : NULL;
    if (!body)
        return;
    body[0] = 0; /* an empty one has a body too */
    for (size_t i = 0; i < t->n; i++)
        memcpy(body + 1 + i * (GEN_TEXT - 1), t->gens[i], GEN_TEXT - 1);
    put_body(d, PUT_TOMB, key, st, body, len);
}

/* Of a failure: time, class, errno, then the message. */
#define STUCK_HEAD 16

bool sweep_db_find_stuck(struct sweep_db *d, const char *key, const struct backend_stat *st,
                         int64_t now_ns, struct cairn_error *why)
{
    CLEANUP_FREE uint8_t *body = NULL;
    size_t len;
    if (!find_row(d, FIND_STUCK, key, st, &body, &len) || len < STUCK_HEAD)
        return false;
    int64_t at = (int64_t)get_le64(body);
    if (at > now_ns || now_ns - at >= SWEEP_STUCK_NS)
        return false;
    error_set(why, (int)get_le32(body + 8), (int)get_le32(body + 12), "%.*s",
              (int)(len - STUCK_HEAD), (const char *)body + STUCK_HEAD);
    return true;
}

void sweep_db_put_stuck(struct sweep_db *d, const char *key, const struct backend_stat *st,
                        int64_t now_ns, const struct cairn_error *why)
{
    uint8_t body[STUCK_HEAD + sizeof(why->message) + XXH3_LEN];
    size_t n = strnlen(why->message, sizeof(why->message));
    put_le64(body, (uint64_t)now_ns);
    put_le32(body + 8, (uint32_t)why->error_class);
    put_le32(body + 12, (uint32_t)why->sys_errno);
    memcpy(body + STUCK_HEAD, why->message, n);
    put_row(d, PUT_STUCK, key, st, body, STUCK_HEAD + n, now_ns);
}

/* ---- The rest ---- */

int64_t sweep_db_superseded(struct sweep_db *d, const char *id, const char *gen, int64_t mtime_ns,
                            int64_t now_ns)
{
    int64_t at = now_ns;
    sqlite3_stmt *s = use(d, FIND_SUPERSEDED);
    if (!s)
        return now_ns;
    text_arg(s, 1, id);
    text_arg(s, 2, gen);
    sqlite3_bind_int64(s, 3, mtime_ns);
    if (row(d, s)) {
        int64_t was = sqlite3_column_int64(s, 0);
        at = was < now_ns ? was : now_ns;
        done(s);
    }
    s = use(d, PUT_SUPERSEDED);
    if (s) {
        text_arg(s, 1, id);
        text_arg(s, 2, gen);
        sqlite3_bind_int64(s, 3, mtime_ns);
        sqlite3_bind_int64(s, 4, at);
        sqlite3_bind_int64(s, 5, d->sweep);
        run(d, s);
    }
    return at;
}

static bool get_value(struct sweep_db *d, const char *name, int64_t *value)
{
    sqlite3_stmt *s = use(d, GET_VALUE);
    if (!s)
        return false;
    text_arg(s, 1, name);
    if (!row(d, s))
        return false;
    *value = sqlite3_column_int64(s, 0);
    done(s);
    return true;
}

bool sweep_db_last(struct sweep_db *d, int64_t *when_ns)
{
    return get_value(d, "last", when_ns);
}

bool sweep_db_in_doubt(struct sweep_db *d)
{
    int64_t doubt;
    return get_value(d, "doubt", &doubt) && doubt;
}

int sweep_db_each_missing(struct sweep_db *d, int (*fn)(void *ctx, const char *id), void *ctx)
{
    sqlite3_stmt *s = use(d, MISSING);
    if (!s)
        return 0;
    sqlite3_bind_int64(s, 1, d->sweep);
    int rc = 0, sql;
    while ((sql = sqlite3_step(s)) == SQLITE_ROW && !rc) {
        const char *id = (const char *)sqlite3_column_text(s, 0);
        if (id && id_is_valid(id))
            rc = fn(ctx, id);
    }
    done(s);
    if (sql != SQLITE_DONE && sql != SQLITE_ROW)
        give_up(d, sql);
    return rc;
}

static void put_value(struct sweep_db *d, const char *name, int64_t value)
{
    sqlite3_stmt *s = use(d, PUT_VALUE);
    if (!s)
        return;
    text_arg(s, 1, name);
    sqlite3_bind_int64(s, 2, value);
    run(d, s);
}

void sweep_db_doubt(struct sweep_db *d)
{
    put_value(d, "doubt", 1);
}

void sweep_db_begin(struct sweep_db *d)
{
    exec(d, "BEGIN IMMEDIATE");
    if (d && d->db)
        put_value(d, "sweep", d->sweep);
}

void sweep_db_record(struct sweep_db *d, const char *id)
{
    sqlite3_stmt *s = use(d, PUT_RECORD);
    if (!s)
        return;
    text_arg(s, 1, id);
    sqlite3_bind_int64(s, 2, d->sweep);
    run(d, s);
}

void sweep_db_complete(struct sweep_db *d, int64_t now_ns)
{
    static const char *const tables[] = {"manifest", "meta", "tomb", "superseded", "record"};
    char text[96];
    if (!d || !d->db)
        return;
    put_value(d, "last", now_ns);
    put_value(d, "doubt", 0);
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        snprintf(text, sizeof(text), "DELETE FROM %s WHERE sweep < %lld", tables[i],
                 (long long)d->sweep);
        exec(d, text);
    }
    snprintf(text, sizeof(text), "DELETE FROM stuck WHERE at <= %lld",
             (long long)(now_ns - SWEEP_STUCK_NS));
    exec(d, text);
    exec(d, "COMMIT");
    d->sweep++;
}

void sweep_db_abandon(struct sweep_db *d)
{
    exec(d, "COMMIT");
    if (d)
        d->sweep++;
}
