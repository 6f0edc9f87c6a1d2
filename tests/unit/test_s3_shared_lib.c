#include "s3/shared_lib.h"
#include "tests/lib/testing.h"

#include <string.h>

START_TEST(test_s3_shared_lib__finds_functions_of_a_library_and_of_those_it_needs)
{
    struct cairn_error err;
    const char *(*version)(void) = NULL;
    void (*init_parser)(void) = NULL;
    struct shared_lib lib = shared_lib_open("libcurl.so.4", &err);
    shared_lib_find(&lib, "curl_version", &version);
    ck_assert_int_eq(lib.rc, CAIRN_OK);
    ck_assert_ptr_nonnull(strstr(version(), "libcurl"));
    lib = shared_lib_open("libs3.so.2", &err);
    shared_lib_find(&lib, "xmlInitParser", &init_parser);
    ck_assert_int_eq(lib.rc, CAIRN_OK);
    ck_assert(init_parser != NULL);
}
END_TEST

START_TEST(test_s3_shared_lib__says_what_is_missing)
{
    struct cairn_error err;
    void (*none)(void) = NULL;
    struct shared_lib lib = shared_lib_open("libno-such-thing.so.4", &err);
    ck_assert_int_eq(lib.rc, CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "libno-such-thing.so.4"));
    shared_lib_find(&lib, "curl_version", &none);
    ck_assert(none == NULL);
    lib = shared_lib_open("libcurl.so.4", &err);
    ck_assert_int_eq(lib.rc, CAIRN_OK);
    shared_lib_find(&lib, "curl_no_such_function", &none);
    ck_assert_int_eq(lib.rc, CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "curl_no_such_function"));
    shared_lib_find(&lib, "curl_version", &none); /* what failed stays so */
    ck_assert(none == NULL);
}
END_TEST

TESTING_MAIN(s3_shared_lib, test_s3_shared_lib__finds_functions_of_a_library_and_of_those_it_needs,
             test_s3_shared_lib__says_what_is_missing)
