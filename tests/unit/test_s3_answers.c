/* Answers that end early or late, or are none: no byte of them is taken for the object's. */
#include "base/util.h"
#include "tests/s3/object.h"

#include <stdio.h>
#include <string.h>

/* Wherever an answer ends or stands still, the next one is asked for on another connection. */
START_TEST(test_s3_answers__a_read_survives_an_end_at_any_byte)
{
    struct cairn_error err;
    uint64_t seed = 4711;
    server_start();
    struct s3_config c = store_config();
    c.stall_ns = NS_PER_S / 10;
    c.retry_window_ns = 60 * NS_PER_S;
    store_open(&c);
    plant();
    for (int i = 0; i < 32; i++) {
        char line[64];
        uint64_t at = i == 0 ? 0 : i == 1 ? 1 : i == 2 ? 29999 : testing_random(&seed) % 30000;
        bool stalls = i % 2;
        snprintf(line, sizeof(line), "GET times=1 do %s=%u", stalls ? "stall" : "close",
                 (unsigned)at);
        s3fs_clear(fs);
        rule(line);
        uint64_t before = stats().get;
        int rc = read_range(NULL, 20000, 30000, &err);
        ck_assert_msg(!rc, "%s: %s", line, err.message);
        ck_assert_msg(memcmp(got, body + 20000, 30000) == 0, "%s: wrong bytes", line);
        ck_assert_uint_ge(stats().get - before, 2);
    }
    store_stop();
}
END_TEST

/* They are not taken for the object's, nor for the head of the next answer. */
START_TEST(test_s3_answers__bytes_behind_an_answer_are_dropped)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        rule("GET times=5 do extra=1000");
        for (int i = 0; i < 10; i++) {
            CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
            ck_ok(read_range(NULL, (uint64_t)i * 1000, 30000, &err));
            ck_assert(memcmp(got, body + i * 1000, 30000) == 0);
            ck_ok(get(NULL, "obj", &out, &err));
            ck_assert(out.len == sizeof(body) && memcmp(out.data, body, out.len) == 0);
        }
    }
}
END_TEST

START_TEST(test_s3_answers__an_error_inside_a_200_is_no_object)
{
    struct cairn_error err;
    server_start();
    struct s3_config c = store_config();
    c.retry_window_ns = NS_PER_S;
    store_open(&c);
    plant();
    CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
    rule("GET times=2 do inner=InternalError");
    ck_ok(get(NULL, "obj", &out, &err));
    ck_assert(out.len == sizeof(body) && memcmp(out.data, body, out.len) == 0);
    ck_assert_uint_eq(stats().get, 3);
    rule("GET do inner=AccessDenied");
    out.len = 0;
    ck_fails(get(NULL, "obj", &out, &err), CAIRN_PERMANENT);
    ck_assert_uint_eq(out.len, 0);
    /* An object that reads like one is an object. */
    s3fs_clear(fs);
    const char *text = "<Error><Code>InternalError</Code></Error>";
    s3fs_store(fs, "pre/fix/text", text, strlen(text));
    ck_ok(get(NULL, "text", &out, &err));
    ck_assert_uint_eq(out.len, strlen(text));
    store_stop();
}
END_TEST

START_TEST(test_s3_answers__v2_sees_a_flipped_bit_of_a_whole_object)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
    store_start(S3_SIGNATURE_V2);
    plant();
    rule("GET do flip=777");
    ck_fails(get(NULL, "obj", &out, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(out.len, 0);
    store_stop();
}
END_TEST

TESTING_MAIN(s3_answers, test_s3_answers__a_read_survives_an_end_at_any_byte,
             test_s3_answers__bytes_behind_an_answer_are_dropped,
             test_s3_answers__an_error_inside_a_200_is_no_object,
             test_s3_answers__v2_sees_a_flipped_bit_of_a_whole_object)
