/* What takes a request apart once its head is read: paths, queries, ranges, tags, bodies, members.
 */
#include "base/clock.h"
#include "base/util.h"
#include "service/body.h"
#include "service/etag.h"
#include "service/route.h"
#include "service/uri.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define ID "ck_00000000000000aa"

static int find(const char *path, struct request *r, char *kept, char allow[ROUTE_ALLOW_MAX])
{
    struct cairn_error err;
    *r = (struct request){.number = 1};
    memcpy(kept, path, strlen(path) + 1);
    return route_find(HTTP_GET, kept, r, allow, &err);
}

START_TEST(test_parse__routes_take_their_variables)
{
    char kept[256], allow[ROUTE_ALLOW_MAX];
    struct request r;
    ck_assert_int_eq(find("/v1/records/" ID "/files/a%20b/c%25", &r, kept, allow), 0);
    ck_assert_str_eq(r.route->name, "file");
    ck_assert_str_eq(r.id, ID);
    ck_assert_str_eq(r.rest, "a b/c%");
    ck_assert_int_eq(find("/v1/records/%63k_00000000000000aa", &r, kept, allow), 0);
    ck_assert_str_eq(r.id, ID);
    ck_assert_str_eq(r.rest, "");
    ck_assert_int_eq(find("/v1/records/" ID "/fetch", &r, kept, allow), 405);
    ck_assert_str_eq(allow, "POST");
}
END_TEST

START_TEST(test_parse__every_route_can_be_reached)
{
    for (unsigned i = 0; i < n_routes; i++) {
        char path[256] = "", allow[ROUTE_ALLOW_MAX];
        const char *p = routes[i].pattern;
        while (*p) {
            const char *with = strncmp(p, "{id}", 4) == 0     ? ID
                               : strncmp(p, "{path}", 6) == 0 ? "a/b"
                               : strncmp(p, "{rest}", 6) == 0 ? "x"
                                                              : NULL;
            size_t at = strlen(path);
            snprintf(path + at, sizeof(path) - at, "%.*s", with ? 10 * ID_MAX : 1, with ? with : p);
            p += with ? strcspn(p, "}") + 1 : 1;
        }
        struct request r = {0};
        struct cairn_error err;
        ck_assert_int_eq(route_find(routes[i].method, path, &r, allow, &err), 0);
        ck_assert_ptr_eq(r.route, &routes[i]);
        ck_assert_msg(routes[i].max_body == 0 || routes[i].method == HTTP_POST, "%s",
                      routes[i].name);
    }
}
END_TEST

START_TEST(test_parse__queries)
{
    char text[] = "&a=1&&b=%41+c&d&=e&f=%3D%26";
    char *at = text, *name, *value;
    static const char *const want[][2] = {
        {"a", "1"}, {"b", "A c"}, {"d", ""}, {"", "e"}, {"f", "=&"}};
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        ck_assert_int_eq(uri_next_parameter(&at, &name, &value), 1);
        ck_assert_str_eq(name, want[i][0]);
        ck_assert_str_eq(value, want[i][1]);
    }
    ck_assert_int_eq(uri_next_parameter(&at, &name, &value), 0);
    static const char *const bad[] = {"a=%", "a=%4", "a=%4g", "%=1", "a=%00"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CLEANUP_FREE char *copy = strdup(bad[i]);
        at = copy;
        ck_assert_int_eq(uri_next_parameter(&at, &name, &value), -1);
    }
}
END_TEST

START_TEST(test_parse__ranges_saturate)
{
    uint64_t from, len;
    ck_assert_int_eq(range_parse("bytes=0-18446744073709551615", 10, &from, &len), RANGE_PART);
    ck_assert_uint_eq(len, 10);
    ck_assert_int_eq(range_parse("bytes=-99999999999999999999999", 10, &from, &len), RANGE_PART);
    ck_assert_uint_eq(from, 0);
    ck_assert_int_eq(range_parse("bytes=99999999999999999999999-", 10, &from, &len), RANGE_OUTSIDE);
    ck_assert_int_eq(range_parse("bytes=0-", UINT64_MAX, &from, &len), RANGE_PART);
    ck_assert_uint_eq(len, UINT64_MAX);
    ck_assert_int_eq(range_parse("bytes=0-0", 0, &from, &len), RANGE_OUTSIDE);
    ck_assert_int_eq(range_parse(NULL, 10, &from, &len), RANGE_ALL);
}
END_TEST

START_TEST(test_parse__tags)
{
    ck_assert(etag_matches("\"ab\"", "ab"));
    ck_assert(etag_matches("W/\"ab\"", "ab"));
    ck_assert(etag_matches("\"x\" ,\t\"ab\" ", "ab"));
    ck_assert(etag_matches("*", "ab"));
    ck_assert(!etag_matches("ab", "ab"));
    ck_assert(!etag_matches("\"abc\"", "ab"));
    ck_assert(!etag_matches("\"", "ab"));
    ck_assert(!etag_matches("W/", "ab"));
    ck_assert(!etag_matches("", "ab"));
    ck_assert(!etag_matches(NULL, "ab"));
    ck_assert(etag_is(NULL, "ab"));
    ck_assert(etag_is("\"ab\"", "ab"));
    ck_assert(!etag_is("W/\"ab\"", "ab"));
}
END_TEST

static int parse(const char *text, struct jval **out, struct cairn_error *err)
{
    size_t len = strlen(text);
    char *copy = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, len);
    int rc = body_parse(copy, len, out, err);
    free(copy);
    return rc;
}

START_TEST(test_parse__numbers_in_a_body_saturate)
{
    struct cairn_error err;
    static const char *const huge[] = {"99999999999999999999", "123456789012345678901234567890",
                                       "1e400", "9.9e999", "100000000000000000000.5e300000000"};
    for (size_t i = 0; i < ARRAY_SIZE(huge); i++) {
        CLEANUP_JVAL struct jval *v = NULL;
        char text[256];
        double seconds = -1;
        snprintf(text, sizeof(text), "{\"s\": %s,\"t\":\"%s\"}", huge[i], huge[i]);
        ck_ok(parse(text, &v, &err));
        struct request r = {.body = v};
        const char *kept;
        const struct field fields[] = {{"s", FIELD_SECONDS, &seconds, true},
                                       {"t", FIELD_TEXT, &kept, true}};
        ck_ok(request_fields(&r, fields, 2, &err));
        ck_assert_msg(seconds > 1e18, "%s: %g", huge[i], seconds);
        ck_assert_str_eq(kept, huge[i]);
        uint64_t count = 0;
        const struct field as_count[] = {{"s", FIELD_COUNT, &count, true},
                                         {"t", FIELD_TEXT, &kept, true}};
        ck_ok(request_fields(&r, as_count, 2, &err));
        ck_assert_uint_ge(count, 1000000000000000000U);
    }
    CLEANUP_JVAL struct jval *v = NULL;
    ck_ok(parse("{\"a\":[-99999999999999999999,-1e999,1.5,123456789012345678,\"\\\"1e999\"]}", &v,
                &err));
    const struct jval *a = jval_get(v, "a");
    double real;
    int64_t whole;
    ck_assert(jval_real(jval_at(a, 0), &real) && real < -1e300);
    ck_assert(jval_real(jval_at(a, 1), &real) && real < -1e300);
    ck_assert(jval_real(jval_at(a, 2), &real) && real == 1.5);
    ck_assert(jval_int(jval_at(a, 3), &whole) && whole == 123456789012345678);
    ck_assert_str_eq(jval_str(jval_at(a, 4)), "\"1e999");
}
END_TEST

static void member_is(const char *text, const char *want)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf got = BUF_INIT(1000);
    ck_ok(body_member(text, strlen(text), "meta", &got, &err));
    ck_assert_uint_eq(got.len, strlen(want));
    ck_assert_msg(!got.len || memcmp(got.data, want, got.len) == 0, "%s", text);
}

START_TEST(test_parse__a_member_is_taken_as_it_is_written)
{
    member_is("", "");
    member_is("{}", "");
    member_is("{\"meta\":{}}", "{}");
    member_is(" { \"a\" : [1, {\"meta\": 2}],\n\"meta\" : { \"n\" :\t1764460800123456789, "
              "\"u\": 18446744073709551615, \"f\": 1.10, \"e\": 1E400 } , \"b\": 3 } ",
              "{\"n\":1764460800123456789,\"u\":18446744073709551615,\"f\":1.10,\"e\":1E400}");
    member_is(
        "{\"a\":\"meta\",\"x\":{\"meta\":1},\"meta\":{\"t\":\" } , \\\" ] \",\"l\":[1, [2]]}}",
        "{\"t\":\" } , \\\" ] \",\"l\":[1,[2]]}");
    member_is("{\"m\\u0065ta\":{\"a\":1}}", "");
    static const char *const broken[] = {"\"", "{\"", "{\"meta\"", "{\"meta\":", "{\"meta\":\"\\",
                                         "}}]"};
    for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
        struct cairn_error err;
        CLEANUP_BUF struct buf got = BUF_INIT(1000);
        ck_ok(body_member(broken[i], strlen(broken[i]), "meta", &got, &err));
    }
}
END_TEST

START_TEST(test_parse__what_is_wrong_is_not_repeated)
{
    struct cairn_error err;
    struct jval *v = NULL;
    ck_fails(parse("{\"token\" \"5f3c0f0e5d2b\"}", &v, &err), CAIRN_INVALID);
    ck_assert_msg(!strstr(err.message, "5f3c"), "%s", err.message);
}
END_TEST

START_TEST(test_parse__bodies_that_are_none)
{
    struct cairn_error err;
    struct jval *v;
    static const char *const bad[] = {"[]",
                                      "1",
                                      "\"x\"",
                                      "{",
                                      "{} {}",
                                      "{a:1}",
                                      "\"",
                                      "{\"",
                                      "{\"a\":1,\"a\":2}",
                                      "--1",
                                      "1e",
                                      "nul",
                                      "{\"a\":\"\\u0000\\"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        v = NULL;
        ck_fails(parse(bad[i], &v, &err), CAIRN_INVALID);
        ck_assert_ptr_null(v);
    }
    ck_ok(parse("", &v, &err));
    ck_assert_ptr_null(v);
    ck_ok(parse(" \r\n\t", &v, &err));
    ck_assert_ptr_null(v);
}
END_TEST

START_TEST(test_parse__members_are_checked_by_name)
{
    struct cairn_error err;
    const char *text = "unset", *id = "unset";
    bool flag = true;
    double seconds = 7;
    uint64_t count = 7;
    const struct field fields[] = {{"text", FIELD_TEXT, &text, false},
                                   {"id", FIELD_ID, &id, true},
                                   {"flag", FIELD_BOOL, &flag, false},
                                   {"seconds", FIELD_SECONDS, &seconds, false},
                                   {"count", FIELD_COUNT, &count, false}};
    static const struct {
        const char *body, *word;
    } bad[] = {{"{\"id\":\"" ID "\",\"nope\":1}", "\"nope\""},
               {"{}", "\"id\" is missing"},
               {"{\"id\":null}", "\"id\" is missing"},
               {"{\"id\":\"ck_1\"}", "\"id\""},
               {"{\"id\":1}", "\"id\""},
               {"{\"id\":\"" ID "\",\"flag\":1}", "\"flag\""},
               {"{\"id\":\"" ID "\",\"text\":false}", "\"text\""},
               {"{\"id\":\"" ID "\",\"seconds\":\"5\"}", "\"seconds\""},
               {"{\"id\":\"" ID "\",\"count\":-1}", "\"count\""},
               {"{\"id\":\"" ID "\",\"count\":1.5}", "\"count\""},
               {"{\"id\":\"" ID "\",\"\\u001b[31m\":1}", "?[31m"}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CLEANUP_JVAL struct jval *v = NULL;
        ck_ok(parse(bad[i].body, &v, &err));
        struct request r = {.body = v};
        ck_fails(request_fields(&r, fields, ARRAY_SIZE(fields), &err), CAIRN_INVALID);
        ck_assert_msg(strstr(err.message, bad[i].word), "%s: %s", bad[i].body, err.message);
    }
    CLEANUP_JVAL struct jval *v = NULL;
    ck_ok(parse("{\"id\":\"" ID "\",\"seconds\":-3,\"count\":5.0,\"flag\":null}", &v, &err));
    struct request r = {.body = v};
    ck_ok(request_fields(&r, fields, ARRAY_SIZE(fields), &err));
    ck_assert_str_eq(id, ID);
    ck_assert_str_eq(text, "unset");
    ck_assert(flag);
    ck_assert(seconds == 7); /* negative: as absent */
    ck_assert_uint_eq(count, 5);
    r.body = NULL;
    ck_fails(request_fields(&r, fields, ARRAY_SIZE(fields), &err), CAIRN_INVALID);
}
END_TEST

START_TEST(test_parse__a_deadline_is_only_shortened)
{
    struct request r = {.op = {.deadline_ns = CAIRN_NO_DEADLINE}};
    request_shorten(&r, -1);
    ck_assert_int_eq(r.op.deadline_ns, CAIRN_NO_DEADLINE);
    request_shorten(&r, 1000);
    int64_t first = r.op.deadline_ns;
    ck_assert_int_le(first, clock_monotonic() + 1000 * NS_PER_S);
    request_shorten(&r, 1e300);
    request_shorten(&r, 2000);
    ck_assert_int_eq(r.op.deadline_ns, first);
    request_shorten(&r, 0);
    ck_assert_int_le(r.op.deadline_ns, clock_monotonic());
}
END_TEST

TESTING_MAIN(parse, test_parse__routes_take_their_variables, test_parse__every_route_can_be_reached,
             test_parse__queries, test_parse__ranges_saturate, test_parse__tags,
             test_parse__numbers_in_a_body_saturate, test_parse__a_member_is_taken_as_it_is_written,
             test_parse__what_is_wrong_is_not_repeated, test_parse__bodies_that_are_none,
             test_parse__members_are_checked_by_name, test_parse__a_deadline_is_only_shortened)
