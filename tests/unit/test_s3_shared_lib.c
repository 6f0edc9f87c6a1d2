#include "s3/client.h"
#include "s3/shared_lib.h"
#include "tests/lib/testing.h"

#include <string.h>
#include <sys/resource.h>

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

static int open_client(bool v2, const struct s3_config *config, struct s3_client **out,
                       struct cairn_error *err)
{
    return v2 ? client_v2_new(config, out, err) : client_v4_new(config, "us-east-1", out, err);
}

/* Of a process of its own, as each test is: nothing is loaded yet. */
START_TEST(test_s3_shared_lib__what_could_not_be_loaded_is_loaded_later)
{
    struct cairn_error err;
    struct rlimit was, none;
    struct s3_config config = {
        .endpoint = "http://127.0.0.1:9", .bucket = "b", .force_path_style = true};
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = 0;
    for (int v2 = 0; v2 < 2; v2++) {
        struct s3_client *c = NULL;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
        int rc = open_client(v2, &config, &c, &err);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
        ck_assert_int_ne(rc, CAIRN_OK);
        ck_assert_ptr_nonnull(strstr(err.message, v2 ? "libs3" : "libcurl"));
        ck_ok(open_client(v2, &config, &c, &err));
        c->ops->free(c);
    }
}
END_TEST

TESTING_MAIN(s3_shared_lib, test_s3_shared_lib__what_could_not_be_loaded_is_loaded_later,
             test_s3_shared_lib__finds_functions_of_a_library_and_of_those_it_needs,
             test_s3_shared_lib__says_what_is_missing)
