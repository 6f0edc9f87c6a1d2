#include "base/buf.h"

#include "tests/lib/testing.h"

#include <string.h>

START_TEST(test_buf__the_maximum_holds_and_nothing_is_lost)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(1000);
    char text[1001];
    memset(text, 'x', sizeof(text));
    ck_fails(buf_add(&b, text, 1001, &err), CAIRN_INVALID);
    ck_assert_uint_eq(b.len, 0);
    ck_ok(buf_add(&b, text, 999, &err));
    ck_fails(buf_add(&b, text, 2, &err), CAIRN_INVALID);
    ck_fails(buf_reserve(&b, 2, &err), CAIRN_INVALID);
    ck_fails(buf_reserve(&b, SIZE_MAX, &err), CAIRN_INVALID);
    ck_fails(buf_addf(&b, &err, "%s", "yy"), CAIRN_INVALID);
    ck_assert_uint_eq(b.len, 999);
    ck_ok(buf_add(&b, "z", 1, &err));
    ck_assert_uint_eq(b.len, 1000);
    ck_assert_uint_le(b.cap, 1000);
    ck_assert_int_eq(b.data[998], 'x');
    ck_assert_int_eq(b.data[999], 'z');
    ck_ok(buf_add(&b, NULL, 0, &err));
}
END_TEST

START_TEST(test_buf__it_grows_and_keeps_its_bytes)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(SIZE_MAX);
    for (unsigned i = 0; i < 20000; i++)
        ck_ok(buf_addf(&b, &err, "%05u,", i));
    ck_assert_uint_eq(b.len, 120000);
    for (unsigned i = 0; i < 20000; i++) {
        char want[16];
        snprintf(want, sizeof(want), "%05u,", i);
        ck_assert_mem_eq(b.data + 6 * i, want, 6);
    }
    size_t cap = b.cap;
    buf_clear(&b);
    ck_assert_uint_eq(b.len, 0);
    ck_assert_uint_eq(b.cap, cap);
    buf_release(&b);
    ck_assert_ptr_null(b.data);
    ck_assert_uint_eq(b.cap, 0);
    ck_assert_uint_eq(b.max, SIZE_MAX);
}
END_TEST

START_TEST(test_buf__reserved_room_is_there)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(100000);
    ck_ok(buf_reserve(&b, 70000, &err));
    ck_assert_uint_ge(b.cap, 70000);
    ck_assert_uint_eq(b.len, 0);
    memset(b.data, 1, 70000);
    uint8_t *data = b.data;
    ck_ok(buf_add(&b, data, 70000, &err));
    ck_assert_ptr_eq(b.data, data);
}
END_TEST

TESTING_MAIN(buf, test_buf__the_maximum_holds_and_nothing_is_lost,
             test_buf__it_grows_and_keeps_its_bytes, test_buf__reserved_room_is_there)
