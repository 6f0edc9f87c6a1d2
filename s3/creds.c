#include "s3/creds.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "s3/retry.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define AHEAD_NS       (300 * NS_PER_S) /* renewed this long before the end, at the latest */
#define AGAIN_NS       (10 * NS_PER_S)  /* after a renewal that failed */
#define REFUSED_GAP_NS NS_PER_S

struct s3_credentials {
    struct s3_creds_env env; /* read only */
    struct http_pool *pool;
    struct cairn_cancel *stopping; /* ends a load */
    pthread_t thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t cond;
    bool stop, wanted;
    unsigned long begun, ended; /* loads */
    bool have;
    struct s3_creds creds;
    enum s3_creds_source source;
    int64_t renew_ns;         /* CLOCK_MONOTONIC; INT64_MAX: never by itself */
    int64_t loaded_ns;        /* CLOCK_MONOTONIC, of the last load that ended */
    struct cairn_error error; /* of the last load, if it failed */
    int rc;
};

static bool usable_locked(const struct s3_credentials *c)
{
    return c->have &&
           (c->creds.expires_ns == CREDS_NEVER || clock_realtime() < c->creds.expires_ns);
}

static bool same(const struct s3_creds *a, const struct s3_creds *b)
{
    return strcmp(a->access_key, b->access_key) == 0 && strcmp(a->secret, b->secret) == 0 &&
           strcmp(a->token ? a->token : "", b->token ? b->token : "") == 0;
}

static int64_t renew_time(const struct s3_creds *creds)
{
    if (creds->expires_ns == CREDS_NEVER)
        return INT64_MAX;
    int64_t left = creds->expires_ns - clock_realtime();
    if (left <= 0)
        return clock_add(clock_monotonic(), AGAIN_NS);
    /* Short-lived ones when three quarters of what is left are over. */
    int64_t ahead = left / 4 < AHEAD_NS ? left / 4 : AHEAD_NS;
    return clock_add(clock_monotonic(), left - ahead);
}

static void install_locked(struct s3_credentials *c, struct s3_creds *fresh)
{
    unsigned generation = c->creds.generation;
    if (!c->have || !same(&c->creds, fresh))
        generation++;
    s3_creds_release(&c->creds);
    c->creds = *fresh;
    c->creds.generation = generation;
    c->have = true;
    c->renew_ns = renew_time(&c->creds);
}

/* One load, with the lock given up meanwhile. */
static void load_locked(struct s3_credentials *c)
{
    enum s3_creds_source known = c->source, source = CREDS_NONE;
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE, .cancel = c->stopping};
    struct s3_creds fresh = {0};
    struct cairn_error err = {0};
    c->wanted = false;
    c->begun++;
    pthread_mutex_unlock(&c->lock);

    int rc = s3_creds_load(&c->env, c->pool, &op, known, &fresh, &source, &err);
    if (rc && rc != CAIRN_CANCELLED)
        log_line(LOG_LEVEL_WARNING, "S3 credentials: %s", err.message);

    pthread_mutex_lock(&c->lock);
    c->ended++;
    c->loaded_ns = clock_monotonic();
    c->rc = rc;
    if (rc) {
        c->error = err;
        c->renew_ns = c->have ? clock_add(clock_monotonic(), AGAIN_NS) : INT64_MAX;
    } else {
        c->source = source;
        install_locked(c, &fresh);
    }
    pthread_cond_broadcast(&c->cond);
}

static void *renewer(void *arg)
{
    struct s3_credentials *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (c->wanted || clock_monotonic() >= c->renew_ns) {
            load_locked(c);
        } else if (c->renew_ns == INT64_MAX) {
            pthread_cond_wait(&c->cond, &c->lock);
        } else {
            struct timespec ts = {.tv_sec = c->renew_ns / NS_PER_S,
                                  .tv_nsec = c->renew_ns % NS_PER_S};
            pthread_cond_timedwait(&c->cond, &c->lock, &ts);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int s3_credentials_new(struct s3_creds_env *env, struct s3_credentials **out,
                       struct cairn_error *err)
{
    struct http_config http = {.direct = true, .connect_ns = NS_PER_S, .keep = 1};
    struct s3_credentials *c = calloc(1, sizeof(*c));
    if (!c) {
        s3_creds_env_release(env);
        return error_oom(err, "credentials");
    }
    c->env = *env;
    *env = (struct s3_creds_env){0};
    c->renew_ns = INT64_MAX;
    pthread_mutex_init(&c->lock, NULL);
    op_cond_init(&c->cond);
    int rc = http_pool_new(&http, &c->pool, err);
    if (!rc)
        rc = cairn_cancel_new(&c->stopping, err);
    if (!rc) {
        int e = thread_start(&c->thread, renewer, c);
        if (e)
            rc = error_sys(err, e, "starting the thread for S3 credentials");
    }
    if (!rc) {
        *out = c;
        return CAIRN_OK;
    }
    cairn_cancel_free(c->stopping);
    http_pool_free(c->pool);
    s3_creds_env_release(&c->env);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return rc;
}

void s3_credentials_free(struct s3_credentials *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->lock);
    cairn_cancel_fire(c->stopping);
    pthread_join(c->thread, NULL);
    cairn_cancel_free(c->stopping);
    http_pool_free(c->pool);
    s3_creds_release(&c->creds);
    s3_creds_env_release(&c->env);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Until a load that began after this call, or is running now, has ended. */
static int wait_load_locked(struct s3_credentials *c, struct op_waiter *w, struct cairn_error *err)
{
    unsigned long until = c->ended + 1;
    if (c->begun == c->ended) {
        c->wanted = true;
        pthread_cond_broadcast(&c->cond);
    }
    int rc = CAIRN_OK;
    while (!rc && c->ended < until)
        rc = op_wait_locked(w, "waiting for S3 credentials", err);
    return rc;
}

static int copy_locked(const struct s3_credentials *c, struct s3_creds *out,
                       struct cairn_error *err)
{
    *out = (struct s3_creds){.access_key = strdup(c->creds.access_key),
                             .secret = strdup(c->creds.secret),
                             .token = c->creds.token ? strdup(c->creds.token) : NULL,
                             .expires_ns = c->creds.expires_ns,
                             .generation = c->creds.generation};
    if (out->access_key && out->secret && (out->token || !c->creds.token))
        return CAIRN_OK;
    s3_creds_release(out);
    return error_oom(err, "credentials");
}

int s3_credentials_get(struct s3_credentials *c, const struct cairn_op *op, struct s3_creds *out,
                       struct cairn_error *err)
{
    struct op_waiter w;
    *out = (struct s3_creds){0};
    op_waiter_add(&w, op, &c->lock, &c->cond);
    pthread_mutex_lock(&c->lock);
    int rc = usable_locked(c) ? CAIRN_OK : wait_load_locked(c, &w, err);
    if (!rc && usable_locked(c))
        rc = copy_locked(c, out, err);
    else if (!rc && c->rc)
        rc = error_pass(err, &c->error);
    else if (!rc)
        rc = error_set(err, CAIRN_TRANSIENT, EACCES,
                       "the S3 credentials that were found have ended");
    pthread_mutex_unlock(&c->lock);
    op_waiter_remove(&w);
    return rc;
}

int s3_credentials_refused(struct s3_credentials *c, const struct cairn_op *op, unsigned generation,
                           bool *changed, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &c->lock, &c->cond);
    pthread_mutex_lock(&c->lock);
    /* Many callers may be refused at once, and again and again. One load that began after all of
     * them came serves them all, and there is at most one a second. */
    unsigned long enough = c->begun + 1;
    while (!rc && c->creds.generation == generation && c->ended < enough) {
        int64_t until = c->ended ? c->loaded_ns + REFUSED_GAP_NS : 0;
        if (c->begun == c->ended && clock_monotonic() < until) {
            pthread_mutex_unlock(&c->lock);
            rc = s3_sleep_until(op, until, "waiting for S3 credentials", err);
            pthread_mutex_lock(&c->lock);
        } else {
            rc = wait_load_locked(c, &w, err);
        }
    }
    if (!rc && c->creds.generation == generation && c->rc)
        rc = error_pass(err, &c->error);
    *changed = c->creds.generation != generation;
    pthread_mutex_unlock(&c->lock);
    op_waiter_remove(&w);
    return rc;
}

unsigned long s3_credentials_loads(struct s3_credentials *c)
{
    pthread_mutex_lock(&c->lock);
    unsigned long n = c->begun;
    pthread_mutex_unlock(&c->lock);
    return n;
}
