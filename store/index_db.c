/* The file of the chunk index.
 *
 * SQLite's rule is never to unlink a database that others have open, because the last of them to
 * close unlinks "-wal" and "-shm" by name, which by then are those of the new file. Here no
 * connection ever unlinks them (SQLITE_FCNTL_PERSIST_WAL; newer versions of SQLite also look
 * whether the file was moved), every open and every replacement happens under an flock on
 * PATH.lock, and who wants to replace looks first whether the file is still the one it had open. A
 * process that holds a replaced file open goes on with it, harmlessly, until it next writes. */
#include "store/index_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define BUSY_MS   2000
#define REOPEN_NS NS_PER_S
#define PAGE_MIN  512 /* of SQLite */

/* As SQLite keeps them. */
#define TABLE_META "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value) WITHOUT ROWID"
#define TABLE_PACK                                                                                 \
    "CREATE TABLE pack(no INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE,"             \
    " n INTEGER NOT NULL)"
#define TABLE_CHUNK                                                                                \
    "CREATE TABLE chunk(sha BLOB PRIMARY KEY NOT NULL, pack INTEGER NOT NULL, at BLOB NOT NULL)"   \
    " WITHOUT ROWID"

/* application_id, user_version, store id */
static const char schema_sql[] =
    "BEGIN EXCLUSIVE;"
    "PRAGMA application_id = %d;"
    "PRAGMA user_version = %d;" TABLE_META ";" TABLE_PACK ";" TABLE_CHUNK ";"
    "INSERT INTO meta VALUES('store', '%s'), ('built', 0), ('purge', 0);"
    "COMMIT;";

void index_db_close_locked(struct index *x)
{
    for (int i = 0; i < INDEX_STATEMENTS; i++) {
        sqlite3_finalize(x->statements[i]);
        x->statements[i] = NULL;
    }
    sqlite3_close(x->db);
    x->db = NULL;
}

/* flock dies with its holder; holders are quick. */
static int lock_file(const struct index *x, int *fd, struct cairn_error *err)
{
    int f = open(x->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f < 0) {
        int e = errno;
        int rc = error_sys(err, e, "opening %s", x->lock_path);
        return rc == CAIRN_NOT_FOUND ? error_set(err, CAIRN_PERMANENT, e,
                                                 "opening %s: its folder is missing", x->lock_path)
                                     : rc;
    }
    int64_t until = clock_monotonic() + BUSY_MS * (NS_PER_S / 1000);
    while (flock(f, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        if (e != EWOULDBLOCK && e != EINTR) {
            close(f);
            return error_sys(err, e, "locking %s", x->lock_path);
        }
        if (clock_monotonic() >= until) {
            close(f);
            return error_set(err, CAIRN_TRANSIENT, EAGAIN, "locking %s: held for %d ms by another",
                             x->lock_path, BUSY_MS);
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    *fd = f;
    return CAIRN_OK;
}

/* With the flock held. The database goes first: a "-wal" left alone is discarded by SQLite, while a
 * database without its "-wal" might look sound and not be. */
static int remove_files(const struct index *x, struct cairn_error *err)
{
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        char *path CLEANUP_FREE = NULL;
        if (asprintf(&path, "%s%s", x->path, suffixes[i]) < 0)
            return error_oom(err, "index");
        if (unlink(path) != 0 && errno != ENOENT)
            return error_sys(err, errno, "removing %s", path);
    }
    return CAIRN_OK;
}

static int one_number(struct index *x, const char *sql_text, int64_t *out, struct cairn_error *err)
{
    sqlite3_stmt *s = NULL;
    int sql = sqlite3_prepare_v2(x->db, sql_text, -1, &s, NULL);
    if (!sql)
        sql = sqlite3_step(s);
    if (sql == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return sql == SQLITE_ROW ? CAIRN_OK : index_sql_fail_locked(x, sql, "opening", err);
}

static int exec_locked(struct index *x, const char *sql_text, struct cairn_error *err)
{
    int sql = sqlite3_exec(x->db, sql_text, NULL, NULL, NULL);
    return sql ? index_sql_fail_locked(x, sql, "opening", err) : CAIRN_OK;
}

static int set_wal(struct index *x, struct cairn_error *err)
{
    sqlite3_stmt *s = NULL;
    int sql = sqlite3_prepare_v2(x->db, "PRAGMA journal_mode = WAL", -1, &s, NULL);
    if (!sql)
        sql = sqlite3_step(s);
    bool wal =
        sql == SQLITE_ROW && sqlite3_stricmp((const char *)sqlite3_column_text(s, 0), "wal") == 0;
    sqlite3_finalize(s);
    if (sql != SQLITE_ROW)
        return index_sql_fail_locked(x, sql, "opening", err);
    if (!wal)
        return error_set(err, CAIRN_PERMANENT, ENOTSUP,
                         "index %s: this file system cannot hold a database in WAL mode", x->path);
    return CAIRN_OK;
}

/* An empty database becomes an index; one transaction. */
static int make_schema(struct index *x, struct cairn_error *err)
{
    char text[1024];
    snprintf(text, sizeof(text), schema_sql, INDEX_APPLICATION_ID, INDEX_SCHEMA_VERSION,
             x->store_id);
    return exec_locked(x, text, err);
}

/* A trigger, a view or a constraint that is not ours could do anything, and for ever. */
static const char strange_sql[] =
    "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL AND sql NOT IN ('" TABLE_META
    "', '" TABLE_PACK "', '" TABLE_CHUNK "', 'CREATE TABLE sqlite_sequence(name,seq)')";

static int check_schema(struct index *x, struct cairn_error *err)
{
    int64_t id = 0, version = 0, tables = 0, strange = 0;
    int rc = one_number(x, "PRAGMA application_id", &id, err);
    if (!rc)
        rc = one_number(x, "PRAGMA user_version", &version, err);
    if (!rc)
        rc = one_number(x, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (!rc)
        rc = one_number(x, strange_sql, &strange, err);
    if (rc)
        return rc;
    if (id == 0 && version == 0 && tables == 0)
        return make_schema(x, err);
    if (id != INDEX_APPLICATION_ID)
        return index_sql_damaged_locked(x, "another program's database", err);
    if (version != INDEX_SCHEMA_VERSION)
        return index_sql_damaged_locked(x, "of another version", err);
    if (strange)
        return index_sql_damaged_locked(x, "it has parts that are not the index's", err);
    return CAIRN_OK;
}

static int check_store(struct index *x, struct cairn_error *err)
{
    char store[INDEX_STORE_ID_LEN + 2];
    int64_t purge;
    int rc = index_sql_prepare_locked(x, err);
    if (!rc)
        rc = index_sql_get_meta_locked(x, "store", NULL, store, sizeof(store), err);
    if (!rc && strcmp(store, x->store_id) != 0)
        rc = index_sql_damaged_locked(x, "of another store", err);
    return rc ? rc : index_sql_get_meta_locked(x, "purge", &purge, NULL, 0, err);
}

/* With the flock held. */
static int connect_locked(struct index *x, struct cairn_error *err)
{
    int sql = sqlite3_open_v2(x->path, &x->db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                  SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE,
                              NULL);
    if (sql)
        return index_sql_fail_locked(x, sql, "opening", err);
    sqlite3_busy_timeout(x->db, BUSY_MS);
    int keep = 1;
    sqlite3_file_control(x->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    /* NORMAL: a crash of the machine loses the last packs and does not tear the file. No mmap: a
     * file that is cut must be an error and not a signal. */
    int rc = exec_locked(x, "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384;", err);
    if (!rc)
        rc = set_wal(x, err);
    if (!rc)
        rc = exec_locked(x, "PRAGMA journal_size_limit = 16777216; PRAGMA trusted_schema = OFF;",
                         err);
    if (!rc)
        rc = check_schema(x, err);
    if (!rc)
        rc = check_store(x, err);
    struct stat st;
    if (!rc && stat(x->path, &st) != 0)
        rc = error_sys(err, errno, "index %s", x->path);
    if (!rc) {
        x->dev = st.st_dev;
        x->ino = st.st_ino;
    }
    return rc;
}

/* replace: the file that was open last is not to be used again. */
static int open_locked(struct index *x, bool replace, struct cairn_error *err)
{
    int fd CLEANUP_FD = -1;
    int rc = lock_file(x, &fd, err);
    if (rc)
        return rc;
    struct stat st;
    if (stat(x->path, &st) != 0) {
        if (errno != ENOENT)
            return error_sys(err, errno, "index %s", x->path);
        replace = true; /* what lies beside it belongs to a file that is gone */
    } else if (st.st_size < PAGE_MIN) {
        /* SQLite takes this for a new file. Ours are made in this function only: a process that has
         * it open may have a "-wal" for it, which SQLite would now take away. */
        snprintf(x->warning, sizeof(x->warning), "index %.200s: empty file; made anew", x->path);
        replace = true;
    } else if (replace && x->ino && (st.st_dev != x->dev || st.st_ino != x->ino)) {
        replace = false; /* another process was quicker */
    }
    for (int tries = 0;; tries++) {
        x->damaged = false;
        rc = replace ? remove_files(x, err) : CAIRN_OK;
        if (!rc)
            rc = connect_locked(x, err);
        if (!rc)
            return CAIRN_OK;
        index_db_close_locked(x);
        if (!x->damaged || tries)
            return rc;
        replace = true;
    }
}

static int ready_locked(struct index *x, struct cairn_error *err)
{
    if (x->db)
        return CAIRN_OK;
    int64_t now = clock_monotonic();
    if (now < x->retry_ns)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "index %s: could not be opened just now",
                         x->path);
    int rc = open_locked(x, false, err);
    if (rc)
        x->retry_ns = clock_monotonic() + REOPEN_NS;
    return rc;
}

/* Before a write: go over to the file that another process has put in the place of ours. */
static void follow_locked(struct index *x)
{
    struct stat st;
    if (!x->db || (stat(x->path, &st) == 0 && st.st_dev == x->dev && st.st_ino == x->ino))
        return;
    index_db_close_locked(x);
    x->retry_ns = 0;
}

int index_db_call(struct index *x, index_work *fn, void *arg, bool writes, struct cairn_error *err)
{
    char warning[sizeof(x->warning)] = "";
    ERROR_OR_LOCAL(err);
    pthread_mutex_lock(&x->lock);
    if (writes)
        follow_locked(x);
    int rc = ready_locked(x, err);
    if (!rc)
        rc = fn(x, arg, err);
    if (rc && x->db && x->damaged) {
        index_db_close_locked(x);
        rc = open_locked(x, true, err);
        if (rc)
            x->retry_ns = clock_monotonic() + REOPEN_NS;
        else
            rc = fn(x, arg, err);
    }
    /* A new file that is damaged at once: the disk is. */
    if (rc == CAIRN_CORRUPT)
        rc = err->error_class = CAIRN_PERMANENT;
    memcpy(warning, x->warning, sizeof(warning));
    x->warning[0] = 0;
    pthread_mutex_unlock(&x->lock);
    if (warning[0])
        log_line(LOG_LEVEL_WARNING, "%s", warning);
    return rc;
}

static int between(struct index *x, enum index_statement begin, index_work *fn, void *arg,
                   struct cairn_error *err)
{
    int rc = index_sql_run_locked(x, begin, "beginning", err);
    if (rc)
        return rc;
    rc = fn(x, arg, err);
    if (!rc)
        rc = index_sql_run_locked(x, INDEX_COMMIT, "committing", err);
    if (rc && !sqlite3_get_autocommit(x->db)) {
        sqlite3_step(x->statements[INDEX_ROLLBACK]);
        index_sql_done(x->statements[INDEX_ROLLBACK]);
    }
    return rc;
}

int index_db_transaction_locked(struct index *x, index_work *fn, void *arg, struct cairn_error *err)
{
    return between(x, INDEX_BEGIN, fn, arg, err);
}

int index_db_snapshot_locked(struct index *x, index_work *fn, void *arg, struct cairn_error *err)
{
    return between(x, INDEX_BEGIN_READ, fn, arg, err);
}
