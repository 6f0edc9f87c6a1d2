#include <sqlite3.h>

#include "tests/unit/index_kit.h"

static void exec_sql(const char *sql)
{
    sqlite3 *db = NULL;
    ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
                     SQLITE_OK);
    char *msg = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &msg);
    ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, msg);
    sqlite3_close(db);
}

START_TEST(test_index_damage__an_empty_file_is_replaced)
{
    make_full();
    ck_assert_int_eq(truncate(path, 0), 0);
    expect_replaced();
}
END_TEST

START_TEST(test_index_damage__half_a_file_is_replaced)
{
    make_full();
    ck_assert_int_eq(truncate(path, (off_t)size_of(path) / 2), 0);
    expect_replaced();
    make_full();
    ck_assert_int_eq(truncate(path, 50), 0);
    expect_replaced();
}
END_TEST

START_TEST(test_index_damage__noise_is_replaced)
{
    static uint8_t noise[100000];
    testing_fill(noise, sizeof(noise), 1);
    new_path();
    write_file(path, noise, sizeof(noise));
    expect_replaced();
    new_path();
    write_file(path, noise, 1);
    expect_replaced();
    make_full(); /* behind a sound first page */
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(util_pwrite_full(fd, noise, 40000, 4096), 40000);
    close(fd);
    expect_replaced();
}
END_TEST

START_TEST(test_index_damage__another_programs_or_versions_or_stores_is_replaced)
{
    static const char *const sql[] = {
        "PRAGMA application_id = 1234",
        "PRAGMA application_id = 0",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 2",
        "CREATE TRIGGER t AFTER INSERT ON pack BEGIN DELETE FROM chunk; END",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TABLE pin(x)",
        "DROP TABLE chunk",
        "DROP TABLE meta",
        "DELETE FROM meta",
        "ALTER TABLE pack RENAME COLUMN n TO m",
        "UPDATE meta SET value = 'ffeeddccbbaa99887766554433221100' WHERE name = 'store'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(sql); i++) {
        make_full();
        exec_sql(sql[i]);
        expect_replaced();
    }
    new_path();
    exec_sql("CREATE TABLE somebody(elses)");
    expect_replaced();
    new_path();
    index_close(open_index(store_b));
    expect_replaced();
}
END_TEST

/* to + suffix becomes what PATH + suffix is without its last cut bytes. */
static void copy_to(const char *to, const char *suffix, uint64_t cut)
{
    char from_name[400], to_name[400];
    snprintf(from_name, sizeof(from_name), "%s%s", path, suffix);
    snprintf(to_name, sizeof(to_name), "%s%s", to, suffix);
    size_t len = size_of(from_name) - cut;
    uint8_t *data CLEANUP_FREE = malloc(len);
    int fd = open(from_name, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(util_pread_full(fd, data, len, 0), (ssize_t)len);
    close(fd);
    write_file(to_name, data, len);
}

START_TEST(test_index_damage__a_torn_wal_loses_the_end_at_most)
{
    make_full();
    struct index *x = open_index(store_a);
    add_ok(x, 2, N);
    char torn[300];
    snprintf(torn, sizeof(torn), "%s/index.db", testing_tmpdir());
    copy_to(torn, "", 0);
    copy_to(torn, "-wal", 5000); /* pack 2 is in it, but for its end */
    index_close(x);
    memcpy(path, torn, sizeof(path));
    x = open_index(store_a);
    ck_assert_uint_eq(warnings, 0);
    ck_assert_uint_eq(count_known(x, 1), N);
    ck_assert_uint_eq(count_known(x, 2), 0);
    index_close(x);
}
END_TEST

START_TEST(test_index_damage__damage_found_later_is_replaced_within_the_call)
{
    for (int how = 0; how < 6; how++) {
        make_full();
        struct index *x = open_index(store_a);
        ck_assert(!index_is_new(x));
        uint8_t id[PACK_ID_LEN];
        pack_id(1, id);
        static uint8_t noise[65536];
        testing_fill(noise, sizeof(noise), 1);
        uint64_t size = size_of(path);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        for (uint64_t off = 4096; off < size; off += sizeof(noise))
            ck_assert_int_gt(
                util_pwrite_full(fd, noise,
                                 size - off < sizeof(noise) ? (size_t)(size - off) : sizeof(noise),
                                 off),
                0);
        close(fd);
        warnings = 0;
        struct cairn_error err;
        bool yes = true;
        switch (how) {
        case 0:
            ck_assert_uint_eq(count_known(x, 1), 0);
            break;
        case 1:
            add_ok(x, 2, N);
            ck_assert_uint_eq(count_known(x, 2), N);
            break;
        case 2:
            ck_ok(index_drop_pack(x, id, &err));
            break;
        case 3:
            ck_ok(index_has_pack(x, id, &yes, &err));
            ck_assert(!yes);
            break;
        case 4:
            ck_assert_uint_eq(count_known_at_once(x, 1), 0);
            break;
        default:
            expect_stats(x, 0, 0);
        }
        ck_assert_uint_eq(warnings, 1);
        ck_assert(index_is_new(x));
        add_ok(x, 3, N);
        ck_assert_uint_eq(count_known(x, 3), N);
        index_close(x);
    }
}
END_TEST

START_TEST(test_index_damage__a_flipped_bit_in_a_row_is_noticed)
{
    static const char *const sql[] = {
        "UPDATE chunk SET at = CAST(x'77' || substr(at, 2) AS BLOB)",
        "UPDATE chunk SET pack = (SELECT max(no) FROM pack)",
        "UPDATE pack SET id = CAST(substr(id, 2) || x'00' AS BLOB)",
        "UPDATE chunk SET at = substr(at, 1, 20)",
        "UPDATE chunk SET at = 'text'",
        "UPDATE pack SET id = 5 WHERE no = 1",
    };
    for (size_t i = 0; i < 2 * ARRAY_SIZE(sql); i++) {
        make_full();
        struct index *x = open_index(store_a);
        add_ok(x, 2, 1); /* the pack with the highest number */
        index_close(x);
        exec_sql(sql[i / 2]);
        warnings = 0;
        x = open_index(store_a);
        ck_assert_uint_eq(i % 2 ? count_known(x, 1) : count_known_at_once(x, 1), 0);
        ck_assert_uint_eq(warnings, 1);
        ck_assert(index_is_new(x));
        index_close(x);
    }
}
END_TEST

TESTING_MAIN(index_damage, test_index_damage__an_empty_file_is_replaced,
             test_index_damage__half_a_file_is_replaced, test_index_damage__noise_is_replaced,
             test_index_damage__another_programs_or_versions_or_stores_is_replaced,
             test_index_damage__a_torn_wal_loses_the_end_at_most,
             test_index_damage__damage_found_later_is_replaced_within_the_call,
             test_index_damage__a_flipped_bit_in_a_row_is_noticed)
