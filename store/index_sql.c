#include "store/index_private.h"

#include "base/util.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const char *const statement_sql[INDEX_STATEMENTS] = {
    [INDEX_BEGIN] = "BEGIN IMMEDIATE",
    [INDEX_BEGIN_READ] = "BEGIN",
    [INDEX_COMMIT] = "COMMIT",
    [INDEX_ROLLBACK] = "ROLLBACK",
    [INDEX_GET_META] = "SELECT value FROM meta WHERE name = ?1",
    [INDEX_SET_META] = "INSERT OR REPLACE INTO meta(name, value) VALUES(?1, ?2)",
    [INDEX_FIND_CHUNK] = "SELECT p.id, c.at FROM chunk c LEFT JOIN pack p ON p.no = c.pack "
                         "WHERE c.sha = ?1",
    [INDEX_PUT_CHUNK] = "INSERT OR REPLACE INTO chunk(sha, pack, at) VALUES(?1, ?2, ?3)",
    [INDEX_UNCOUNT] =
        "UPDATE pack SET n = n - 1 WHERE no = (SELECT pack FROM chunk WHERE sha = ?1)",
    [INDEX_FIND_PACK] = "SELECT no FROM pack WHERE id = ?1",
    [INDEX_ADD_PACK] = "INSERT OR IGNORE INTO pack(id, n) VALUES(?1, 0)",
    [INDEX_COUNT] = "UPDATE pack SET n = n + ?2 WHERE no = ?1",
    [INDEX_DROP_PACK] = "DELETE FROM pack WHERE id = ?1",
    [INDEX_PURGE] = "DELETE FROM chunk WHERE sha >= ?1 AND sha < ?2 AND NOT EXISTS "
                    "(SELECT 1 FROM pack WHERE no = chunk.pack)",
    [INDEX_CLEAR_CHUNKS] = "DELETE FROM chunk",
    [INDEX_CLEAR_PACKS] = "DELETE FROM pack",
    [INDEX_STATS] = "SELECT count(*), ifnull(sum(n), 0) FROM pack",
};

static bool is_damage(int sql)
{
    switch (sql & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* the schema is not ours */
    case SQLITE_SCHEMA:
    case SQLITE_FORMAT:
    case SQLITE_CONSTRAINT: /* two trees that belong together disagree */
    case SQLITE_MISMATCH:
        return true;
    default:
        return sql == SQLITE_IOERR_CORRUPTFS || sql == SQLITE_IOERR_SHORT_READ;
    }
}

static int sql_class(int sql, int sys_errno)
{
    if (sys_errno == ENOSPC || sys_errno == EDQUOT)
        return CAIRN_NO_SPACE;
    switch (sql & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        return CAIRN_TRANSIENT;
    case SQLITE_FULL:
        return CAIRN_NO_SPACE;
    case SQLITE_NOMEM:
        return CAIRN_INTERNAL;
    default:
        if (is_damage(sql))
            return CAIRN_CORRUPT;
        return sys_errno == EMFILE || sys_errno == ENFILE ? CAIRN_TRANSIENT : CAIRN_PERMANENT;
    }
}

int index_sql_fail_locked(struct index *x, int sql, const char *what, struct cairn_error *err)
{
    int sys_errno = 0;
    switch (sql & 0xff) { /* else the errno is one of long ago */
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_FULL:
    case SQLITE_READONLY:
        sys_errno = x->db ? sqlite3_system_errno(x->db) : 0;
    }
    const char *detail = sys_errno ? strerrordesc_np(sys_errno) : NULL;
    int rc = error_set(err, sql_class(sql, sys_errno), sys_errno, "index %s: %s: %s%s%s", x->path,
                       what, sqlite3_errstr(sql), detail ? ": " : "", detail ? detail : "");
    if (is_damage(sql)) {
        x->damaged = true;
        snprintf(x->warning, sizeof(x->warning),
                 "index %.200s: %.40s: %.100s; replaced by an empty one", x->path, what,
                 sqlite3_errstr(sql));
    }
    return rc;
}

int index_sql_damaged_locked(struct index *x, const char *why, struct cairn_error *err)
{
    x->damaged = true;
    snprintf(x->warning, sizeof(x->warning), "index %.200s: %.100s; replaced by an empty one",
             x->path, why);
    return error_set(err, CAIRN_CORRUPT, 0, "index %s: %s", x->path, why);
}

void index_sql_done(sqlite3_stmt *s)
{
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

void index_sql_bind(sqlite3_stmt *s, int i, const void *data, size_t len)
{
    sqlite3_bind_blob(s, i, data, (int)len, SQLITE_STATIC);
}

int index_sql_run_locked(struct index *x, enum index_statement id, const char *what,
                         struct cairn_error *err)
{
    sqlite3_stmt *s = x->statements[id];
    int sql = sqlite3_step(s);
    index_sql_done(s);
    return sql == SQLITE_DONE || sql == SQLITE_ROW ? CAIRN_OK
                                                   : index_sql_fail_locked(x, sql, what, err);
}

int index_sql_get_meta_locked(struct index *x, const char *name, int64_t *number, char *text,
                              size_t room, struct cairn_error *err)
{
    sqlite3_stmt *s = x->statements[INDEX_GET_META];
    sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    int sql = sqlite3_step(s);
    if (sql == SQLITE_ROW && number)
        *number = sqlite3_column_int64(s, 0);
    if (sql == SQLITE_ROW && text) {
        const char *value = (const char *)sqlite3_column_text(s, 0);
        snprintf(text, room, "%s", value ? value : "");
    }
    index_sql_done(s);
    if (sql == SQLITE_ROW)
        return CAIRN_OK;
    return sql == SQLITE_DONE ? index_sql_damaged_locked(x, "it lacks a part", err)
                              : index_sql_fail_locked(x, sql, "reading", err);
}

int index_sql_set_meta_locked(struct index *x, const char *name, int64_t number,
                              struct cairn_error *err)
{
    sqlite3_bind_text(x->statements[INDEX_SET_META], 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(x->statements[INDEX_SET_META], 2, number);
    return index_sql_run_locked(x, INDEX_SET_META, "writing", err);
}

int index_sql_prepare_locked(struct index *x, struct cairn_error *err)
{
    for (int i = 0; i < INDEX_STATEMENTS; i++) {
        int sql = sqlite3_prepare_v3(x->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                     &x->statements[i], NULL);
        if (sql)
            return index_sql_fail_locked(x, sql, "opening", err);
    }
    return CAIRN_OK;
}
