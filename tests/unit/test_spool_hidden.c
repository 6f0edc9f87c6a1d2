/* What is hidden on a mount, on a clock that the test moves. */
#include "fuse/spool_hidden.h"

#include "tests/lib/testing.h"

#include <stdio.h>

#define A "ck_00000000000000aa"
#define B "tp_000000000000000000000000000000bb"

int64_t __wrap_clock_boottime(void);
static int64_t now = 1000;

int64_t __wrap_clock_boottime(void)
{
    return now;
}

static struct cairn_error err;
static struct hidden *h;

static void hide(const char *id, const char *name)
{
    ck_assert_int_eq(hidden_add(h, id, name), 0);
    ck_assert(hidden_has(h, id, name));
}

START_TEST(test_spool_hidden__names_are_those_of_one_record)
{
    ck_ok(hidden_new(&h, &err));
    ck_assert(!hidden_has(h, A, "meta.json"));
    hide(A, "meta.json");
    hide(A, "meta.json");
    hide(A, "export-1/b");
    hide(A, "export-1/a");
    hide(A, "export-1/a/x");
    ck_assert(!hidden_has(h, B, "meta.json"));
    ck_assert(!hidden_has(h, A, "export-1"));
    ck_assert(!hidden_has(h, A, "export-1/c"));
    hidden_free(h);
}
END_TEST

START_TEST(test_spool_hidden__dropping_takes_what_lies_below_and_nothing_beside)
{
    ck_ok(hidden_new(&h, &err));
    hide(A, "export-1/a");
    hide(A, "export-1/b/c");
    hide(A, "export-12/a");
    hide(A, "meta.json");
    hide(B, "export-1/a");
    hidden_drop(h, A, "export-1");
    ck_assert(!hidden_has(h, A, "export-1/a"));
    ck_assert(!hidden_has(h, A, "export-1/b/c"));
    ck_assert(hidden_has(h, A, "export-12/a"));
    ck_assert(hidden_has(h, A, "meta.json"));
    ck_assert(hidden_has(h, B, "export-1/a"));
    hidden_drop(h, A, "");
    ck_assert(!hidden_has(h, A, "meta.json"));
    ck_assert(hidden_has(h, B, "export-1/a"));
    hidden_free(h);
}
END_TEST

START_TEST(test_spool_hidden__a_remove_that_does_not_go_on_is_forgotten)
{
    ck_ok(hidden_new(&h, &err));
    hide(A, "export-1/a");
    now += HIDDEN_NS;
    hide(B, "export-1/a");
    hide(A, "export-1/b"); /* it does go on */
    now += HIDDEN_NS;
    ck_assert(hidden_has(h, A, "export-1/a"));
    now += 1;
    ck_assert(!hidden_has(h, A, "export-1/a"));
    ck_assert(!hidden_has(h, A, "export-1/b"));
    ck_assert(!hidden_has(h, B, "export-1/a"));
    hide(A, "export-1/a");
    hidden_free(h);
}
END_TEST

START_TEST(test_spool_hidden__many_names)
{
    char name[64];
    ck_ok(hidden_new(&h, &err));
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "export-1/%u", i * 2654435761u);
        ck_assert_int_eq(hidden_add(h, A, name), 0);
    }
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "export-1/%u", i * 2654435761u);
        ck_assert(hidden_has(h, A, name));
    }
    ck_assert(!hidden_has(h, A, "export-1/x"));
    hidden_free(h);
}
END_TEST

TESTING_MAIN(spool_hidden, test_spool_hidden__names_are_those_of_one_record,
             test_spool_hidden__dropping_takes_what_lies_below_and_nothing_beside,
             test_spool_hidden__a_remove_that_does_not_go_on_is_forgotten,
             test_spool_hidden__many_names)
