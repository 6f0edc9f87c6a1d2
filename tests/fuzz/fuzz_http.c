/* A request as bytes, through all that takes it apart before a handler sees it. */
#include "base/util.h"
#include "service/body.h"
#include "service/etag.h"
#include "service/head.h"
#include "service/route.h"
#include "service/uri.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* However a chunked body is cut, it holds the same. */
static void check_chunks(const char *data, size_t len, struct buf *body)
{
    struct chunked whole = {0}, pieces = {0};
    CLEANUP_BUF struct buf same = BUF_INIT(body->max);
    size_t used, at = 0;
    bool large, large_too = false, good = chunked_feed(&whole, data, len, &used, body, &large);
    bool good_too = true;
    FUZZ_CHECK(used <= len && body->len <= body->max && !(good && large));
    while (good_too && at < len && !pieces.done) {
        size_t n;
        good_too = chunked_feed(&pieces, data + at, 1, &n, &same, &large_too);
        FUZZ_CHECK(n <= 1);
        at += n;
    }
    FUZZ_CHECK(good == good_too && whole.done == pieces.done);
    /* What is too large is cut where a piece would begin. */
    if (!large)
        FUZZ_CHECK(body->len == same.len &&
                   (!same.len || !memcmp(body->data, same.data, same.len)));
}

static void check_fields(const struct jval *body, char *query)
{
    struct cairn_error err;
    const char *text = NULL, *id = NULL;
    const struct jval *json = NULL;
    bool flag = false;
    double seconds = 1;
    uint64_t count = 1;
    const struct field fields[] = {{"new_id", FIELD_ID, &id, false},
                                   {"dry_run", FIELD_BOOL, &flag, false},
                                   {"seconds", FIELD_SECONDS, &seconds, false},
                                   {"limit", FIELD_COUNT, &count, false},
                                   {"after", FIELD_TEXT, &text, false},
                                   {"meta", FIELD_JSON, &json, false}};
    struct request r = {.body = body, .query = query};
    int rc = request_fields(&r, fields, ARRAY_SIZE(fields), &err);
    if (rc)
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_INVALID);
    rc = request_query(&r, fields, ARRAY_SIZE(fields) - 1, &err);
    if (rc)
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_INVALID);
    FUZZ_CHECK(!id || id_is_valid(id));
    FUZZ_CHECK(seconds >= 0 && count <= INT64_MAX);
}

static bool has_dots(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        size_t n = strcspn(p, "/");
        if (n == 0 || (n <= 2 && strspn(p, ".") >= n))
            return true;
    }
    return false;
}

static void check_target(const struct head *h, const struct jval *body)
{
    struct cairn_error err;
    struct request r = {0};
    char allow[ROUTE_ALLOW_MAX], *query;
    CLEANUP_FREE char *path = strndup(h->target.text, h->target.len);
    FUZZ_CHECK(path);
    uri_split(path, &query);
    int status = route_find(h->method, path, &r, allow, &err);
    FUZZ_CHECK(status == 0 || status == 400 || status == 404 || status == 405);
    if (status)
        FUZZ_CHECK(err.message[0]);
    FUZZ_CHECK(!*r.id || id_is_valid(r.id));
    FUZZ_CHECK(status || !*r.rest || !has_dots(r.rest));
    check_fields(body, query);
}

static void check_header_values(const struct head *h)
{
    uint64_t from, len;
    CLEANUP_FREE char *range = h->range.text ? strndup(h->range.text, h->range.len) : NULL;
    CLEANUP_FREE char *tag =
        h->if_none_match.text ? strndup(h->if_none_match.text, h->if_none_match.len) : NULL;
    for (uint64_t size = 0; size < 200; size += 99)
        if (range_parse(range, size, &from, &len) == RANGE_PART)
            FUZZ_CHECK(len && from < size && len <= size - from);
    (void)etag_matches(tag, "0123456789abcdef");
    (void)etag_is(tag, "0123456789abcdef");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why = NULL, *text = (const char *)data;
    struct head h, part;
    struct cairn_error err;
    long n = head_parse(text, size, &h, &why);
    FUZZ_CHECK(n <= (long)size && (n >= 0 || (why && *why && n <= -400 && n > -600)));
    if (n <= 0)
        return 0;
    /* A head is complete at its last byte, not before. */
    FUZZ_CHECK(head_parse(text, (size_t)n - 1, &part, &why) == 0);
    FUZZ_CHECK(head_parse(text, (size_t)n / 2, &part, &why) == 0);
    CLEANUP_BUF struct buf body = BUF_INIT(ROUTE_BODY_SMALL);
    if (h.chunked)
        check_chunks(text + n, size - (size_t)n, &body);
    else
        FUZZ_CHECK(!buf_add(&body, text + n, size - (size_t)n, &err));
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = body_parse((char *)body.data, body.len, &v, &err);
    if (rc)
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_INVALID);
    check_target(&h, v);
    check_header_values(&h);
    return 0;
}
