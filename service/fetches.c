#include "service/fetches.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "service/bindings.h"
#include "service/metrics.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Who has not said how long is waited for this long: as a flight may run by default. */
#define WAIT_SECONDS 1800.0

/* A fetch of files that are here ends within this; one that does not is counted as waiting, of
 * which there may be so many, each on a thread of LANE_WAIT. */
#define QUICK_SECONDS 0.1
#define WAITING_MAX   768

struct fetches {
    struct service *service;
    struct bindings *bound; /* owned */
    pthread_mutex_t lock;
    pthread_cond_t none; /* releasing became 0 */
    unsigned releasing;  /* jobs; guarded by lock */
    atomic_uint waiting;
    atomic_uint_fast64_t ready, downloaded, failed;
    struct histogram seconds;
};

static int start(struct service *s, void **self, struct cairn_error *err)
{
    struct fetches *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "fetches");
    f->service = s;
    int rc = bindings_new(&f->bound, err);
    if (rc) {
        free(f);
        return rc;
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->none, NULL);
    *self = f;
    return CAIRN_OK;
}

static void stop(void *self)
{
    struct fetches *f = self;
    pthread_mutex_lock(&f->lock);
    while (f->releasing)
        pthread_cond_wait(&f->none, &f->lock);
    pthread_mutex_unlock(&f->lock);
    pthread_cond_destroy(&f->none);
    pthread_mutex_destroy(&f->lock);
    bindings_free(f->bound);
    free(f);
}

/* Gone already is as good. */
static void release(struct fetches *f, const char *lease)
{
    struct cairn_error err;
    int rc = cairn_lease_release(service_store(f->service), lease, &err);
    if (rc && rc != CAIRN_NOT_FOUND)
        log_line(LOG_LEVEL_WARNING, "releasing a lease: %s", err.message);
}

/* The files of a record that was deleted meanwhile go with its last lease: not on the loop. */
struct release_job {
    struct lane_job lane_job; /* first */
    struct fetches *f;
    char lease[CAIRN_LEASE_TEXT];
};

static void run_release(struct lane_job *lane_job)
{
    struct release_job *j = (struct release_job *)lane_job;
    struct fetches *f = j->f;
    release(f, j->lease);
    free(j);
    pthread_mutex_lock(&f->lock);
    if (--f->releasing == 0)
        pthread_cond_broadcast(&f->none);
    pthread_mutex_unlock(&f->lock);
}

static void release_soon(struct fetches *f, const char *lease)
{
    struct cairn_error ignored;
    struct release_job *j = malloc(sizeof(*j));
    if (!j) {
        release(f, lease);
        return;
    }
    *j = (struct release_job){.lane_job.run = run_release, .f = f};
    memcpy(j->lease, lease, sizeof(j->lease));
    pthread_mutex_lock(&f->lock);
    f->releasing++;
    pthread_mutex_unlock(&f->lock);
    if (lane_submit_always(service_lane(f->service, LANE_LOCAL), &j->lane_job, &ignored))
        run_release(&j->lane_job);
}

static void connection_closed(void *self, uint64_t connection)
{
    struct fetches *f = self;
    char lease[CAIRN_LEASE_TEXT];
    while (bindings_take(f->bound, connection, lease))
        release_soon(f, lease);
}

static int count_lease(void *ctx, const struct cairn_lease *l)
{
    (void)l;
    ++*(uint64_t *)ctx;
    return 0;
}

static void metrics(void *self, struct metrics_text *out)
{
    struct fetches *f = self;
    uint64_t leases = 0;
    struct cairn_error err;
    if (!cairn_lease_list(service_store(f->service), count_lease, &leases, &err))
        metrics_one(out, "cairn_leases", "gauge", "Leases on fetched generations.", leases);
    metrics_one(out, "cairn_leases_bound", "gauge", "Leases that end with their connection.",
                bindings_count(f->bound));
    metrics_one(out, "cairn_fetches_waiting", "gauge", "Fetches that wait for a download.",
                atomic_load(&f->waiting));
    metrics_head(out, "cairn_fetches_total", "counter",
                 "Fetches that ended: from files that were here, after a download, failed.");
    metrics_u64(out, "cairn_fetches_total", "outcome=\"ready\"", atomic_load(&f->ready));
    metrics_u64(out, "cairn_fetches_total", "outcome=\"downloaded\"", atomic_load(&f->downloaded));
    metrics_u64(out, "cairn_fetches_total", "outcome=\"failed\"", atomic_load(&f->failed));
    metrics_head(out, "cairn_fetch_ready_seconds", "histogram",
                 "Time of a fetch of files that were here.");
    metrics_histogram(out, "cairn_fetch_ready_seconds", "", &f->seconds);
}

const struct part fetches_part = {.name = "fetches",
                                  .start = start,
                                  .connection_closed = connection_closed,
                                  .metrics = metrics,
                                  .stop = stop};

/* ---- Fetch ----------------------------------------------------------------------------------- */

/* What is given back if nobody hears of it. */
struct pending {
    struct fetches *f;
    char lease[CAIRN_LEASE_TEXT];
};

static void lost(void *ctx)
{
    struct pending *p = ctx;
    bindings_remove(p->f->bound, p->lease);
    release(p->f, p->lease);
}

static int64_t expiry(double seconds)
{
    return clock_add(clock_realtime(), clock_from_seconds(seconds, 0));
}

static int answer_fetch(struct response *out, const struct cairn_fetch_shared_result *res,
                        const char *id, bool bound, struct cairn_error *err)
{
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", id);
    jsonw_str(&w, "gen", res->gen);
    jsonw_bytes(&w, "path", res->path, strlen(res->path));
    jsonw_bytes(&w, "meta", res->meta, res->meta_len);
    if (res->digest[0])
        jsonw_str(&w, "digest", res->digest);
    jsonw_str(&w, "lease", res->lease);
    jsonw_real(&w, "lease_seconds", res->lease_seconds);
    jsonw_time(&w, "expires", expiry(res->lease_seconds));
    jsonw_bool(&w, "bound", bound);
    jsonw_bool(&w, "ready", res->ready);
    jsonw_u64(&w, "logical_bytes", res->logical_bytes);
    jsonw_u64(&w, "data_bytes", res->data_bytes);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

/* Those who wait in vain for a store that hangs must not keep others from files that are here: when
 * too many wait, one more is sent away; its flight has begun, and goes on. */
static int fetch_or_wait(struct fetches *f, const struct request *r,
                         const struct cairn_fetch_shared_options *options,
                         struct cairn_fetch_shared_result *res, struct cairn_error *err)
{
    struct cairn_op quick;
    cairn_op_init(&quick, QUICK_SECONDS, r->op.cancel);
    bool only = r->op.deadline_ns <= quick.deadline_ns;
    int rc = cairn_fetch_shared(service_store(r->service), only ? &r->op : &quick, r->id, options,
                                res, err);
    if (rc != CAIRN_TIMEOUT || only)
        return rc;
    if (atomic_fetch_add(&f->waiting, 1) >= WAITING_MAX)
        rc = error_set(err, CAIRN_TRANSIENT, EAGAIN,
                       "fetch %s: too many wait already; it goes on, ask again", r->id);
    else
        rc = cairn_fetch_shared(service_store(r->service), &r->op, r->id, options, res, err);
    atomic_fetch_sub(&f->waiting, 1);
    return rc;
}

static int fetch(struct fetches *f, struct request *r,
                 const struct cairn_fetch_shared_options *options, bool bind,
                 struct cairn_fetch_shared_result *res, struct response *out,
                 struct cairn_error *err)
{
    int64_t begin = clock_monotonic();
    int rc = fetch_or_wait(f, r, options, res, err);
    atomic_fetch_add(rc ? &f->failed : res->ready ? &f->ready : &f->downloaded, 1);
    if (rc)
        return rc;
    if (res->ready)
        histogram_add(&f->seconds, clock_monotonic() - begin);
    struct pending *p = malloc(sizeof(*p));
    if (!p) {
        release(f, res->lease);
        return error_oom(err, "lease");
    }
    p->f = f;
    memcpy(p->lease, res->lease, sizeof(p->lease));
    /* From here on a lease that is not told to anybody is given back. */
    out->lost = lost;
    out->done = free;
    out->ctx = p;
    out->keep_open = bind;
    if (bind)
        rc = bindings_add(f->bound, r->connection, res->lease, err);
    return rc ? rc : answer_fetch(out, res, r->id, bind, err);
}

int fetches_fetch(struct request *r, struct response *out, struct cairn_error *err)
{
    bool bind = false;
    double seconds = WAIT_SECONDS;
    struct cairn_fetch_shared_options options = {0};
    const struct field fields[] = {
        {"timeout_seconds", FIELD_SECONDS, &seconds, false},
        {"lease_seconds", FIELD_SECONDS, &options.lease_seconds, false},
        {"bind_connection", FIELD_BOOL, &bind, false},
    };
    int rc = request_fields(r, fields, ARRAY_SIZE(fields), err);
    if (rc)
        return rc;
    request_shorten(r, seconds);
    struct cairn_fetch_shared_result res = {0};
    rc = fetch(service_part(r->service, &fetches_part), r, &options, bind, &res, out, err);
    cairn_fetch_shared_result_release(&res);
    return rc;
}

/* ---- Leases ---------------------------------------------------------------------------------- */

static void lease_json(struct jsonw *w, const struct cairn_lease *l)
{
    jsonw_object(w, NULL);
    jsonw_str(w, "lease", l->lease);
    jsonw_str(w, "id", l->id);
    jsonw_str(w, "gen", l->gen);
    jsonw_bytes(w, "path", l->path, strlen(l->path));
    jsonw_real(w, "lease_seconds", l->seconds_left);
    jsonw_time(w, "expires", expiry(l->seconds_left));
    jsonw_object_end(w);
}

static int answer_lease(struct response *out, const struct cairn_lease *l, struct cairn_error *err)
{
    struct jsonw w = RESPONSE_JSON(out, err);
    lease_json(&w, l);
    return jsonw_end(&w);
}

/* The store knows no lease of another form, and its messages need not repeat any text. */
static int check_lease(const char *lease, struct cairn_error *err)
{
    uint8_t bytes[(CAIRN_LEASE_TEXT - 1) / 2];
    if (util_unhex(lease, bytes, sizeof(bytes)))
        return CAIRN_OK;
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such lease");
}

static int add_lease(void *ctx, const struct cairn_lease *l)
{
    lease_json(ctx, l);
    return 0;
}

int fetches_leases(struct request *r, struct response *out, struct cairn_error *err)
{
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_array(&w, "leases");
    int rc = cairn_lease_list(service_store(r->service), add_lease, &w, err);
    if (rc)
        return rc;
    jsonw_array_end(&w);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

int fetches_look(struct request *r, struct response *out, struct cairn_error *err)
{
    struct cairn_lease l;
    int rc = check_lease(r->rest, err);
    if (!rc)
        rc = cairn_lease_find(service_store(r->service), r->rest, &l, err);
    return rc ? rc : answer_lease(out, &l, err);
}

int fetches_renew(struct request *r, struct response *out, struct cairn_error *err)
{
    struct cairn_lease l;
    double seconds = 0;
    const struct field fields[] = {{"lease_seconds", FIELD_SECONDS, &seconds, false}};
    int rc = request_fields(r, fields, ARRAY_SIZE(fields), err);
    if (!rc)
        rc = check_lease(r->rest, err);
    if (!rc)
        rc = cairn_lease_renew(service_store(r->service), r->rest, seconds, &l, err);
    return rc ? rc : answer_lease(out, &l, err);
}

int fetches_release(struct request *r, struct response *out, struct cairn_error *err)
{
    struct fetches *f = service_part(r->service, &fetches_part);
    int rc = check_lease(r->rest, err);
    if (!rc) {
        bindings_remove(f->bound, r->rest);
        rc = cairn_lease_release(service_store(r->service), r->rest, err);
    }
    if (rc && rc != CAIRN_NOT_FOUND)
        return rc;
    /* One that is gone is released: a client whose answer got lost may ask again. */
    out->status = 204;
    return CAIRN_OK;
}
