#include "cli/remote.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PATH_BYTES ((size_t)32 * 1024)

static const char *text_of(const struct jval *v, const char *name)
{
    const char *t = jval_str(jval_get(v, name));
    return t ? t : "";
}

static uint64_t number_of(const struct jval *v, const char *name)
{
    int64_t n = 0;
    return jval_int(jval_get(v, name), &n) && n > 0 ? (uint64_t)n : 0;
}

/* "2026-11-29T19:09:19.123456789Z", as the service writes it; 0: something else. */
static int64_t time_of(const struct jval *v, const char *name)
{
    struct tm tm = {0};
    long ns = 0;
    if (sscanf(text_of(v, name), "%d-%d-%dT%d:%d:%d.%9ldZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ns) != 7)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return clock_add((int64_t)timegm(&tm) * NS_PER_S, ns);
}

static int error_of(const struct jval *e, struct cairn_list_entry *out)
{
    const char *name = text_of(e, "class");
    out->error_class = CAIRN_INTERNAL;
    for (int c = CAIRN_NOT_FOUND; c <= CAIRN_INTERNAL; c++)
        if (strcmp(cairn_class_name(c), name) == 0)
            out->error_class = c;
    out->error_message = text_of(e, "message");
    return out->error_class;
}

static void entry_of(const struct jval *v, struct cairn_list_entry *out)
{
    bool held = false;
    (void)jval_bool(jval_get(v, "held"), &held);
    *out = (struct cairn_list_entry){.id = text_of(v, "id"),
                                     .error_message = "",
                                     .gen = text_of(v, "gen"),
                                     .digest = text_of(v, "digest"),
                                     .created_ns = time_of(v, "created"),
                                     .logical_bytes = number_of(v, "logical_bytes"),
                                     .stored_bytes = number_of(v, "stored_bytes"),
                                     .files = number_of(v, "files"),
                                     .held = held};
    const struct jval *e = jval_get(v, "error");
    if (e)
        (void)error_of(e, out);
}

struct listing {
    uint64_t left; /* records that are still wanted; UINT64_MAX: all */
    char after[512];
    bool over;
};

static int page_path(const struct listing *l, const char *prefix, struct buf *out,
                     struct cairn_error *err)
{
    uint64_t limit = l->left < 1000 ? l->left : 1000;
    int rc = buf_addf(out, err, "/v1/records?limit=%" PRIu64, limit);
    if (!rc && prefix)
        rc = buf_addf(out, err, "&prefix=");
    if (!rc && prefix)
        rc = http_client_escape(out, prefix, false, err);
    if (!rc && *l->after)
        rc = buf_addf(out, err, "&after=");
    if (!rc && *l->after)
        rc = http_client_escape(out, l->after, false, err);
    return rc ? rc : buf_add(out, "", 1, err);
}

static int one_page(struct http_client *c, const struct cairn_op *op, const char *prefix,
                    struct listing *l, int (*fn)(void *ctx, const struct cairn_list_entry *entry),
                    void *ctx, struct cairn_error *err)
{
    CLEANUP_BUF struct buf path = BUF_INIT(PATH_BYTES);
    CLEANUP_JVAL struct jval *page = NULL;
    int rc = page_path(l, prefix, &path, err);
    if (!rc)
        rc = http_client_json(c, op, "GET", (const char *)path.data, NULL, &page, err);
    if (rc)
        return rc;
    const struct jval *records = jval_get(page, "records");
    for (size_t i = 0; i < jval_len(records) && !l->over; i++) {
        struct cairn_list_entry e;
        entry_of(jval_at(records, i), &e);
        if (l->left != UINT64_MAX)
            l->left--;
        l->over = fn(ctx, &e) != 0 || !l->left;
    }
    const char *next = jval_str(jval_get(page, "next"));
    l->over |= !next;
    snprintf(l->after, sizeof(l->after), "%s", next ? next : "");
    return CAIRN_OK;
}

int remote_list(struct http_client *c, const struct cairn_op *op,
                const struct cairn_list_options *options,
                int (*fn)(void *ctx, const struct cairn_list_entry *entry), void *ctx,
                struct cairn_error *err)
{
    struct listing l = {.left = options->limit ? options->limit : UINT64_MAX};
    if (options->after && strlen(options->after) >= sizeof(l.after))
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG, "\"after\" is longer than any id");
    snprintf(l.after, sizeof(l.after), "%s", options->after ? options->after : "");
    while (!l.over) {
        int rc = one_page(c, op, options->prefix, &l, fn, ctx, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int remote_delete(struct http_client *c, const struct cairn_op *op, const char *id,
                  struct cairn_error *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/v1/records/%s", id);
    return http_client_ask(c, op, "DELETE", path, NULL, NULL, NULL, err);
}

int remote_hold(struct http_client *c, const struct cairn_op *op, const char *id, bool held,
                struct cairn_error *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/v1/records/%s/%s", id, held ? "hold" : "release");
    return http_client_ask(c, op, "POST", path, NULL, NULL, NULL, err);
}

int remote_fork(struct http_client *c, const struct cairn_op *op, const char *id,
                const char *new_id, const void *meta, size_t meta_len, char gen[CAIRN_GEN_TEXT],
                struct cairn_error *err)
{
    char path[128];
    CLEANUP_BUF struct buf body = BUF_INIT(8 * (size_t)CAIRN_META_MAX);
    CLEANUP_JVAL struct jval *answer = NULL;
    if (meta && !util_is_utf8(meta, meta_len))
        return error_set(err, CAIRN_INVALID, EILSEQ,
                         "a meta that is no UTF-8 text cannot go through the service");
    struct jsonw w = JSONW_INIT(&body, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "new_id", new_id);
    if (meta)
        jsonw_strn(&w, "meta", meta, meta_len);
    jsonw_object_end(&w);
    int rc = jsonw_end(&w);
    snprintf(path, sizeof(path), "/v1/records/%s/fork", id);
    if (!rc)
        rc = http_client_json(c, op, "POST", path, &body, &answer, err);
    if (!rc)
        snprintf(gen, CAIRN_GEN_TEXT, "%s", text_of(answer, "gen"));
    return rc;
}

/* The bytes of a member that may be any: name, or where they are no UTF-8, name_hex. */
static int bytes_of(struct remote_record *r, const struct jval *v, const char *name,
                    const char **text, size_t *len, struct cairn_error *err)
{
    char key[64];
    snprintf(key, sizeof(key), "%s_hex", name);
    const char *hex = jval_str(jval_get(v, key));
    *text = text_of(v, name);
    *len = strlen(*text);
    if (!hex)
        return CAIRN_OK;
    struct buf *b = &r->bytes[r->n_bytes++];
    size_t n = strlen(hex) / 2;
    *b = BUF_INIT(n + 1);
    int rc = buf_reserve(b, n + 1, err);
    if (rc)
        return rc;
    if (strlen(hex) % 2 || !util_unhex(hex, b->data, n))
        return error_set(err, CAIRN_TRANSIENT, 0, "the service's answer: %s is no hex text", key);
    b->data[n] = 0;
    *text = (const char *)b->data;
    *len = n;
    return CAIRN_OK;
}

static int files_of(struct remote_record *r, const struct jval *files, struct cairn_error *err)
{
    for (size_t i = 0; i < jval_len(files); i++) {
        const struct jval *v = jval_at(files, i);
        size_t len;
        int rc = bytes_of(r, v, "path", &r->files[i].path, &len, err);
        if (rc)
            return rc;
        r->files[i].size = number_of(v, "size");
        r->files[i].data_bytes = number_of(v, "data_bytes");
    }
    return CAIRN_OK;
}

int remote_show(struct http_client *c, const struct cairn_op *op, const char *id,
                struct remote_record *out, struct cairn_error *err)
{
    char path[128];
    *out = (struct remote_record){0};
    snprintf(path, sizeof(path), "/v1/records/%s", id);
    int rc = http_client_json(c, op, "GET", path, NULL, &out->answer, err);
    if (rc)
        return rc;
    const struct jval *v = out->answer, *files = jval_get(v, "files");
    size_t n = jval_len(files);
    out->files = calloc(n + 1, sizeof(*out->files));
    out->bytes = calloc(n + 1, sizeof(*out->bytes));
    if (!out->files || !out->bytes)
        return error_oom(err, "record");
    const char *meta;
    out->info = (struct cairn_record_info){
        .id = text_of(v, "id"),
        .gen = text_of(v, "gen"),
        .parent_id = text_of(jval_get(v, "parent"), "id"),
        .parent_gen = text_of(jval_get(v, "parent"), "gen"),
        .digest = text_of(v, "digest"),
        .created_ns = time_of(v, "created"),
        .logical_bytes = number_of(v, "logical_bytes"),
        .data_bytes = number_of(v, "data_bytes"),
        .stored_bytes = number_of(v, "stored_bytes"),
        .files = n,
        .chunks = number_of(v, "chunks"),
    };
    rc = bytes_of(out, v, "meta", &meta, &out->info.meta_len, err);
    out->info.meta = meta;
    return rc ? rc : files_of(out, files, err);
}

void remote_record_release(struct remote_record *r)
{
    for (size_t i = 0; i < r->n_bytes; i++)
        buf_release(&r->bytes[i]);
    free(r->bytes);
    free(r->files);
    jval_free(r->answer);
    *r = (struct remote_record){0};
}

int remote_cat(struct http_client *c, const struct cairn_op *op, const char *id, const char *path,
               http_sink *sink, void *ctx, struct cairn_error *err)
{
    CLEANUP_BUF struct buf url = BUF_INIT(PATH_BYTES);
    int rc = buf_addf(&url, err, "/v1/records/%s/files/", id);
    if (!rc)
        rc = http_client_escape(&url, path, true, err);
    if (!rc)
        rc = buf_add(&url, "", 1, err);
    return rc ? rc : http_client_ask(c, op, "GET", (const char *)url.data, NULL, sink, ctx, err);
}
