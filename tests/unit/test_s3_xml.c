#include "base/clock.h"
#include "base/util.h"
#include "s3/xml.h"
#include "s3/xml_list.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

#define PAGE(inside)                                                                               \
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"  \
    "<EncodingType>url</EncodingType>" inside "</ListBucketResult>"
#define ENTRY(key)                                                                                 \
    "<Contents><Key>" key "</Key><LastModified>2013-05-24T00:00:00.893Z</LastModified>"            \
    "<ETag>&quot;abc&quot;</ETag><Size>18446744073709551615</Size></Contents>"
#define LAST "<IsTruncated>false</IsTruncated>"
#define MORE "<IsTruncated>true</IsTruncated>"

static int parse(const char *text, struct s3_page *page, struct cairn_error *err)
{
    *page = (struct s3_page){0};
    return xml_list_parse(text, strlen(text), page, err);
}

START_TEST(test_s3_xml__a_page_is_read_as_it_stands)
{
    struct cairn_error err;
    struct s3_page page;
    ck_ok(parse(PAGE(ENTRY("a%20b%2Bc+d%C3%A9%01%FF%26") ENTRY("z") MORE
                     "<NextContinuationToken>1+/=&amp;</NextContinuationToken>"),
                &page, &err));
    ck_assert_uint_eq(page.n, 2);
    ck_assert_str_eq(page.entries[0].key, "a b+c d\xc3\xa9\x01\xff&");
    ck_assert_str_eq(page.entries[1].key, "z");
    ck_assert(page.entries[0].stat.size == UINT64_MAX);
    ck_assert_int_eq(page.entries[0].stat.mtime_ns, 1369353600 * NS_PER_S);
    ck_assert_str_eq(page.entries[0].stat.etag, "abc");
    ck_assert(page.truncated);
    ck_assert_str_eq(page.token, "1+/=&");
    s3_page_release(&page);
}
END_TEST

START_TEST(test_s3_xml__keys_are_raw_where_the_server_does_not_encode)
{
    struct cairn_error err;
    struct s3_page page;
    ck_ok(
        parse("<ListBucketResult>" ENTRY("a%20b+c&amp;") LAST "</ListBucketResult>", &page, &err));
    ck_assert_str_eq(page.entries[0].key, "a%20b+c&");
    s3_page_release(&page);
    /* EncodingType behind the entries counts as well. */
    ck_ok(parse("<ListBucketResult>" ENTRY("a%20b") LAST
                "<EncodingType>url</EncodingType></ListBucketResult>",
                &page, &err));
    ck_assert_str_eq(page.entries[0].key, "a b");
    s3_page_release(&page);
}
END_TEST

START_TEST(test_s3_xml__an_empty_page_may_have_more_behind_it)
{
    struct cairn_error err;
    struct s3_page page;
    ck_ok(parse(PAGE(MORE "<NextContinuationToken>t</NextContinuationToken>"), &page, &err));
    ck_assert_uint_eq(page.n, 0);
    ck_assert(page.truncated);
    s3_page_release(&page);
}
END_TEST

START_TEST(test_s3_xml__every_cut_is_an_error)
{
    static const char whole[] = PAGE(ENTRY("a") ENTRY("b") LAST);
    struct cairn_error err;
    struct s3_page page = {0};
    for (size_t len = 0; len < sizeof(whole) - 1; len++) {
        ck_fails(xml_list_parse(whole, len, &page, &err), CAIRN_TRANSIENT);
        ck_assert(page.n == 0 && !page.entries);
    }
    ck_ok(xml_list_parse(whole, sizeof(whole) - 1, &page, &err));
    s3_page_release(&page);
}
END_TEST

START_TEST(test_s3_xml__what_is_no_listing_is_an_error)
{
    static const char *const texts[] = {
        "<html><body>hello</body></html>",
        "<ListBucketResult></ListBucketResult>",
        PAGE(ENTRY("a")),
        PAGE("<IsTruncated>maybe</IsTruncated>"),
        PAGE("<Contents><Key>a</Key><Size>1</Size></Contents>" LAST),
        PAGE("<Contents><Key>a</Key><LastModified>2013-05-24T00:00:00Z</LastModified></"
             "Contents>" LAST),
        PAGE("<Contents><Size>1</Size><LastModified>2013-05-24T00:00:00Z</LastModified></"
             "Contents>" LAST),
        PAGE(
            "<Contents><Key>a</Key><Size>-1</Size><LastModified>2013-05-24T00:00:00Z</LastModified>"
            "</Contents>" LAST),
        PAGE("<Contents><Key>a</Key><Size>1</Size><LastModified>yesterday</LastModified></"
             "Contents>" LAST),
        PAGE(ENTRY("a%2") LAST),
        PAGE(ENTRY("a%zz") LAST),
        "<!DOCTYPE x [<!ENTITY a \"b\">]>" PAGE(LAST),
        PAGE(LAST) "x",
        "",
    };
    struct cairn_error err;
    struct s3_page page;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_fails(parse(texts[i], &page, &err), CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_s3_xml__raw_echoes_spoil_the_token_not_the_keys)
{
    struct cairn_error err;
    struct s3_page page;
    /* As Ceph's gateway does with a start, prefix or token that XML cannot hold. */
    ck_ok(parse(PAGE("<StartAfter>\xff\x01</StartAfter>" ENTRY("a%FF") MORE
                     "<NextContinuationToken>a\xff</NextContinuationToken>"),
                &page, &err));
    ck_assert_str_eq(page.entries[0].key, "a\xff");
    ck_assert_ptr_null(page.token);
    ck_assert(page.truncated);
    s3_page_release(&page);
    /* Never where a key could be changed by it. */
    ck_fails(parse("<ListBucketResult>" ENTRY("a\x01") LAST "</ListBucketResult>", &page, &err),
             CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_s3_xml__a_key_with_a_nul_is_passed_over_and_counted)
{
    struct cairn_error err;
    struct s3_page page;
    ck_ok(parse(PAGE(ENTRY("a%00b") ENTRY("c") LAST), &page, &err));
    ck_assert_uint_eq(page.n, 1);
    ck_assert_uint_eq(page.skipped, 1);
    ck_assert_str_eq(page.entries[0].key, "c");
    s3_page_release(&page);
}
END_TEST

START_TEST(test_s3_xml__a_fault_is_read_also_when_it_is_cut)
{
    struct s3_fault f;
    static const char text[] =
        "<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code><Message>Reduce\nit "
        "\xc3\xa9</Message>"
        "<Region>eu-west-1</Region><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>";
    ck_assert(s3_fault_parse(text, strlen(text), &f));
    ck_assert_str_eq(f.code, "SlowDown");
    ck_assert_str_eq(f.message, "Reduce?it ??");
    ck_assert_str_eq(f.region, "eu-west-1");
    ck_assert_str_eq(f.endpoint, "b.s3.eu-west-1.amazonaws.com");
    ck_assert(s3_fault_parse(text, (size_t)(strstr(text, "<Region>") - text), &f));
    ck_assert_str_eq(f.code, "SlowDown");
    ck_assert(!s3_fault_parse("", 0, &f));
    ck_assert(!s3_fault_parse("not xml", 7, &f));
    static const char list[] = PAGE(LAST);
    ck_assert(!s3_fault_parse(list, strlen(list), &f));
    ck_assert_str_eq(f.code, "");
}
END_TEST

struct told {
    char deleted[200], failed[200];
};

static void on_deleted(void *ctx, const char *key)
{
    struct told *t = ctx;
    size_t n = strlen(t->deleted);
    snprintf(t->deleted + n, sizeof(t->deleted) - n, "%s;", key);
}

static void on_failed(void *ctx, const char *key, const char *code, const char *message)
{
    struct told *t = ctx;
    size_t n = strlen(t->failed);
    snprintf(t->failed + n, sizeof(t->failed) - n, "%s=%s/%s;", key, code, message);
}

START_TEST(test_s3_xml__a_delete_result_names_every_key)
{
    struct cairn_error err;
    struct told t = {"", ""};
    const struct xml_delete_events events = {on_deleted, on_failed, &t};
    static const char text[] =
        "<DeleteResult><Deleted><Key>a&amp;b</Key></Deleted>"
        "<Error><Key>c</Key><Code>AccessDenied</Code><Message>No</Message></Error>"
        "<Error><Key>d</Key><Code>InternalError</Code></Error>"
        "<Deleted><Key>e</Key></Deleted></DeleteResult>";
    ck_ok(xml_delete_parse(text, strlen(text), &events, &err));
    ck_assert_str_eq(t.deleted, "a&b;e;");
    ck_assert_str_eq(t.failed, "c=AccessDenied/No;d=InternalError/;");
    for (size_t len = 0; len < strlen(text); len++)
        ck_fails(xml_delete_parse(text, len, &events, &err), CAIRN_TRANSIENT);
    ck_fails(xml_delete_parse("<x/>", 4, &events, &err), CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_s3_xml__a_delete_body_escapes_and_refuses)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(65536);
    const char *keys[] = {"a<b>&c", "\xc3\xa9 +%"};
    ck_ok(xml_delete_body(keys, 2, &out, &err));
    ck_ok(buf_add(&out, "", 1, &err));
    ck_assert_ptr_nonnull(strstr((char *)out.data,
                                 "<Object><Key>a&lt;b&gt;&amp;c</Key></Object>"
                                 "<Object><Key>\xc3\xa9 +%</Key></Object></Delete>"));
    static const char *const bad[] = {"\x01", "a\r", "a\n", "\xff", "\xef\xbf\xbf", "\xed\xa0\x80"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert(!xml_can_hold(bad[i]));
        ck_fails(xml_delete_body(&bad[i], 1, &out, &err), CAIRN_INVALID);
    }
}
END_TEST

TESTING_MAIN(s3_xml, test_s3_xml__a_page_is_read_as_it_stands,
             test_s3_xml__keys_are_raw_where_the_server_does_not_encode,
             test_s3_xml__an_empty_page_may_have_more_behind_it, test_s3_xml__every_cut_is_an_error,
             test_s3_xml__what_is_no_listing_is_an_error,
             test_s3_xml__raw_echoes_spoil_the_token_not_the_keys,
             test_s3_xml__a_key_with_a_nul_is_passed_over_and_counted,
             test_s3_xml__a_fault_is_read_also_when_it_is_cut,
             test_s3_xml__a_delete_result_names_every_key,
             test_s3_xml__a_delete_body_escapes_and_refuses)
