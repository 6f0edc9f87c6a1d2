#include "service/forks.h"

#include "base/util.h"
#include "service/meta_field.h"
#include "service/metrics.h"
#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* At once; the others wait, each on a thread of LANE_WAIT, in no order. */
#define FORKS_AT_ONCE 8

struct forks {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t less;  /* running became less */
    unsigned running;
    uint64_t forks, failed;
};

static int start(struct service *s, void **self, struct cairn_error *err)
{
    (void)s;
    struct forks *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "forks");
    pthread_mutex_init(&f->lock, NULL);
    op_cond_init(&f->less);
    *self = f;
    return CAIRN_OK;
}

static void stop(void *self)
{
    struct forks *f = self;
    pthread_cond_destroy(&f->less);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static void metrics(void *self, struct metrics_text *out)
{
    struct forks *f = self;
    pthread_mutex_lock(&f->lock);
    uint64_t done = f->forks, failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    metrics_head(out, "cairn_forks_total", "counter", "Forks that ended, by outcome.");
    metrics_u64(out, "cairn_forks_total", "outcome=\"done\"", done);
    metrics_u64(out, "cairn_forks_total", "outcome=\"failed\"", failed);
}

const struct part forks_part = {.name = "forks", .start = start, .metrics = metrics, .stop = stop};

static int enter(struct forks *f, const struct cairn_op *op, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &f->lock, &f->less);
    pthread_mutex_lock(&f->lock);
    while (!rc && f->running >= FORKS_AT_ONCE)
        rc = op_wait_locked(&w, "waiting for other forks", err);
    if (!rc)
        f->running++;
    pthread_mutex_unlock(&f->lock);
    op_waiter_remove(&w);
    return rc;
}

static void leave(struct forks *f, int rc)
{
    pthread_mutex_lock(&f->lock);
    f->running--;
    *(rc ? &f->failed : &f->forks) += 1;
    pthread_cond_signal(&f->less);
    pthread_mutex_unlock(&f->lock);
}

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
        rc = meta_field(meta, &bytes, err);
    if (rc)
        return rc;
    request_shorten(r, seconds);
    struct forks *f = service_part(r->service, &forks_part);
    char gen[GEN_TEXT];
    rc = enter(f, &r->op, err);
    if (rc)
        return rc;
    rc = cairn_fork(service_store(r->service), &r->op, r->id, new_id, bytes.data, bytes.len, gen,
                    err);
    leave(f, rc);
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
