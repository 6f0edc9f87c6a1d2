/* Records: a page of them, one, its meta, its end. */
#include "base/jval.h"
#include "base/util.h"
#include "service/core.h"
#include "service/etag.h"
#include "service/route.h"
#include "store/json.h"
#include "store/record_scope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE     1000
#define PAGE_MAX 10000

struct page {
    struct jsonw *w;
    uint64_t left;
    char last[ID_MAX + 1];
    bool more;
};

static int one_entry(void *ctx, const struct cairn_list_entry *e)
{
    struct page *p = ctx;
    if (!p->left) {
        p->more = true;
        return 1;
    }
    p->left--;
    snprintf(p->last, sizeof(p->last), "%s", e->id);
    json_list_entry(p->w, e);
    return p->w->rc;
}

int records_list(struct request *r, struct response *out, struct cairn_error *err)
{
    const char *prefix = NULL, *after = NULL;
    uint64_t limit = PAGE;
    const struct field fields[] = {{"prefix", FIELD_TEXT, &prefix, false},
                                   {"after", FIELD_TEXT, &after, false},
                                   {"limit", FIELD_COUNT, &limit, false}};
    int rc = request_query(r, fields, ARRAY_SIZE(fields), err);
    if (rc)
        return rc;
    if (limit < 1)
        return error_set(err, CAIRN_INVALID, EINVAL, "\"limit\" must be at least 1");
    struct jsonw w = RESPONSE_JSON(out, err);
    struct page page = {.w = &w, .left = limit < PAGE_MAX ? limit : PAGE_MAX};
    /* One more than the page holds tells whether there is another. */
    struct cairn_list_options options = {.prefix = prefix, .after = after, .limit = page.left + 1};
    jsonw_object(&w, NULL);
    jsonw_array(&w, "records");
    rc = cairn_list(service_store(r->service), &r->op, &options, one_entry, &page, err);
    if (rc)
        return rc;
    jsonw_array_end(&w);
    if (page.more)
        jsonw_str(&w, "next", page.last);
    else
        jsonw_null(&w, "next");
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static void json_meta(struct jsonw *w, const struct cairn_record_info *info)
{
    if (jval_is_json(info->meta, info->meta_len))
        jsonw_raw(w, "meta_json", info->meta, info->meta_len);
    jsonw_bytes(w, "meta", info->meta, info->meta_len);
}

static void json_files(struct jsonw *w, const struct cairn_record *record, uint64_t n)
{
    jsonw_array(w, "files");
    for (uint64_t i = 0; i < n && !w->rc; i++) {
        struct cairn_file file;
        cairn_record_file(record, i, &file);
        json_file(w, &file);
    }
    jsonw_array_end(w);
}

/* *known: the client has this generation already, and the answer says so. The record is opened for
 * its meta, too: without its export there is no such record. */
static int open_record(const struct request *r, struct cairn_record **record,
                       struct cairn_record_info *info, struct response *out, bool *known,
                       struct cairn_error *err)
{
    int rc = cairn_record_open(service_store(r->service), &r->op, r->id, record, err);
    if (rc)
        return rc;
    cairn_record_info(*record, info);
    *known = etag_matches(r->if_none_match, info->gen);
    if (*known)
        out->status = 304;
    return response_header(out, err, "ETag", "\"%s\"", info->gen);
}

int records_show(struct request *r, struct response *out, struct cairn_error *err)
{
    CLEANUP_RECORD struct cairn_record *record = NULL;
    struct cairn_record_info info;
    bool known;
    int rc = open_record(r, &record, &info, out, &known, err);
    if (rc || known)
        return rc;
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    json_record(&w, &info);
    json_meta(&w, &info);
    json_files(&w, record, info.files);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

int records_meta(struct request *r, struct response *out, struct cairn_error *err)
{
    CLEANUP_RECORD struct cairn_record *record = NULL;
    struct cairn_record_info info;
    bool known;
    int rc = open_record(r, &record, &info, out, &known, err);
    if (!rc)
        out->content_type = "application/octet-stream";
    return rc || known ? rc : buf_add(&out->body, info.meta, info.meta_len, err);
}

int records_delete(struct request *r, struct response *out, struct cairn_error *err)
{
    int rc = cairn_delete(service_store(r->service), &r->op, r->id, err);
    if (!rc)
        out->status = 204;
    return rc;
}
