#include <sqlite3.h>

#include "tests/unit/index_kit.h"

START_TEST(test_index__says_what_it_was_told)
{
    new_path();
    struct index *x = open_index(store_a);
    ck_assert(index_is_new(x));
    ck_assert(!knows(x, 1, 0));
    add_ok(x, 1, N);
    add_ok(x, 2, 10);
    add_ok(x, 3, 0);
    ck_assert_uint_eq(count_known(x, 1), N);
    ck_assert_uint_eq(count_known(x, 2), 10);
    ck_assert(has(x, 1) && has(x, 2) && has(x, 3) && !has(x, 4));
    expect_stats(x, 3, N + 10);
    index_close(x);

    x = open_index(store_a);
    ck_assert(index_is_new(x));
    struct cairn_error err;
    ck_ok(index_set_built(x, &err));
    ck_assert(!index_is_new(x));
    index_close(x);
    x = open_index(store_a);
    ck_assert(!index_is_new(x));
    ck_assert_uint_eq(count_known(x, 1), N);
    ck_ok(index_clear(x, &err));
    ck_assert(index_is_new(x));
    ck_assert_uint_eq(count_known(x, 1), 0);
    expect_stats(x, 0, 0);
    index_close(x);
    ck_assert_uint_eq(warnings, 0);
}
END_TEST

START_TEST(test_index__a_known_chunk_stays_where_it_was)
{
    new_path();
    struct index *x = open_index(store_a);
    add_ok(x, 1, N);
    struct cairn_error err;
    uint8_t other[PACK_ID_LEN];
    pack_id(2, other);
    ck_ok(index_add_pack(x, other, entries, N, &err)); /* the same chunks */
    ck_assert_uint_eq(count_known(x, 1), N);
    expect_stats(x, 2, N);
    add_ok(x, 1, N); /* and the same pack once more */
    expect_stats(x, 2, N);
    index_close(x);
}
END_TEST

START_TEST(test_index__a_dropped_pack_is_forgotten)
{
    new_path();
    struct index *x = open_index(store_a);
    struct cairn_error err;
    add_ok(x, 1, N);
    add_ok(x, 2, N);
    ck_ok(drop(x, 1, &err));
    ck_ok(drop(x, 1, &err));
    ck_ok(drop(x, 7, &err));
    ck_assert(!has(x, 1));
    ck_assert_uint_eq(count_known(x, 1), 0);
    ck_assert_uint_eq(count_known(x, 2), N);
    expect_stats(x, 1, N);
    /* The chunks may come back, in the same pack or in another. */
    add_ok(x, 1, N);
    ck_assert_uint_eq(count_known(x, 1), N);
    expect_stats(x, 2, 2 * N);
    index_close(x);
}
END_TEST

static int64_t ask(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int64_t v = -1;
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    int keep = 1;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    if (sqlite3_step(s) == SQLITE_ROW)
        v = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return v;
}

START_TEST(test_index__dropped_chunks_are_purged_in_the_end)
{
    new_path();
    struct index *x = open_index(store_a);
    struct cairn_error err;
    add_ok(x, 0, N);
    ck_ok(drop(x, 0, &err));
    ck_assert_int_gt(ask("SELECT count(*) FROM chunk"), N / 2);
    add_ok(x, 1000, 30);
    for (uint64_t no = 1; no <= 256; no++) {
        add_ok(x, no, 1);
        ck_ok(drop(x, no, &err));
    }
    /* One turn through the hash space takes all of the first pack; of the small ones those stay
     * whose slice was through before they were dropped. */
    ck_assert_int_le(ask("SELECT count(*) FROM chunk"), 30 + 256);
    ck_assert_int_eq(ask("SELECT count(*) FROM chunk WHERE pack = 1"), 0);
    ck_assert_int_eq(ask("SELECT count(*) FROM chunk, pack WHERE pack = no"), 30);
    for (uint32_t i = 0; i < 30; i++)
        ck_assert(knows(x, 1000, i));
    index_close(x);
}
END_TEST

START_TEST(test_index__a_chunk_whose_base_is_gone_is_not_known)
{
    new_path();
    struct index *x = open_index(store_a);
    struct cairn_error err;
    uint8_t base_pack[PACK_ID_LEN], pack[PACK_ID_LEN];
    pack_id(1, base_pack);
    pack_id(2, pack);
    struct pack_entry e[3];
    for (uint32_t i = 0; i < 3; i++)
        entry(5, i, &e[i]);
    ck_ok(index_add_pack(x, pack, &e[2], 1, &err)); /* based on e[1] */
    struct chunk c;
    ck_fails(index_lookup(x, e[2].sha, &c, &err), CAIRN_NOT_FOUND);
    ck_ok(index_add_pack(x, base_pack, &e[1], 1, &err));
    ck_ok(index_lookup(x, e[2].sha, &c, &err));
    ck_assert_mem_eq(c.base.pack, base_pack, PACK_ID_LEN);
    ck_assert_uint_eq(c.base.offset, e[1].offset);
    ck_ok(index_drop_pack(x, base_pack, &err));
    ck_fails(index_lookup(x, e[2].sha, &c, &err), CAIRN_NOT_FOUND);

    /* Stored again, without a base: this row is the one to keep. */
    uint8_t third[PACK_ID_LEN];
    pack_id(3, third);
    struct pack_entry alone = e[2];
    alone.encoding = CHUNK_RAW;
    memset(alone.base_sha, 0, SHA256_LEN);
    ck_ok(index_add_pack(x, third, &alone, 1, &err));
    ck_ok(index_lookup(x, e[2].sha, &c, &err));
    ck_assert_mem_eq(c.loc.pack, third, PACK_ID_LEN);
    ck_assert_int_eq(c.loc.encoding, CHUNK_RAW);
    expect_stats(x, 2, 1);

    /* A base that is based itself is none. */
    struct pack_entry chain[2] = {alone, e[2]};
    testing_fill(chain[0].sha, SHA256_LEN, 77);
    testing_fill(chain[1].sha, SHA256_LEN, 78);
    memcpy(chain[1].base_sha, chain[0].sha, SHA256_LEN);
    chain[0].encoding = CHUNK_ZSTD_BASE;
    memcpy(chain[0].base_sha, alone.sha, SHA256_LEN);
    ck_ok(index_add_pack(x, base_pack, chain, 2, &err));
    ck_ok(index_lookup(x, chain[0].sha, &c, &err));
    ck_fails(index_lookup(x, chain[1].sha, &c, &err), CAIRN_NOT_FOUND);
    index_close(x);
}
END_TEST

START_TEST(test_index__many_at_once_get_the_same_answers)
{
    new_path();
    struct index *x = open_index(store_a);
    struct cairn_error err;
    ck_ok(index_lookup_many(x, NULL, 0, &err));
    ck_assert_uint_eq(count_known_at_once(x, 1), 0);
    add_ok(x, 1, N / 2);
    add_ok(x, 2, N);
    ck_assert_uint_eq(count_known_at_once(x, 1), N / 2);
    ck_assert_uint_eq(count_known_at_once(x, 2), N);
    ck_ok(drop(x, 2, &err));
    ck_assert_uint_eq(count_known_at_once(x, 2), 0);
    ck_assert_uint_eq(count_known_at_once(x, 1), N / 2);
    /* Nothing is left open: another connection may write. */
    struct index *other = open_index(store_a);
    add_ok(other, 3, N);
    ck_assert_uint_eq(count_known_at_once(x, 3), N);
    index_close(other);
    index_close(x);
}
END_TEST

START_TEST(test_index__a_bad_store_id_and_a_missing_folder_are_errors)
{
    new_path();
    struct cairn_error err;
    struct index *x;
    ck_fails(index_open(path, "nonsense", &x, &err), CAIRN_INVALID);
    snprintf(path, sizeof(path), "%s/none/index.db", testing_tmpdir());
    ck_fails(index_open(path, store_a, &x, &err), CAIRN_PERMANENT);
    snprintf(path, sizeof(path), "%s", testing_tmpdir());
    ck_fails(index_open(path, store_a, &x, &err), CAIRN_PERMANENT);
}
END_TEST

/* What asks it for nothing makes no file, and is not held up by one that cannot be opened. */
START_TEST(test_index__a_new_one_is_opened_by_the_first_call)
{
    new_path();
    struct cairn_error err;
    struct index *x = NULL;
    ck_fails(index_new(path, "nonsense", &x, &err), CAIRN_INVALID);
    ck_ok(index_new(path, store_a, &x, &err));
    ck_assert_int_ne(access(path, F_OK), 0);
    index_close(x);
    ck_assert_int_ne(access(path, F_OK), 0);

    ck_ok(index_new(path, store_a, &x, &err));
    add_ok(x, 1, N);
    ck_assert_int_eq(access(path, F_OK), 0);
    index_close(x);
    ck_ok(index_new(path, store_a, &x, &err));
    ck_assert_uint_eq(count_known(x, 1), N);
    index_close(x);

    snprintf(path, sizeof(path), "%s", testing_tmpdir()); /* a folder */
    ck_ok(index_new(path, store_a, &x, &err));
    struct index_stats st;
    ck_fails(index_stats(x, &st, &err), CAIRN_PERMANENT);
    ck_assert(index_is_new(x));
    index_close(x);
}
END_TEST

/* ---- Several processes ----------------------------------------------------------------------- */

static pid_t child(void (*fn)(int arg), int arg)
{
    fflush(stdout);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        fn(arg);
        _exit(0);
    }
    return pid;
}

static void reap(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %x", status);
}

static void busy_child(int me)
{
    struct cairn_error err;
    struct index *x = NULL;
    if (index_open(path, store_a, &x, &err))
        _exit(2);
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t no = (uint64_t)me * 100 + i;
        int rc;
        do /* transient: the others held the lock for longer than the index waits */
            rc = add(x, no, 200, &err);
        while (rc == CAIRN_TRANSIENT);
        if (rc)
            _exit(3);
        if (!knows(x, no, 2))
            _exit(4);
        do
            rc = i % 5 == 4 ? drop(x, no, &err) : CAIRN_OK;
        while (rc == CAIRN_TRANSIENT);
        if (rc)
            _exit(5);
    }
    index_close(x);
}

START_TEST(test_index__processes_share_it)
{
    new_path();
    pid_t pid[3];
    for (int i = 0; i < 3; i++)
        pid[i] = child(busy_child, i + 1);
    for (int i = 0; i < 3; i++)
        reap(pid[i]);
    struct index *x = open_index(store_a);
    for (uint64_t me = 1; me <= 3; me++)
        for (uint64_t i = 0; i < 30; i++)
            ck_assert_int_eq(has(x, me * 100 + i), i % 5 != 4);
    expect_stats(x, 3 * 24, 3 * 24 * 200);
    ck_assert_uint_eq(warnings, 0);
    index_close(x);
}
END_TEST

static void add_for_ever(int ready_fd)
{
    struct cairn_error err;
    struct index *x = NULL;
    if (index_open(path, store_a, &x, &err))
        _exit(2);
    for (uint64_t i = 0;; i++) {
        if (add(x, i, N, &err))
            _exit(3);
        if (i == 0 && write(ready_fd, "x", 1) != 1)
            _exit(4);
    }
}

START_TEST(test_index__a_kill_in_the_middle_of_adding_leaves_whole_packs)
{
    for (int round = 0; round < 8; round++) {
        new_path();
        int fds[2];
        char c;
        ck_assert_int_eq(pipe(fds), 0);
        pid_t pid = child(add_for_ever, fds[1]);
        ck_assert_int_eq(read(fds[0], &c, 1), 1);
        nanosleep(&(struct timespec){.tv_nsec = 7000000L * round + 1234567}, NULL);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        close(fds[0]);
        close(fds[1]);
        struct index *x = open_index(store_a);
        ck_assert_uint_eq(warnings, 0);
        uint64_t packs = 0;
        while (has(x, packs)) {
            ck_assert_uint_eq(count_known(x, packs), N);
            packs++;
        }
        ck_assert_uint_ge(packs, 1);
        ck_assert_uint_eq(count_known(x, packs), 0);
        expect_stats(x, packs, packs * N);
        add_ok(x, 999, N);
        index_close(x);
        ck_assert_int_eq(ask("SELECT count(*) FROM pragma_integrity_check "
                             "WHERE integrity_check <> 'ok'"),
                         0);
    }
}
END_TEST

static void open_for_ever(int seed)
{
    uint64_t s = (uint64_t)seed;
    for (;;) {
        struct cairn_error err;
        struct index *x = NULL;
        if (index_open(path, testing_random(&s) % 3 ? store_a : store_b, &x, &err) == CAIRN_OK)
            (void)!add(x, testing_random(&s), 5, &err);
        index_close(x);
    }
}

/* Two that keep replacing the file (each is of the other's store) are killed anywhere. */
START_TEST(test_index__a_kill_while_it_is_replaced_leaves_one_that_opens)
{
    new_path();
    for (int round = 0; round < 12; round++) {
        pid_t a = child(open_for_ever, round), b = child(open_for_ever, -round - 1);
        nanosleep(&(struct timespec){.tv_nsec = 20000000L + 1234567L * round}, NULL);
        kill(a, SIGKILL);
        kill(b, SIGKILL);
        ck_assert_int_eq(waitpid(a, NULL, 0), a);
        ck_assert_int_eq(waitpid(b, NULL, 0), b);
        struct index *x = open_index(store_a);
        add_ok(x, 1, N);
        ck_assert_uint_eq(count_known(x, 1), N);
        index_close(x);
        ck_assert_int_eq(ask("SELECT count(*) FROM pragma_integrity_check "
                             "WHERE integrity_check <> 'ok'"),
                         0);
    }
}
END_TEST

/* The process that has the old file open goes over to the new one when it next writes, and its
 * closing takes nothing away from the others. */
START_TEST(test_index__holders_of_a_replaced_file_follow)
{
    make_full();
    struct index *old = open_index(store_a), *stale = open_index(store_a);
    ck_assert_int_eq(truncate(path, 0), 0);
    struct index *x = open_index(store_a);
    ck_assert(index_is_new(x));
    add_ok(x, 2, N);
    index_close(stale); /* the last but one connection to the old file */
    add_ok(old, 3, N);
    ck_assert_uint_eq(count_known(old, 2), N);
    ck_assert_uint_eq(count_known(x, 3), N);
    index_close(old);
    struct index *y = open_index(store_a);
    ck_assert_uint_eq(count_known(y, 2), N);
    add_ok(y, 4, N);
    ck_assert_uint_eq(count_known(x, 4), N);
    index_close(x);
    index_close(y);
    ck_assert_int_eq(ask("SELECT count(*) FROM pragma_integrity_check "
                         "WHERE integrity_check <> 'ok'"),
                     0);
}
END_TEST

/* The file that is held open is sound, and gone. */
START_TEST(test_index__a_removed_file_is_left_at_the_next_write)
{
    make_full();
    struct index *x = open_index(store_a);
    ck_assert_int_eq(unlink(path), 0);
    struct index *y = open_index(store_a);
    add_ok(x, 2, N);
    ck_assert_uint_eq(count_known(y, 2), N);
    ck_assert(index_is_new(x) && !knows(x, 1, 0));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!has(y, 2)); /* made anew */
    ck_assert_uint_eq(warnings, 0);
    index_close(x);
    index_close(y);
}
END_TEST

START_TEST(test_index__of_two_that_find_the_damage_one_replaces)
{
    make_full();
    struct index *a = open_index(store_a), *b = open_index(store_a);
    ask("UPDATE chunk SET at = 'text'");
    warnings = 0;
    ck_assert_uint_eq(count_known(a, 1), 0);
    add_ok(a, 2, N);
    ck_assert_uint_eq(count_known(b, 1), 0);
    ck_assert_uint_eq(count_known(b, 2), N); /* not replaced a second time */
    ck_assert_uint_eq(count_known(a, 2), N);
    index_close(a);
    index_close(b);
}
END_TEST

START_TEST(test_index__a_held_lock_ends_in_an_error_in_time)
{
    make_full();
    char lock[400];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    struct cairn_error err;
    struct index *x = NULL;
    ck_fails(index_open(path, store_a, &x, &err), CAIRN_TRANSIENT);
    close(fd);
    x = open_index(store_a);
    index_close(x);
}
END_TEST

struct reader {
    struct index *x;
    pthread_t thread;
    uint64_t seed;
    atomic_uint *added; /* packs 0 to this are there */
    unsigned hits;
    bool lost;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    while (atomic_load(r->added) < 40 || r->hits < 100) {
        unsigned n = atomic_load(r->added);
        uint64_t no = testing_random(&r->seed) % (n + 1);
        bool known = knows(r->x, no, (uint32_t)(testing_random(&r->seed) % 50));
        r->lost |= !known && no < n;
        r->hits += known;
    }
    return NULL;
}

START_TEST(test_index__threads_share_one)
{
    new_path();
    struct index *x = open_index(store_a);
    struct reader r[3];
    atomic_uint added = 0;
    for (int i = 0; i < 3; i++) {
        r[i] = (struct reader){.x = x, .seed = (uint64_t)i, .added = &added};
        ck_assert_int_eq(pthread_create(&r[i].thread, NULL, read_on, &r[i]), 0);
    }
    for (uint64_t no = 0; no < 40; no++) {
        add_ok(x, no, 50);
        atomic_fetch_add(&added, 1);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(r[i].thread, NULL);
        ck_assert(!r[i].lost);
        ck_assert_uint_gt(r[i].hits, 0);
    }
    ck_assert_uint_eq(warnings, 0);
    index_close(x);
}
END_TEST

/* ---- Errors of the file system --------------------------------------------------------------- */

/* A limit on the size of files stands for the full disk: the error (EFBIG) takes the same way. */
START_TEST(test_index__a_disk_that_takes_no_more_is_an_error_and_no_damage)
{
    new_path();
    struct index *x = open_index(store_a);
    struct cairn_error err = {0};
    add_ok(x, 1, N);
    struct rlimit old, small = {.rlim_cur = size_of(path) + 100000};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = CAIRN_OK;
    for (uint64_t no = 2; !rc && no < 100; no++)
        rc = add(x, no, N, &err);
    /* Nothing is asserted under the limit: it holds for the file of Check's messages, too. */
    struct pack_entry first;
    struct chunk found;
    struct cairn_error ignored;
    entry(1, 0, &first);
    int known = index_lookup(x, first.sha, &found, &ignored);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(known, CAIRN_OK);
    ck_assert(rc == CAIRN_NO_SPACE || rc == CAIRN_PERMANENT);
    ck_assert(err.message[0]);
    ck_assert_uint_eq(count_known(x, 1), N);
    add_ok(x, 200, N);
    ck_assert_uint_eq(count_known(x, 200), N);
    ck_assert_uint_eq(warnings, 0);
    index_close(x);
}
END_TEST

TESTING_MAIN(index, test_index__says_what_it_was_told, test_index__a_known_chunk_stays_where_it_was,
             test_index__a_dropped_pack_is_forgotten,
             test_index__dropped_chunks_are_purged_in_the_end,
             test_index__a_chunk_whose_base_is_gone_is_not_known,
             test_index__many_at_once_get_the_same_answers,
             test_index__a_bad_store_id_and_a_missing_folder_are_errors,
             test_index__a_new_one_is_opened_by_the_first_call, test_index__processes_share_it,
             test_index__threads_share_one,
             test_index__a_kill_in_the_middle_of_adding_leaves_whole_packs,
             test_index__a_kill_while_it_is_replaced_leaves_one_that_opens,
             test_index__holders_of_a_replaced_file_follow,
             test_index__a_removed_file_is_left_at_the_next_write,
             test_index__of_two_that_find_the_damage_one_replaces,
             test_index__a_held_lock_ends_in_an_error_in_time,
             test_index__a_disk_that_takes_no_more_is_an_error_and_no_damage)
