/* The bucket of the fault server, and what a good server answers. */
#include "tests/lib/s3_fault_private.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

size_t object_find(const struct s3fs *fs, const char *key, bool *found)
{
    size_t lo = 0, hi = fs->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(fs->objects[mid].key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *found = lo < fs->n && strcmp(fs->objects[lo].key, key) == 0;
    return lo;
}

static void object_clear(struct object *o)
{
    free(o->key);
    free(o->data);
}

void object_put(struct s3fs *fs, const char *key, const void *data, size_t len)
{
    bool found;
    size_t at = object_find(fs, key, &found);
    if (found) {
        object_clear(&fs->objects[at]);
    } else {
        if (fs->n == fs->cap) {
            fs->cap = fs->cap ? 2 * fs->cap : 64;
            fs->objects = realloc(fs->objects, fs->cap * sizeof(*fs->objects));
            if (!fs->objects)
                abort();
        }
        memmove(fs->objects + at + 1, fs->objects + at, (fs->n - at) * sizeof(*fs->objects));
        fs->n++;
    }
    struct object *o = &fs->objects[at];
    *o = (struct object){.key = strdup(key), .data = malloc(len + 1), .len = len};
    if (!o->key || !o->data)
        abort();
    if (len)
        memcpy(o->data, data, len);
    o->mtime = server_now(fs);
    unsigned char md[16];
    EVP_Digest(data, len, md, NULL, EVP_md5(), NULL);
    for (int i = 0; i < 16; i++)
        snprintf(o->etag + 2 * i, 3, "%02x", md[i]);
}

static void object_delete(struct s3fs *fs, const char *key)
{
    bool found;
    size_t at = object_find(fs, key, &found);
    if (!found)
        return;
    object_clear(&fs->objects[at]);
    memmove(fs->objects + at, fs->objects + at + 1, (fs->n - at - 1) * sizeof(*fs->objects));
    fs->n--;
}

void objects_free(struct s3fs *fs)
{
    for (size_t i = 0; i < fs->n; i++)
        object_clear(&fs->objects[i]);
    free(fs->objects);
}

void error_answer(struct answer *a, int status, const char *code, const char *message,
                  const char *extra_xml)
{
    text_free(&a->body);
    text_free(&a->headers);
    a->status = status;
    text_addf(&a->headers, "Content-Type: application/xml\r\n");
    text_addf(
        &a->body,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message>"
        "%s<RequestId>1</RequestId></Error>",
        code, message, extra_xml);
}

static void http_date(int64_t t, char out[64])
{
    struct tm tm;
    time_t v = (time_t)t;
    gmtime_r(&v, &tm);
    strftime(out, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static void get_object(struct s3fs *fs, const struct request *r, const struct rule *rule,
                       struct answer *a)
{
    bool found, head = strcmp(r->method, "HEAD") == 0;
    size_t at = object_find(fs, r->path, &found);
    if (!found) {
        error_answer(a, 404, "NoSuchKey", "The specified key does not exist.", "");
        a->no_body = head;
        return;
    }
    const struct object *o = &fs->objects[at];
    const char *range = header_of(r, "range");
    unsigned long long from = 0, to = o->len ? o->len - 1 : 0;
    char date[64];
    http_date(o->mtime, date);
    a->status = 200;
    a->no_body = head;
    text_addf(&a->headers, "ETag: \"%s\"\r\nLast-Modified: %s\r\nAccept-Ranges: bytes\r\n", o->etag,
              date);
    if (range && !(rule && rule->norange) && sscanf(range, "bytes=%llu-%llu", &from, &to) >= 1) {
        if (rule && rule->shift) {
            from++;
            to++;
        }
        if (from >= o->len) {
            error_answer(a, 416, "InvalidRange", "The requested range is not satisfiable", "");
            text_addf(&a->headers, "Content-Range: bytes */%zu\r\n", o->len);
            return;
        }
        if (to >= o->len)
            to = o->len - 1;
        a->status = 206;
        text_addf(&a->headers, "Content-Range: bytes %llu-%llu/%zu\r\n", from, to, o->len);
        text_add(&a->body, o->data + from, (size_t)(to - from + 1));
        return;
    }
    text_add(&a->body, o->data, o->len);
}

static void add_entry(struct s3fs *fs, struct text *out, const struct object *o, bool url)
{
    struct tm tm;
    time_t t = (time_t)o->mtime;
    gmtime_r(&t, &tm);
    text_addf(out, "<Contents><Key>");
    if (url)
        escape(out, o->key, strlen(o->key), true);
    else
        xml_escape(out, o->key);
    text_addf(out,
              "</Key><LastModified>%04d-%02d-%02dT%02d:%02d:%02d.%03dZ</LastModified>"
              "<ETag>&quot;%s&quot;</ETag><Size>%zu</Size><StorageClass>STANDARD</StorageClass>"
              "</Contents>",
              tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
              (int)(fs->random % 1000), o->etag, o->len);
}

/* A token of bytes that must be encoded in a query: "+/=" and the key that comes next. */
static void list(struct s3fs *fs, const struct request *r, const struct rule *rule,
                 struct answer *a)
{
    char prefix[3200] = "", after[3200] = "", text[3200] = "", type[8] = "", enc[8] = "";
    bool v2 = query_param(r, "list-type", type, sizeof(type)) && strcmp(type, "2") == 0;
    bool url = query_param(r, "encoding-type", enc, sizeof(enc)) && strcmp(enc, "url") == 0;
    bool from_token = false;
    query_param(r, "prefix", prefix, sizeof(prefix));
    if (v2 && query_param(r, "continuation-token", text, sizeof(text))) {
        if (strncmp(text, "a+/= &", 6) != 0) {
            error_answer(a, 400, "InvalidArgument", "The continuation token is not ours", "");
            return;
        }
        from_token = true;
        snprintf(after, sizeof(after), "%s", text + 6);
        size_t dots = strlen(after); /* pages without a key lengthen it */
        while (dots && after[dots - 1] == '.')
            after[--dots] = 0;
    } else {
        query_param(r, v2 ? "start-after" : "marker", after, sizeof(after));
    }
    if (rule && rule->repeat)
        after[0] = 0;
    unsigned max = fs->page;
    char number[16];
    if (query_param(r, "max-keys", number, sizeof(number)) &&
        (unsigned)strtoul(number, NULL, 10) < max)
        max = (unsigned)strtoul(number, NULL, 10);
    const struct object *page[1000];
    size_t n = 0;
    bool more = false;
    for (size_t i = 0; i < fs->n && !(rule && rule->empty); i++) {
        const struct object *o = &fs->objects[i];
        if (strncmp(o->key, prefix, strlen(prefix)) != 0 || (*after && strcmp(o->key, after) <= 0))
            continue;
        if (n == max || n == 1000) {
            more = true;
            break;
        }
        page[n++] = o;
    }
    if (rule && rule->empty)
        more = true;
    struct text *b = &a->body;
    a->status = 200;
    text_addf(&a->headers, "Content-Type: application/xml\r\n");
    text_addf(b,
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
              "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>%s</Name>",
              fs->bucket);
    if (url)
        text_addf(b, "<EncodingType>url</EncodingType>");
    text_addf(b, "<IsTruncated>%s</IsTruncated>", more ? "true" : "false");
    for (size_t i = 0; i < n; i++)
        add_entry(fs, b, page[rule && rule->reverse ? n - 1 - i : i], url);
    if (more && v2) {
        text_addf(b, "<NextContinuationToken>a+/= &amp;");
        xml_escape(b, n ? page[n - 1]->key : after);
        if (!n)
            text_addf(b, "%s.", from_token ? text + 6 + strlen(after) : "");
        text_addf(b, "</NextContinuationToken>");
    }
    text_addf(b, "</ListBucketResult>");
}

/* The text between <Key> and </Key>, one after the other. */
static bool next_key(const char **p, char *out, size_t size)
{
    const char *from = strstr(*p, "<Key>"), *to = from ? strstr(from, "</Key>") : NULL;
    if (!to)
        return false;
    size_t o = 0;
    for (const char *c = from + 5; c < to && o + 1 < size; c++) {
        static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
        static const char chars[] = "&<>\"";
        out[o++] = *c;
        for (int i = 0; i < 4; i++)
            if (strncmp(c, names[i], strlen(names[i])) == 0) {
                out[o - 1] = chars[i];
                c += strlen(names[i]) - 1;
                break;
            }
    }
    out[o] = 0;
    *p = to + 6;
    return true;
}

static void delete_many(struct s3fs *fs, const struct request *r, const struct rule *rule,
                        struct answer *a)
{
    char *body = malloc(r->body_len + 1), key[2100];
    if (!body)
        abort();
    memcpy(body, r->body, r->body_len);
    body[r->body_len] = 0;
    const char *p = body;
    unsigned n = 0;
    a->status = 200;
    text_addf(&a->body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DeleteResult>");
    while (next_key(&p, key, sizeof(key))) {
        n++;
        if (rule && *rule->omit && strstr(key, rule->omit))
            continue;
        bool kept = rule && *rule->keep && strstr(key, rule->keep);
        text_addf(&a->body, kept ? "<Error><Key>" : "<Deleted><Key>");
        xml_escape(&a->body, key);
        if (kept)
            text_addf(&a->body, "</Key><Code>%s</Code><Message>Told to keep it</Message></Error>",
                      *rule->code ? rule->code : "InternalError");
        else
            text_addf(&a->body, "</Key></Deleted>");
        if (!kept)
            object_delete(fs, key);
    }
    text_addf(&a->body, "</DeleteResult>");
    free(body);
    if (!n || n > 1000)
        error_answer(a, 400, "MalformedXML", "No key, or more than 1000", "");
    else if (!header_of(r, "content-md5"))
        error_answer(a, 400, "InvalidRequest", "Missing Content-MD5", "");
}

static bool condition_holds(struct s3fs *fs, const struct request *r)
{
    bool found = false;
    if (header_of(r, "if-none-match"))
        (void)object_find(fs, r->path, &found);
    return !found;
}

void serve(struct s3fs *fs, const struct request *r, const struct rule *rule, struct answer *a)
{
    if (!r->in_bucket) {
        error_answer(a, 404, "NoSuchBucket", "The specified bucket does not exist", "");
        a->no_body = strcmp(r->method, "HEAD") == 0;
    } else if (!*r->path && strcmp(r->method, "POST") == 0) {
        delete_many(fs, r, rule, a);
    } else if (!*r->path && strcmp(r->method, "GET") == 0) {
        list(fs, r, rule, a);
    } else if (!*r->path && strcmp(r->method, "PUT") == 0) {
        a->status = 200; /* the bucket is there */
    } else if (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0) {
        get_object(fs, r, rule, a);
    } else if (strcmp(r->method, "PUT") == 0 && !condition_holds(fs, r)) {
        error_answer(a, 412, "PreconditionFailed", "There is such an object", "");
    } else if (strcmp(r->method, "PUT") == 0) {
        bool found;
        object_put(fs, r->path, r->body, r->body_len);
        size_t at = object_find(fs, r->path, &found);
        a->status = 200;
        text_addf(&a->headers, "ETag: \"%s\"\r\n", fs->objects[at].etag);
    } else if (strcmp(r->method, "DELETE") == 0) {
        object_delete(fs, r->path);
        a->status = 204;
    } else {
        error_answer(a, 405, "MethodNotAllowed", "Not here", "");
    }
}
