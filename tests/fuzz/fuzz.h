/* What every fuzz target is: one function that takes any bytes. It runs under libFuzzer (clang,
 * -Dfuzz=true) or under driver.c, which has the same flags. */
#ifndef CAIRN_TESTS_FUZZ_H
#define CAIRN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that no input may break. */
#define FUZZ_CHECK(x)                                                                              \
    do {                                                                                           \
        if (!(x))                                                                                  \
            __builtin_trap();                                                                      \
    } while (0)

/* An error says what happened: an expected class, and text. */
#define FUZZ_CHECK_ERROR(rc, err, want)                                                            \
    do {                                                                                           \
        FUZZ_CHECK((rc) == (want));                                                                \
        FUZZ_CHECK((err)->error_class == (rc) && (err)->message[0]);                               \
    } while (0)

#endif
