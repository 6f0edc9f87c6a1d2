#include "base/util.h"
#include "s3/config.h"
#include "tests/lib/testing.h"

#include <string.h>

START_TEST(test_s3_config__a_url_is_bucket_and_prefix_as_they_stand)
{
    static const struct {
        const char *url, *bucket, *prefix;
    } good[] = {
        {"s3://bucket", "bucket", ""},
        {"s3://bucket/", "bucket", ""},
        {"s3://my.bucket-1/a/b", "my.bucket-1", "a/b"},
        {"s3://bucket/a%20b+c/?x#y", "bucket", "a%20b+c/?x#y"},
        {"s3://bucket//a", "bucket", "/a"},
    };
    static const char *const bad[] = {
        "",        "bucket/x",     "s3:/bucket",   "s3://",       "s3:///x",
        "s3://ab", "s3://-bucket", "s3://buc ket", "S3://bucket", "s3://user@bucket/x"};
    struct cairn_error err;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CLEANUP_FREE char *bucket = NULL, *prefix = NULL;
        ck_ok(s3_url_parse(good[i].url, &bucket, &prefix, &err));
        ck_assert_str_eq(bucket, good[i].bucket);
        ck_assert_str_eq(prefix, good[i].prefix);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char *bucket = NULL, *prefix = NULL;
        ck_fails(s3_url_parse(bad[i], &bucket, &prefix, &err), CAIRN_INVALID);
        ck_assert(!bucket && !prefix);
    }
}
END_TEST

START_TEST(test_s3_config__an_endpoint_is_scheme_host_and_port)
{
    static const struct {
        const char *text, *authority;
        bool tls;
    } good[] = {
        {"https://s3.example.org", "s3.example.org", true},
        {"https://s3.example.org:443/", "s3.example.org", true},
        {"http://127.0.0.1:80", "127.0.0.1", false},
        {"http://127.0.0.1:9000", "127.0.0.1:9000", false},
        {"http://[::1]:9000", "[::1]:9000", false},
        {"s3.example.org:8443", "s3.example.org:8443", true},
    };
    static const char *const bad[] = {"http://user:secret@host",
                                      "ftp://host",
                                      "http://host/path",
                                      "http://host?x",
                                      "http://",
                                      "http://host:0",
                                      "http://host:99999",
                                      "http://host:",
                                      "http://host:1x",
                                      "http://[::1",
                                      "http://a b"};
    struct cairn_error err;
    struct s3_place p;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ck_ok(s3_place_parse(good[i].text, &p, &err));
        ck_assert_str_eq(p.authority, good[i].authority);
        ck_assert(p.tls == good[i].tls);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_fails(s3_place_parse(bad[i], &p, &err), CAIRN_INVALID);
        ck_assert_ptr_null(strstr(err.message, "secret"));
    }
}
END_TEST

START_TEST(test_s3_config__redirects_stay_within_the_domain)
{
    static const struct {
        const char *home, *to, *authority;
        bool ok, virtual_host;
    } cases[] = {
        {"http://127.0.0.1:1", "http://127.0.0.1:2/bucket/key", "127.0.0.1:2", true, false},
        {"http://127.0.0.1:1", "http://127.0.0.2:2/bucket/key", "", false, false},
        {"https://s3.amazonaws.com", "https://bucket.s3.eu-west-1.amazonaws.com/key?x=1",
         "s3.eu-west-1.amazonaws.com", true, true},
        {"https://s3.amazonaws.com", "https://s3.eu-west-1.amazonaws.com/bucket/key",
         "s3.eu-west-1.amazonaws.com", true, false},
        {"https://s3.amazonaws.com", "bucket.s3.eu-west-1.amazonaws.com",
         "s3.eu-west-1.amazonaws.com", true, true},
        {"https://s3.amazonaws.com", "http://s3.eu-west-1.amazonaws.com/bucket/key", "", false,
         false},
        {"https://s3.amazonaws.com", "https://s3.amazonaws.com.evil.example/bucket/key", "", false,
         false},
        {"https://s3.amazonaws.com", "https://evilamazonaws.com/", "", false, false},
        {"https://s3.example.org", "https://eu.s3.example.org/bucket/k", "eu.s3.example.org", true,
         false},
        {"https://s3.example.org", "https://example.org/bucket/k", "", false, false},
        {"https://s3.example.org", "https://s3.example.org@evil.example/", "", false, false},
        {"https://s3.example.org", "/bucket/k", "", false, false},
        {"https://s3.example.org", "", "", false, false},
    };
    struct cairn_error err;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct s3_place home, to;
        ck_ok(s3_place_parse(cases[i].home, &home, &err));
        bool ok = s3_place_redirect(&home, "bucket", cases[i].to, &to);
        ck_assert_msg(ok == cases[i].ok, "%s -> %s", cases[i].home, cases[i].to);
        if (ok) {
            ck_assert_str_eq(to.authority, cases[i].authority);
            ck_assert(to.virtual_host == cases[i].virtual_host);
        }
    }
}
END_TEST

START_TEST(test_s3_config__a_bucket_goes_into_the_host_only_where_it_can)
{
    struct cairn_error err;
    struct s3_place name, address, plain;
    ck_ok(s3_place_parse("https://s3.example.org", &name, &err));
    ck_ok(s3_place_parse("http://127.0.0.1:9000", &address, &err));
    ck_ok(s3_place_parse("http://s3.example.org", &plain, &err));
    ck_assert(s3_place_fits_virtual(&name, "bucket"));
    ck_assert(!s3_place_fits_virtual(&name, "my.bucket")); /* no certificate covers it */
    ck_assert(s3_place_fits_virtual(&plain, "my.bucket"));
    ck_assert(!s3_place_fits_virtual(&name, "Bucket"));
    ck_assert(!s3_place_fits_virtual(&name, "my_bucket"));
    ck_assert(!s3_place_fits_virtual(&address, "bucket"));
}
END_TEST

START_TEST(test_s3_config__what_cannot_work_is_refused_in_words)
{
    struct cairn_error err;
    struct s3_config good = {.bucket = "bucket", .spool_dir = "/tmp", .endpoint = "http://h"}, c;
    ck_ok(s3_config_check(&good, &err));
    c = good, c.bucket = "no bucket";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c = good, c.prefix = "a/../b";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c = good, c.prefix = "./b";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c = good, c.prefix = "a..b/...";
    ck_ok(s3_config_check(&c, &err));
    c = good, c.region = "eu west";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c = good, c.spool_dir = NULL;
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c = good, c.signature = S3_SIGNATURE_V2;
    ck_ok(s3_config_check(&c, &err));
    c.endpoint = "https://h";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "certificates"));
    c.endpoint = NULL;
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    c.endpoint = "http://h", c.prefix = "a b";
    ck_fails(s3_config_check(&c, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "space"));
}
END_TEST

START_TEST(test_s3_config__keys_that_paths_would_change_are_no_keys)
{
    static const char *const bad[] = {"", ".", "..", "a/.", "./a", "a/../b"};
    static const char *const good[] = {"a", "...", "a..b", ".a/b.", "a//b", "a/"};
    struct cairn_error err;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_fails(s3_key_check(bad[i], &err), CAIRN_INVALID);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_ok(s3_key_check(good[i], &err));
}
END_TEST

TESTING_MAIN(s3_config, test_s3_config__a_url_is_bucket_and_prefix_as_they_stand,
             test_s3_config__an_endpoint_is_scheme_host_and_port,
             test_s3_config__redirects_stay_within_the_domain,
             test_s3_config__a_bucket_goes_into_the_host_only_where_it_can,
             test_s3_config__what_cannot_work_is_refused_in_words,
             test_s3_config__keys_that_paths_would_change_are_no_keys)
