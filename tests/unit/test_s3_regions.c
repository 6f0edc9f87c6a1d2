/* Servers that want another region, another host or another time. */
#include "tests/s3/object.h"

#include <stdio.h>
#include <string.h>

START_TEST(test_s3_regions__the_right_region_is_found_and_remembered)
{
    struct cairn_error err;
    store_start(S3_SIGNATURE_V4);
    plant();
    s3fs_region(fs, "eu-central-1");
    ck_ok(read_range(NULL, 0, 10, &err));
    ck_assert_uint_eq(stats().refused, 1);
    ck_ok(put(NULL, "x", "y", &err));
    struct backend_stat st;
    ck_ok(store->ops->stat(store, NULL, "x", &st, &err));
    ck_assert_uint_eq(stats().refused, 1);
    store_stop();
}
END_TEST

START_TEST(test_s3_regions__the_region_comes_from_a_301_too)
{
    struct cairn_error err;
    store_start(S3_SIGNATURE_V4);
    plant();
    s3fs_region(fs, "eu-central-1");
    rule("ANY times=1 do status=301 code=PermanentRedirect region=eu-central-1");
    struct backend_stat st;
    ck_ok(store->ops->stat(store, NULL, "obj", &st, &err));
    ck_assert_uint_eq(st.size, BODY_LEN);
    ck_ok(read_range(NULL, 0, 10, &err));
    ck_assert_uint_eq(stats().refused, 0);
    /* One that leads nowhere names the region. */
    s3fs_clear(fs);
    rule("ANY do status=301 code=PermanentRedirect region=eu-central-1");
    ck_fails(read_range(NULL, 0, 10, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "eu-central-1"));
    store_stop();
}
END_TEST

START_TEST(test_s3_regions__a_redirect_is_signed_again_and_its_body_sent_again)
{
    struct cairn_error err;
    char line[200];
    store_start(S3_SIGNATURE_V4);
    struct s3fs *first = fs, *second = s3fs_start(NULL);
    ck_assert_ptr_nonnull(second);
    snprintf(line, sizeof(line), "ANY do status=307 code=TemporaryRedirect location=%s/bucket/x",
             s3fs_endpoint(second));
    rule(line);
    testing_fill(body, sizeof(body), 3);
    ck_ok(store->ops->put(store, NULL, "obj", body, sizeof(body), &err));
    ck_assert(s3fs_has(second, "pre/fix/obj") && !s3fs_has(first, "pre/fix/obj"));
    ck_ok(read_range(NULL, 100, 1000, &err));
    ck_assert(memcmp(got, body + 100, 1000) == 0);
    ck_assert_uint_eq(stats().requests, 1); /* remembered */
    struct s3fs_stats s;
    s3fs_stats(second, &s);
    ck_assert_uint_eq(s.refused, 0);
    /* The other one goes: back home. */
    s3fs_stop(second);
    s3fs_clear(first);
    s3fs_store(first, "pre/fix/obj", body, sizeof(body));
    ck_ok(read_range(NULL, 0, 10, &err));
    store_stop();
}
END_TEST

START_TEST(test_s3_regions__nobody_else_gets_a_signature)
{
    struct cairn_error err;
    store_start(S3_SIGNATURE_V4);
    plant();
    /* localhost is this machine, but not the endpoint's name. */
    char line[200];
    snprintf(line, sizeof(line), "GET do status=307 location=http://localhost:%u/bucket/x",
             s3fs_port(fs));
    rule(line);
    ck_fails(read_range(NULL, 0, 10, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "RedirectRefused"));
    ck_assert_uint_eq(stats().requests, 1);
    store_stop();
}
END_TEST

START_TEST(test_s3_regions__another_clock_is_followed_once)
{
    struct cairn_error err;
    store_start(S3_SIGNATURE_V4);
    plant();
    s3fs_skew(fs, 3600);
    ck_ok(read_range(NULL, 0, 10, &err));
    ck_assert_uint_eq(stats().refused, 1);
    struct backend_stat st;
    ck_ok(store->ops->stat(store, NULL, "obj", &st, &err));
    ck_assert_uint_eq(stats().refused, 1);
    /* A server that refuses for another reason than it says is not asked for ever. */
    rule("GET do status=403 code=RequestTimeTooSkewed");
    ck_fails(read_range(NULL, 0, 10, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "RequestTimeTooSkewed"));
    store_stop();
}
END_TEST

TESTING_MAIN(s3_regions, test_s3_regions__the_right_region_is_found_and_remembered,
             test_s3_regions__the_region_comes_from_a_301_too,
             test_s3_regions__a_redirect_is_signed_again_and_its_body_sent_again,
             test_s3_regions__nobody_else_gets_a_signature,
             test_s3_regions__another_clock_is_followed_once)
