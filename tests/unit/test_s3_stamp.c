#include "base/clock.h"
#include "base/util.h"
#include "s3/stamp.h"
#include "tests/lib/testing.h"

#include <stdlib.h>
#include <time.h>

START_TEST(test_s3_stamp__amz_is_utc_whatever_the_zone)
{
    char text[STAMP_AMZ_TEXT];
    setenv("TZ", "Asia/Tokyo", 1);
    tzset();
    stamp_amz(1369353600, text);
    ck_assert_str_eq(text, "20130524T000000Z");
    stamp_amz(0, text);
    ck_assert_str_eq(text, "19700101T000000Z");
    stamp_amz(1709210096, text);
    ck_assert_str_eq(text, "20240229T123456Z");
}
END_TEST

START_TEST(test_s3_stamp__iso_with_fraction_and_offset)
{
    int64_t ns;
    setenv("TZ", "America/St_Johns", 1);
    tzset();
    ck_assert(stamp_parse_iso("2013-05-24T00:00:00Z", &ns));
    ck_assert_int_eq(ns, 1369353600 * NS_PER_S);
    ck_assert(stamp_parse_iso("2013-05-24T00:00:00.893Z", &ns));
    ck_assert_int_eq(ns, 1369353600 * NS_PER_S + 893000000);
    ck_assert(stamp_parse_iso("2013-05-24T01:30:00.5+01:30", &ns));
    ck_assert_int_eq(ns, 1369353600 * NS_PER_S + 500000000);
    ck_assert(stamp_parse_iso("2013-05-23T23:00:00-01:00", &ns));
    ck_assert_int_eq(ns, 1369353600 * NS_PER_S);
}
END_TEST

START_TEST(test_s3_stamp__http_date)
{
    int64_t s;
    ck_assert(stamp_parse_http("Fri, 24 May 2013 00:00:00 GMT", &s));
    ck_assert_int_eq(s, 1369353600);
    ck_assert(stamp_parse_http("Thu, 29 Feb 2024 12:34:56 GMT", &s));
    ck_assert_int_eq(s, 1709210096);
}
END_TEST

START_TEST(test_s3_stamp__refuses_everything_else)
{
    static const char *const iso[] = {"",
                                      "2013-05-24",
                                      "2013-05-24T00:00:00",
                                      "2013-05-24 00:00:00Z",
                                      "2013-13-24T00:00:00Z",
                                      "2013-05-24T24:00:00Z",
                                      "2013-05-24T00:00:00.Z",
                                      "2013-05-24T00:00:00Zx",
                                      "9999-01-01T00:00:00Z",
                                      "x013-05-24T00:00:00Z"};
    static const char *const http[] = {"",
                                       "Fri, 24 May 2013 00:00:00",
                                       "24 May 2013 00:00:00 GMT",
                                       "Fri, 24 Mai 2013 00:00:00 GMT",
                                       "Fri, 24 May",
                                       "Fri, 24 May 2013 00:00:00 GMT+1",
                                       "Fri, "};
    int64_t v;
    for (size_t i = 0; i < ARRAY_SIZE(iso); i++)
        ck_assert_msg(!stamp_parse_iso(iso[i], &v), "%s", iso[i]);
    for (size_t i = 0; i < ARRAY_SIZE(http); i++)
        ck_assert_msg(!stamp_parse_http(http[i], &v), "%s", http[i]);
}
END_TEST

TESTING_MAIN(s3_stamp, test_s3_stamp__amz_is_utc_whatever_the_zone,
             test_s3_stamp__iso_with_fraction_and_offset, test_s3_stamp__http_date,
             test_s3_stamp__refuses_everything_else)
