#include "service/head.h"

#include "base/buf.h"
#include "base/util.h"
#include "tests/lib/testing.h"

#include <string.h>

static long parse(const char *text, struct head *h)
{
    const char *why = NULL;
    /* On the heap and of its exact size, so that a sanitizer sees each byte too many. */
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, len);
    long rc = head_parse(copy, len, h, &why);
    if (rc < 0)
        ck_assert(why && *why);
    free(copy);
    return rc;
}

static bool is(struct head_text t, const char *text)
{
    return t.len == strlen(text) && memcmp(t.text, text, t.len) == 0;
}

START_TEST(test_head__fields_are_found)
{
    static const char text[] = "\r\nPOST /v1/x?y=1 HTTP/1.1\r\nhOST: x\r\nContent-Length:  12 \r\n"
                               "content-type:\tapplication/json\t\r\nRange:bytes=1-2\r\n"
                               "If-None-Match: \"a\", W/\"b\"\r\nX-Other: \xc3\xa9\r\n\r\nbody";
    struct head h;
    const char *why;
    long n = head_parse(text, strlen(text), &h, &why);
    ck_assert_int_eq(n, (long)strlen(text) - 4);
    ck_assert_int_eq(h.method, HTTP_POST);
    ck_assert(is(h.target, "/v1/x?y=1"));
    ck_assert(is(h.content_type, "application/json"));
    ck_assert(is(h.range, "bytes=1-2"));
    ck_assert(is(h.if_none_match, "\"a\", W/\"b\""));
    ck_assert_uint_eq(h.length, 12);
    ck_assert(!h.close && !h.chunked && !h.http_10 && !h.expect_continue);
}
END_TEST

START_TEST(test_head__every_beginning_is_incomplete)
{
    static const char text[] =
        "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nX: y\r\n\r\n";
    struct head h;
    for (size_t n = 0; n < strlen(text); n++) {
        CLEANUP_FREE char *part = strndup(text, n);
        ck_assert_msg(parse(part, &h) == 0, "after %zu bytes", n);
    }
    ck_assert_int_eq(parse(text, &h), (long)strlen(text));
}
END_TEST

START_TEST(test_head__connection_is_a_list)
{
    static const struct {
        const char *version, *value;
        bool close;
    } cases[] = {{"1.1", "close", true},
                 {"1.1", "keep-alive", false},
                 {"1.1", "X, Close ,y", true},
                 {"1.1", "closed", false},
                 {"1.1", "", false},
                 {"1.1", ",,", false},
                 {"1.0", "keep-alive", false},
                 {"1.0", "x", true},
                 {"1.0", "keep-alive, close", true}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[128];
        struct head h;
        snprintf(text, sizeof(text), "GET / HTTP/%s\r\nHost: x\r\nConnection: %s\r\n\r\n",
                 cases[i].version, cases[i].value);
        ck_assert_int_gt(parse(text, &h), 0);
        ck_assert_msg(h.close == cases[i].close, "HTTP/%s %s", cases[i].version, cases[i].value);
    }
}
END_TEST

START_TEST(test_head__bounds_hold)
{
    struct head h;
    CLEANUP_FREE char *text = malloc(HEAD_MAX + 100);
    ck_assert_ptr_nonnull(text);
    const char *why;
    /* As large as may be, and one byte more. */
    for (size_t extra = 0; extra < 2; extra++) {
        int n = snprintf(text, HEAD_MAX, "GET / HTTP/1.1\r\nHost: x\r\nX: ");
        size_t len = HEAD_MAX + extra;
        memset(text + n, 'a', len - (size_t)n);
        memcpy(text + len - 4, "\r\n\r\n", 4);
        long rc = head_parse(text, len, &h, &why);
        ck_assert_int_eq(rc, extra ? -431 : (long)len);
    }
    memset(text, 'a', HEAD_MAX);
    ck_assert_int_eq(head_parse(text, HEAD_MAX, &h, &why), -414);
    ck_assert_int_eq(head_parse(text, HEAD_MAX - 1, &h, &why), 0);
}
END_TEST

/* Feed text in pieces of n bytes. */
static bool feed(const char *text, size_t n, struct buf *out, bool *too_large, bool *done,
                 size_t *left)
{
    struct chunked c = {0};
    size_t len = strlen(text), at = 0;
    while (at < len && !c.done) {
        size_t piece = len - at < n ? len - at : n, used;
        if (!chunked_feed(&c, text + at, piece, &used, out, too_large))
            return false;
        at += used;
    }
    *done = c.done;
    *left = len - at;
    return true;
}

START_TEST(test_head__chunks_of_any_cut)
{
    static const char text[] =
        "5;a=b\r\nhello\r\n1\r\n \r\n00A \r\n0123456789\r\n0\r\nX: y\r\n\r\nNEXT";
    for (size_t n = 1; n <= strlen(text); n++) {
        CLEANUP_BUF struct buf out = BUF_INIT(1000);
        bool too_large, done;
        size_t left;
        ck_assert(feed(text, n, &out, &too_large, &done, &left));
        ck_assert(done);
        ck_assert_uint_eq(left, 4);
        ck_assert_uint_eq(out.len, 16);
        ck_assert_int_eq(memcmp(out.data, "hello 0123456789", 16), 0);
    }
}
END_TEST

START_TEST(test_head__bad_chunks_are_refused)
{
    static const char *const bad[] = {
        "\r\n",         "g\r\n",         "-1\r\n",         "0x5\r\n", "5\nhello",
        "5\r\nhello5",  "5\r\nhelloxy",  "5\r\r",          "0\r\n\n", "1000000000000000\r\n",
        "0\r\nX\n\r\n", "5\r\nhello\r0", " 5\r\nhello\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        for (size_t n = 1; n < 4; n++) {
            CLEANUP_BUF struct buf out = BUF_INIT(1000);
            bool too_large, done;
            size_t left;
            ck_assert_msg(!feed(bad[i], n, &out, &too_large, &done, &left), "%s", bad[i]);
            ck_assert(!too_large);
        }
}
END_TEST

START_TEST(test_head__too_much_is_told_from_bad)
{
    CLEANUP_BUF struct buf out = BUF_INIT(4);
    bool too_large, done;
    size_t left;
    ck_assert(!feed("5\r\nhello\r\n0\r\n\r\n", 100, &out, &too_large, &done, &left));
    ck_assert(too_large);
    /* A line of framing without end takes no memory, and ends as well. */
    CLEANUP_FREE char *line = malloc(5001);
    ck_assert_ptr_nonnull(line);
    memset(line, 'x', 5000);
    line[5000] = 0;
    memcpy(line, "1;", 2);
    ck_assert(!feed(line, 100, &out, &too_large, &done, &left));
    ck_assert(!too_large);
}
END_TEST

TESTING_MAIN(head, test_head__fields_are_found, test_head__every_beginning_is_incomplete,
             test_head__connection_is_a_list, test_head__bounds_hold, test_head__chunks_of_any_cut,
             test_head__bad_chunks_are_refused, test_head__too_much_is_told_from_bad)
