#include "s3/xml_list.h"

#include "base/clock.h"
#include "base/util.h"
#include "s3/stamp.h"
#include "s3/xml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_ENTRIES_MAX 100000 /* no server sends more than 1,000 unless told to */

void s3_page_release(struct s3_page *page)
{
    free(page->entries);
    free(page->token);
    free(page->next);
    buf_release(&page->keys);
    *page = (struct s3_page){0};
}

static int bad(struct cairn_error *err, const char *what)
{
    return error_set(err, CAIRN_TRANSIENT, EBADMSG, "listing: %s", what);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place: %XX, and '+' which some servers send for a space (a plus sign is %2B then). Returns the
 * new length, or SIZE_MAX for a '%' that starts nothing. */
static size_t url_decode(char *s, size_t len)
{
    size_t o = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '%') {
            int hi = i + 2 < len ? hex_digit(s[i + 1]) : -1;
            int lo = hi < 0 ? -1 : hex_digit(s[i + 2]);
            if (lo < 0)
                return SIZE_MAX;
            s[o++] = (char)(hi << 4 | lo);
            i += 2;
        } else {
            s[o++] = s[i] == '+' ? ' ' : s[i];
        }
    }
    s[o] = 0;
    return o;
}

struct list_reader {
    struct s3_page *page;
    bool url, has_truncated, has_root;
    /* the entry being read */
    char *key;
    size_t key_len;
    struct backend_stat stat;
    bool has_size, has_time;
};

static int keep(char **to, const char *text, struct cairn_error *err)
{
    free(*to);
    *to = strdup(text);
    return *to ? CAIRN_OK : error_oom(err, "listing");
}

static int grow(struct s3_page *page, struct cairn_error *err)
{
    if (page->n < page->cap)
        return CAIRN_OK;
    if (page->n >= PAGE_ENTRIES_MAX)
        return bad(err, "more keys than a page may have");
    size_t cap = page->cap ? 2 * page->cap : 64;
    struct s3_entry *entries = realloc(page->entries, cap * sizeof(*entries));
    if (!entries)
        return error_oom(err, "listing");
    page->entries = entries;
    page->cap = cap;
    return CAIRN_OK;
}

static int entry_done(struct list_reader *r, struct cairn_error *err)
{
    if (!r->key || !r->has_size || !r->has_time)
        return bad(err, "an entry without Key, Size or LastModified");
    /* EncodingType may stand behind the entries, and the keys' memory still moves: both decoding
     * and pointing at the keys wait for the end. */
    int rc = grow(r->page, err);
    if (rc)
        return rc;
    struct s3_entry *e = &r->page->entries[r->page->n];
    *e = (struct s3_entry){.stat = r->stat, .key_off = r->page->keys.len};
    rc = buf_add(&r->page->keys, r->key, r->key_len + 1, err);
    if (rc)
        return rc;
    r->page->n++;
    free(util_steal(&r->key));
    r->stat = (struct backend_stat){0};
    r->has_size = r->has_time = false;
    return CAIRN_OK;
}

static void copy_etag(char out[BACKEND_ETAG_MAX], const char *text)
{
    if (*text == '"')
        text++;
    size_t n = strlen(text);
    if (n && text[n - 1] == '"')
        n--;
    if (n >= BACKEND_ETAG_MAX)
        n = BACKEND_ETAG_MAX - 1;
    memcpy(out, text, n);
    out[n] = 0;
}

static bool parse_u64(const char *text, uint64_t *out)
{
    uint64_t v = 0;
    if (!*text)
        return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    *out = v;
    return true;
}

static int contents_leaf(struct list_reader *r, const char *name, const char *text, size_t len,
                         struct cairn_error *err)
{
    if (strcmp(name, "Key") == 0) {
        r->key_len = len;
        return keep(&r->key, text, err);
    }
    if (strcmp(name, "Size") == 0) {
        r->has_size = true;
        return parse_u64(text, &r->stat.size) ? CAIRN_OK : bad(err, "a Size that is no number");
    }
    if (strcmp(name, "LastModified") == 0) {
        int64_t ns;
        if (!stamp_parse_iso(text, &ns))
            return bad(err, "a LastModified that is no time");
        r->has_time = true;
        r->stat.mtime_ns = ns - (ns % NS_PER_S + NS_PER_S) % NS_PER_S;
    } else if (strcmp(name, "ETag") == 0) {
        copy_etag(r->stat.etag, text);
    }
    return CAIRN_OK;
}

static int list_leaf(void *ctx, const char *path, const char *text, size_t len,
                     struct cairn_error *err)
{
    static const char root[] = "ListBucketResult";
    struct list_reader *r = ctx;
    if (strncmp(path, root, sizeof(root) - 1) != 0)
        return bad(err, "not a ListBucketResult");
    const char *p = path + sizeof(root) - 1;
    if (!*p) {
        r->has_root = true;
        return CAIRN_OK;
    }
    if (*p++ != '/')
        return bad(err, "not a ListBucketResult");
    if (strcmp(p, "Contents") == 0)
        return entry_done(r, err);
    if (strncmp(p, "Contents/", 9) == 0)
        return contents_leaf(r, p + 9, text, len, err);
    if (strcmp(p, "IsTruncated") == 0) {
        r->has_truncated = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
        r->page->truncated = strcmp(text, "true") == 0;
    } else if (strcmp(p, "EncodingType") == 0) {
        r->url = strcmp(text, "url") == 0;
    } else if (strcmp(p, "NextContinuationToken") == 0) {
        return keep(&r->page->token, text, err);
    } else if (strcmp(p, "NextMarker") == 0) {
        return keep(&r->page->next, text, err);
    }
    return CAIRN_OK;
}

/* Decode the keys in place (they only become shorter) and point the entries at them. */
static int finish(struct list_reader *r, struct cairn_error *err)
{
    struct s3_page *page = r->page;
    size_t kept = 0;
    for (size_t i = 0; i < page->n; i++) {
        char *key = (char *)page->keys.data + page->entries[i].key_off;
        size_t len = strlen(key);
        if (r->url)
            len = url_decode(key, len);
        if (len == SIZE_MAX)
            return bad(err, "a key that is not URL-encoded");
        if (strlen(key) != len || !len) {
            page->skipped++;
            continue;
        }
        page->entries[kept] = page->entries[i];
        page->entries[kept++].key = key;
    }
    page->n = kept;
    if (r->url && page->next && url_decode(page->next, strlen(page->next)) == SIZE_MAX)
        return bad(err, "a marker that is not URL-encoded");
    return CAIRN_OK;
}

static int parse_page(const void *data, size_t len, struct s3_page *page, bool *url,
                      struct cairn_error *err)
{
    struct list_reader r = {.page = page};
    page->keys = BUF_INIT(XML_LIST_MAX);
    int rc = xml_parse(data, len, list_leaf, &r, err);
    free(r.key);
    if (!rc && (!r.has_root || !r.has_truncated))
        rc = bad(err, "no IsTruncated");
    if (!rc)
        rc = finish(&r, err);
    if (rc)
        s3_page_release(page);
    *url = r.url;
    return rc;
}

/* Length of the character of XML 1.0 at p; 0 where there is none. */
static size_t xml_character(const uint8_t *p, size_t left)
{
    if (*p < 0x80)
        return *p >= 0x20 || *p == '\t' || *p == '\n' || *p == '\r';
    for (size_t n = 2; n <= 4 && n <= left; n++)
        if (util_is_utf8(p, n))
            return n == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe ? 0 : n;
    return 0;
}

/* '?' in place of every byte that no document can hold. False: there was none. */
static bool make_readable(uint8_t *p, size_t len)
{
    bool changed = false;
    for (size_t i = 0; i < len;) {
        size_t n = xml_character(p + i, len - i);
        if (!n) {
            p[i] = '?';
            changed = true;
            n = 1;
        }
        i += n;
    }
    return changed;
}

/* The last key says where to go on. */
static void drop_places(struct s3_page *page)
{
    free(util_steal(&page->token));
    free(util_steal(&page->next));
}

int xml_list_parse(const void *data, size_t len, struct s3_page *page, struct cairn_error *err)
{
    bool url = false;
    int rc = parse_page(data, len, page, &url, err);
    if (!rc && page->n && memchr(data, '\r', len))
        drop_places(page); /* a reader of XML makes a line feed of it, in a token too */
    if (rc != CAIRN_TRANSIENT || !len)
        return rc;
    /* Ceph's gateway repeats prefix, start and token as raw bytes beside keys that are encoded. The
     * keys are what counts, and none of them is touched by this; the token is not to be trusted
     * any more, the last key says as well where to go on. */
    struct cairn_error e;
    CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return error_oom(err, "listing");
    memcpy(copy, data, len);
    if (!make_readable(copy, len) || parse_page(copy, len, page, &url, &e))
        return rc;
    if (!url) {
        s3_page_release(page);
        return rc;
    }
    drop_places(page);
    return CAIRN_OK;
}

struct delete_reader {
    const struct xml_delete_events *events;
    bool has_root;
    char *key;
    char code[S3_CODE_MAX], message[S3_DETAIL_MAX];
};

static int delete_leaf(void *ctx, const char *path, const char *text, size_t len,
                       struct cairn_error *err)
{
    static const char root[] = "DeleteResult";
    (void)len;
    struct delete_reader *r = ctx;
    if (strncmp(path, root, sizeof(root) - 1) != 0)
        return bad(err, "not a DeleteResult");
    const char *p = path + sizeof(root) - 1;
    if (!*p) {
        r->has_root = true;
        return CAIRN_OK;
    }
    if (strcmp(p, "/Deleted/Key") == 0 || strcmp(p, "/Error/Key") == 0)
        return keep(&r->key, text, err);
    if (strcmp(p, "/Error/Code") == 0)
        snprintf(r->code, sizeof(r->code), "%s", text);
    else if (strcmp(p, "/Error/Message") == 0)
        snprintf(r->message, sizeof(r->message), "%s", text);
    bool deleted = strcmp(p, "/Deleted") == 0;
    if (!deleted && strcmp(p, "/Error") != 0)
        return CAIRN_OK;
    if (!r->key)
        return bad(err, "a DeleteResult without a Key");
    if (deleted)
        r->events->deleted(r->events->ctx, r->key);
    else
        r->events->failed(r->events->ctx, r->key, r->code, r->message);
    free(util_steal(&r->key));
    r->code[0] = r->message[0] = 0;
    return CAIRN_OK;
}

int xml_delete_parse(const void *data, size_t len, const struct xml_delete_events *events,
                     struct cairn_error *err)
{
    struct delete_reader r = {.events = events};
    int rc = xml_parse(data, len, delete_leaf, &r, err);
    free(r.key);
    return rc || r.has_root ? rc : bad(err, "not a DeleteResult");
}

bool xml_can_hold(const char *key)
{
    if (!util_is_utf8(key, strlen(key)))
        return false;
    /* XML 1.0: no control characters but tab and line feeds (and readers change those), and none of
     * U+FFFE, U+FFFF. */
    for (const uint8_t *p = (const uint8_t *)key; *p; p++)
        if (*p < 0x20 || *p == 0x7f ||
            (p[0] == 0xef && p[1] == 0xbf && (p[2] == 0xbe || p[2] == 0xbf)))
            return false;
    return true;
}

static int add_escaped(const char *text, struct buf *out, struct cairn_error *err)
{
    for (const char *p = text; *p; p++) {
        const char *as = NULL;
        if (*p == '&')
            as = "&amp;";
        else if (*p == '<')
            as = "&lt;";
        else if (*p == '>')
            as = "&gt;";
        int rc = as ? buf_add(out, as, strlen(as), err) : buf_add(out, p, 1, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int xml_delete_body(const char *const *keys, size_t n, struct buf *out, struct cairn_error *err)
{
    int rc = buf_addf(out, err,
                      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                      "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (size_t i = 0; i < n && !rc; i++) {
        if (!xml_can_hold(keys[i]))
            return error_set(err, CAIRN_INVALID, EINVAL, "a key that XML cannot hold");
        rc = buf_addf(out, err, "<Object><Key>");
        if (!rc)
            rc = add_escaped(keys[i], out, err);
        if (!rc)
            rc = buf_addf(out, err, "</Key></Object>");
    }
    return rc ? rc : buf_addf(out, err, "</Delete>");
}
