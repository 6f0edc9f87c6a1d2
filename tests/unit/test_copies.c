#include "store/copies.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/record.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#define LEN ((size_t)600 * 1024)

static struct cairn_error err;
static struct kit k;
static struct cairn_record *r;
static struct budget *b;
static struct copies *c;
static char folder[300];

/* Files a, b and c of LEN bytes each, and a hole of a MiB at the end of the last. */
static void begin(int64_t limit)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "a", LEN, 0, 1);
    kit_fill(&k, "x", "b", LEN, 0, 2);
    kit_fill(&k, "x", "c", LEN, 0, 3);
    kit_truncate(&k, "x", "c", 2 << 20);
    ck_ok(kit_publish(&k, CK_A, "x", NULL, NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    snprintf(folder, sizeof(folder), "%s/copies", k.state);
    ck_ok(budget_new(k.state, limit, &b, &err));
    ck_ok(copies_new(folder, b, &c, &err));
}

static void end(void)
{
    budget_free(b);
    copies_free(c);
    cairn_record_close(r);
    kit_stop(&k);
}

static struct copies_key key_of(uint32_t i)
{
    struct manifest_file f;
    manifest_file(atomic_load(&r->manifest), i, &f);
    struct copies_key key = {.size = f.size};
    memcpy(key.content, f.content, sizeof(key.content));
    return key;
}

static void same(int fd, const char *path)
{
    CLEANUP_FD int want = open(kit_path(&k, "x", path), O_RDONLY);
    static uint8_t p[4 << 20], q[4 << 20];
    ssize_t n = util_pread_full(want, p, sizeof(p), 0);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(util_pread_full(fd, q, sizeof(q), 0), n);
    ck_assert(memcmp(p, q, (size_t)n) == 0);
}

START_TEST(test_copies__are_whole_and_sparse)
{
    begin(64 << 20);
    static const char *const paths[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        struct copies_key key = key_of(i);
        ck_assert(!copies_has(c, &key));
        ck_assert_int_eq(copies_open(c, &key), -1);
        ck_ok(copies_make(c, r, i, NULL, &err));
        ck_ok(copies_make(c, r, i, NULL, &err));
        ck_assert(copies_has(c, &key));
        CLEANUP_FD int fd = copies_open(c, &key);
        ck_assert_int_ge(fd, 0);
        same(fd, paths[i]);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_lt(st.st_blocks * 512, 1 << 20);
    }
    end();
}
END_TEST

START_TEST(test_copies__stay_while_they_are_used)
{
    begin(1 << 20);
    struct copies_key a = key_of(0);
    ck_ok(copies_make(c, r, 0, NULL, &err));
    int fd = copies_open(c, &a);
    ck_assert_int_ge(fd, 0);
    for (int tries = 0; tries < 5; tries++) {
        ck_fails(copies_make(c, r, 1, NULL, &err), CAIRN_NO_SPACE);
        poll(NULL, 0, 20);
    }
    ck_assert(copies_has(c, &a));
    same(fd, "a");
    close(fd);
    int64_t until = clock_monotonic() + 60 * NS_PER_S;
    while (copies_make(c, r, 1, NULL, &err)) {
        ck_assert_msg(clock_monotonic() < until, "%s", err.message);
        poll(NULL, 0, 20);
    }
    ck_assert(!copies_has(c, &a));
    end();
}
END_TEST

START_TEST(test_copies__left_overs_and_wrong_sizes_are_nothing)
{
    char path[800];
    begin(64 << 20);
    struct copies_key a = key_of(0);
    ck_ok(copies_make(c, r, 0, NULL, &err));
    snprintf(path, sizeof(path), "%s/.tmp-dead", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    struct copies *other;
    struct budget *bound;
    ck_ok(budget_new(k.state, 64 << 20, &bound, &err));
    ck_ok(copies_new(folder, bound, &other, &err));
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert(copies_has(other, &a));
    budget_free(bound);
    copies_free(other);
    snprintf(path, sizeof(path), "chmod 600 %s/*; truncate -s 1000 %s/*", folder, folder);
    ck_assert_int_eq(system(path), 0);
    ck_assert_int_eq(copies_open(c, &a), -1);
    end();
}
END_TEST

START_TEST(test_copies__damage_makes_none)
{
    begin(64 << 20);
    kit_damage(&k, kit_first(&k, "packs/"), 8192);
    bool failed = false;
    for (uint32_t i = 0; i < 3; i++) {
        struct copies_key key = key_of(i);
        int rc = copies_make(c, r, i, NULL, &err);
        failed |= rc == CAIRN_CORRUPT;
        ck_assert_int_eq(copies_has(c, &key), rc == CAIRN_OK);
    }
    ck_assert(failed);
    end();
}
END_TEST

TESTING_MAIN(copies, test_copies__are_whole_and_sparse, test_copies__stay_while_they_are_used,
             test_copies__left_overs_and_wrong_sizes_are_nothing, test_copies__damage_makes_none)
