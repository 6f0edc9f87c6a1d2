/* What the Check programs share: a main from a list of tests, scratch folders, seeded bytes. */
#ifndef CAIRN_TESTS_TESTING_H
#define CAIRN_TESTS_TESTING_H

#include "base/error.h"

#include <check.h>
#include <stdint.h>

/* int main: runs each test in a process of its own (CK_FORK=no: in this one). */
#define TESTING_MAIN(suite, ...)                                                                   \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *tests[] = {__VA_ARGS__};                                                      \
        return testing_run(#suite, tests, sizeof(tests) / sizeof(tests[0]));                       \
    }

int testing_run(const char *suite, const TTest *const *tests, size_t n);

/* A new folder under $TMPDIR or /tmp, removed with all it holds when the test's process exits. The
 * text is static. */
const char *testing_tmpdir(void);

/* len bytes that look random and depend on seed alone. */
void testing_fill(void *out, size_t len, uint64_t seed);
/* A number that depends on *state, which it moves on (splitmix64). */
uint64_t testing_random(uint64_t *state);

/* The call succeeds, or its message is shown. */
#define ck_ok(call)                                                                                \
    do {                                                                                           \
        int ck_rc_ = (call);                                                                       \
        ck_assert_msg(ck_rc_ == CAIRN_OK, "%s: %s: %s", #call, cairn_class_name(ck_rc_),           \
                      err.message);                                                                \
    } while (0)

/* The call fails with this class, and says something. err is a struct cairn_error in scope. */
#define ck_fails(call, want)                                                                       \
    do {                                                                                           \
        err.message[0] = 0;                                                                        \
        int ck_rc_ = (call);                                                                       \
        ck_assert_msg(ck_rc_ == (want), "%s: %s, not %s: %s", #call, cairn_class_name(ck_rc_),     \
                      cairn_class_name(want), err.message);                                        \
        ck_assert_int_eq(err.error_class, (want));                                                 \
        ck_assert(err.message[0] != 0);                                                            \
    } while (0)

#endif
