/* What the parts of the chunk index share: index.c (rows and calls), index_db.c (the file: opening,
 * replacing, transactions), index_sql.c (statements, results). Included by these only.
 *
 * One connection, one mutex: a look-up costs a few microseconds, less than hashing its chunk. Many
 * in one transaction take SQLite's file lock once. SQLite's calls under the mutex are the one
 * exception to "no I/O under a lock".
 *
 * Rows. pack(no, id, n) and chunk(sha, pack, at). Dropping a pack deletes its row in pack only: its
 * chunks are then dangling and count as not known; each drop also purges the dangling chunks of
 * the next 1/256 of the hash space. An SQL index on chunk.pack would make each insert, which is
 * frequent, dearer and the file larger, for the sake of drops, which are rare. Numbers of packs are
 * never used twice (AUTOINCREMENT).
 *
 * `at` ends in a keyed checksum over the chunk's name, its pack's and the store's id: SQLite would
 * hand out a flipped bit, and a publisher would write it into a manifest. */
#ifndef CAIRN_STORE_INDEX_PRIVATE_H
#define CAIRN_STORE_INDEX_PRIVATE_H

#include "store/index.h"

#include <pthread.h>
#include <sys/types.h>

#define INDEX_APPLICATION_ID 0x43524e49 /* "CRNI" */
#define INDEX_SCHEMA_VERSION 1
#define INDEX_STORE_ID_LEN   32

enum index_statement {
    INDEX_BEGIN,
    INDEX_BEGIN_READ,
    INDEX_COMMIT,
    INDEX_ROLLBACK,
    INDEX_GET_META,
    INDEX_SET_META,
    INDEX_FIND_CHUNK,
    INDEX_PUT_CHUNK,
    INDEX_UNCOUNT,
    INDEX_FIND_PACK,
    INDEX_ADD_PACK,
    INDEX_COUNT,
    INDEX_DROP_PACK,
    INDEX_PURGE,
    INDEX_CLEAR_CHUNKS,
    INDEX_CLEAR_PACKS,
    INDEX_STATS,
    INDEX_STATEMENTS,
};

struct sqlite3;
struct sqlite3_stmt;

struct index {
    char *path, *lock_path;                /* owned, constant */
    char store_id[INDEX_STORE_ID_LEN + 1]; /* constant */
    uint8_t secret[XXH3_SECRET_LEN];       /* of the rows' checksum; constant */

    pthread_mutex_t lock; /* guards all below */
    struct sqlite3 *db;   /* NULL: not needed yet, or not to be had, see retry_ns */
    struct sqlite3_stmt *statements[INDEX_STATEMENTS];
    dev_t dev; /* the file that db has open */
    ino_t ino;
    bool damaged;      /* db is to be replaced */
    int64_t retry_ns;  /* CLOCK_MONOTONIC; not before */
    char warning[400]; /* to be logged once the mutex is free */
};

/* ---- index_sql.c ----------------------------------------------------------------------------- */

/* An error from a result of SQLite. Takes note of damage; the class is corrupt for damage only,
 * which callers of the index never see. */
int index_sql_fail_locked(struct index *x, int sql, const char *what, struct cairn_error *err);
/* The file is not what it should be, for a reason that SQLite does not know of. */
int index_sql_damaged_locked(struct index *x, const char *why, struct cairn_error *err);
/* Make a statement ready for its next use. */
void index_sql_done(struct sqlite3_stmt *s);
/* data is borrowed until index_sql_done. */
void index_sql_bind(struct sqlite3_stmt *s, int i, const void *data, size_t len);
/* Prepare all statements. */
int index_sql_prepare_locked(struct index *x, struct cairn_error *err);
/* Run a statement that gives no row. */
int index_sql_run_locked(struct index *x, enum index_statement id, const char *what,
                         struct cairn_error *err);
/* number and text may be NULL. A value that is absent is damage. */
int index_sql_get_meta_locked(struct index *x, const char *name, int64_t *number, char *text,
                              size_t room, struct cairn_error *err);
int index_sql_set_meta_locked(struct index *x, const char *name, int64_t number,
                              struct cairn_error *err);

/* ---- index_db.c ------------------------------------------------------------------------------ */

typedef int index_work(struct index *x, void *arg, struct cairn_error *err);

/* Do work with the database, the mutex held; where that finds it damaged, replace the file and do
 * the work again. writes: go over first to the file that another process has put in its place. */
int index_db_call(struct index *x, index_work *fn, void *arg, bool writes, struct cairn_error *err);
/* Do work in a transaction; undone if it fails. */
int index_db_transaction_locked(struct index *x, index_work *fn, void *arg,
                                struct cairn_error *err);
/* Do work that only reads, all of it on the same state of the file. */
int index_db_snapshot_locked(struct index *x, index_work *fn, void *arg, struct cairn_error *err);
void index_db_close_locked(struct index *x);

#endif
