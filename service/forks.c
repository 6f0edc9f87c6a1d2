#include "service/forks.h"

#include "base/util.h"
#include "service/meta_field.h"
#include "service/metrics.h"
#include "store/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct forks {
    atomic_uint_fast64_t done, failed;
};

static int start(struct service *s, void **self, struct cairn_error *err)
{
    (void)s;
    struct forks *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "forks");
    *self = f;
    return CAIRN_OK;
}

static void stop(void *self)
{
    free(self);
}

static void metrics(void *self, struct metrics_text *out)
{
    struct forks *f = self;
    metrics_head(out, "cairn_forks_total", "counter", "Forks that ended, by outcome.");
    metrics_u64(out, "cairn_forks_total", "outcome=\"done\"", atomic_load(&f->done));
    metrics_u64(out, "cairn_forks_total", "outcome=\"failed\"", atomic_load(&f->failed));
}

const struct part forks_part = {.name = "forks", .start = start, .metrics = metrics, .stop = stop};

int forks_fork(struct request *r, struct response *out, struct cairn_error *err)
{
    const char *new_id = NULL;
    const struct jval *meta = NULL;
    double seconds = -1;
    CLEANUP_BUF struct buf bytes = {0};
    const struct field fields[] = {
        {"new_id", FIELD_ID, &new_id, true},
        {"meta", FIELD_JSON, &meta, false},
        {"timeout_seconds", FIELD_SECONDS, &seconds, false},
    };
    int rc = request_fields(r, fields, ARRAY_SIZE(fields), err);
    if (!rc && meta)
        rc = meta_field(r, meta, &bytes, err);
    if (rc)
        return rc;
    request_shorten(r, seconds);
    struct forks *f = service_part(r->service, &forks_part);
    char gen[GEN_TEXT];
    rc = cairn_fork(service_store(r->service), &r->op, r->id, new_id, bytes.data, bytes.len, gen,
                    err);
    atomic_fetch_add(rc ? &f->failed : &f->done, 1);
    if (rc)
        return rc;
    out->status = 201;
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", new_id);
    jsonw_str(&w, "gen", gen);
    jsonw_str(&w, "parent", r->id);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static int answer(struct request *r, struct response *out, bool held, struct cairn_error *err)
{
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", r->id);
    jsonw_bool(&w, "held", held);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

int forks_hold(struct request *r, struct response *out, struct cairn_error *err)
{
    int rc = request_fields(r, NULL, 0, err);
    if (!rc)
        rc = cairn_hold(service_store(r->service), &r->op, r->id, err);
    return rc ? rc : answer(r, out, true, err);
}

int forks_release(struct request *r, struct response *out, struct cairn_error *err)
{
    int rc = request_fields(r, NULL, 0, err);
    if (!rc)
        rc = cairn_release(service_store(r->service), &r->op, r->id, err);
    return rc ? rc : answer(r, out, false, err);
}
