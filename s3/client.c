#include "s3/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "s3/counts.h"
#include "s3/retry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOVES_MAX 3 /* changes of region or endpoint within one call */
/* Bytes that an attempt has to hand on before it breaks off, so that patience begins anew. */
#define PROGRESS_MIN 65536u

static const char *verb_name(const struct s3_request *req)
{
    static const char *const names[] = {"GET", "PUT", "HEAD", "LIST", "DELETE", "DELETE"};
    return names[req->verb];
}

/* One call on its way to an answer. */
struct call {
    struct s3_client *client;
    const struct cairn_op *op;
    const struct s3_request *req;
    struct s3_result *res;
    struct s3_retry retry;
    char what[300]; /* "GET records/…" */
    char last[320]; /* how the last attempt that was answered failed */
    bool refreshed, skewed;
    int moves;
    unsigned unanswered;
};

static void describe(struct call *k)
{
    s3_describe(&k->res->outcome, k->last, sizeof(k->last));
    if (k->res->outcome.fault.region[0]) {
        size_t n = strlen(k->last);
        snprintf(k->last + n, sizeof(k->last) - n, ", the bucket is in region %s",
                 k->res->outcome.fault.region);
    }
}

/* The error of the whole call. why: NULL, or what ended it in place of an answer. */
static int give_up(struct call *k, int error_class, int sys_errno, const char *why,
                   struct cairn_error *err)
{
    char attempts[64] = "";
    if (k->retry.attempts > 1)
        snprintf(attempts, sizeof(attempts), ", %u attempts in %.1f s", k->retry.attempts,
                 (double)(clock_monotonic() - k->retry.start_ns) / (double)NS_PER_S);
    if (why && k->last[0])
        return error_set(err, error_class, sys_errno, "%s: %s%s; last: %s", k->what, why, attempts,
                         k->last);
    return error_set(err, error_class, sys_errno, "%s: %s%s", k->what, why ? why : k->last,
                     attempts);
}

static int op_ended(struct call *k, const struct cairn_error *e, struct cairn_error *err)
{
    return give_up(k, e->error_class, e->sys_errno,
                   e->error_class == CAIRN_CANCELLED ? "cancelled" : "deadline passed", err);
}

/* A page is what was asked for: every key behind the prefix, each greater than the one before. */
static bool page_in_order(const struct s3_request *req)
{
    size_t n = strlen(req->key);
    const char *last = req->after;
    for (size_t i = 0; i < req->page->n; i++) {
        const char *key = req->page->entries[i].key;
        if (strncmp(key, req->key, n) != 0 || (*last && strcmp(key, last) <= 0))
            return false;
        last = key;
    }
    return true;
}

static void check_page(struct call *k)
{
    if (k->req->verb != S3_LIST || page_in_order(k->req))
        return;
    s3_page_release(k->req->page);
    s3_outcome_own(&k->res->outcome, S3_OWN_DISORDER,
                   "a page out of order, or one that was given before");
}

/* What an answer to this very request means. */
static struct s3_verdict judge(const struct call *k)
{
    const struct s3_outcome *o = &k->res->outcome;
    if (k->req->if_absent && !o->local && !o->curl &&
        (o->http == 412 || strcmp(o->fault.code, "PreconditionFailed") == 0))
        return (struct s3_verdict){.error_class = CAIRN_BUSY, .sys_errno = EEXIST};
    return s3_judge(o);
}

/* Of a GET that hands bytes on: what it has not handed on yet. *none: nothing. */
static struct s3_request rest_of(const struct s3_request *req, bool *none)
{
    struct s3_request rest = *req;
    size_t taken = req->sink && req->sink->take ? req->sink->taken : 0;
    *none = taken && taken == req->len;
    rest.off += taken;
    rest.len -= taken;
    return rest;
}

/* One attempt, with its place at the limiter. CAIRN_OK: it was made, look at res. */
static int attempt(struct call *k, struct s3_verdict *v, struct cairn_error *err)
{
    struct s3_client *c = k->client;
    CLEANUP_CREDS struct s3_creds creds = {0};
    struct cairn_error e;
    bool streams = k->req->sink && k->req->sink->take;
    int rc = s3_retry_attempt(&k->retry, k->what, &e);
    if (rc)
        return op_ended(k, &e, err);
    rc = s3_credentials_get(c->creds, k->op, &creds, &e);
    if (rc && rc != CAIRN_TIMEOUT && rc != CAIRN_CANCELLED) {
        /* An outcome like any other: a transient one is tried again. */
        *k->res = (struct s3_result){.date = INT64_MIN};
        s3_outcome_local(&k->res->outcome, rc, e.sys_errno, e.message);
        *v = s3_judge(&k->res->outcome);
        return CAIRN_OK;
    }
    if (!rc)
        rc = s3_limiter_enter(c->limiter, k->op, streams, k->what, &e);
    if (rc)
        return op_ended(k, &e, err);
    *k->res = (struct s3_result){.date = INT64_MIN};
    bool none;
    struct s3_request rest = rest_of(k->req, &none);
    if (none)
        k->res->outcome.http = 206; /* only what came after it was wrong */
    else
        c->ops->attempt(c, k->op, &creds, &rest, k->res);
    k->res->creds_generation = creds.generation;
    *v = judge(k);
    if (v->error_class == CAIRN_OK) {
        check_page(k);
        *v = s3_judge(&k->res->outcome);
    }
    s3_counts_add(k->req->verb, v->error_class);
    s3_limiter_leave(c->limiter, streams,
                     v->hints & S3_HINT_THROTTLE ? S3_LIMITER_THROTTLED
                     : v->error_class == CAIRN_OK || v->error_class == CAIRN_NOT_FOUND
                         ? S3_LIMITER_OK
                         : S3_LIMITER_OTHER);
    return CAIRN_OK;
}

/* What was learnt makes the next attempt another one: send it at once. *end: the op ended. */
static bool adapted(struct call *k, const struct s3_verdict *v, bool *end, struct cairn_error *err)
{
    struct s3_client *c = k->client;
    bool moved = false;
    *end = false;
    if ((v->hints & S3_HINT_REGION) && k->moves < MOVES_MAX && c->ops->adapt) {
        k->moves++;
        moved = c->ops->adapt(c, k->res);
    } else if ((v->hints & S3_HINT_SKEW) && !k->skewed && c->ops->adapt) {
        k->skewed = true;
        moved = c->ops->adapt(c, k->res);
    } else if ((v->hints & S3_HINT_REFRESH) && !k->refreshed) {
        struct cairn_error e;
        k->refreshed = true;
        int rc = s3_credentials_refused(c->creds, k->op, k->res->creds_generation, &moved, &e);
        if (rc == CAIRN_TIMEOUT || rc == CAIRN_CANCELLED) {
            *end = true;
            (void)op_ended(k, &e, err);
            return false;
        }
    }
    return moved;
}

int s3_perform(struct s3_client *c, const struct cairn_op *op, const struct s3_request *req,
               struct s3_result *res, struct cairn_error *err)
{
    struct cairn_error own;
    struct call k = {.client = c, .op = op, .req = req, .res = res};
    if (!err)
        err = &own;
    if (strlen(req->key) > S3_KEY_BYTES_MAX)
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG,
                         "%s %.200s…: a key of more than %d bytes", verb_name(req), req->name,
                         S3_KEY_BYTES_MAX);
    snprintf(k.what, sizeof(k.what), "%s %.256s", verb_name(req), req->name);
    s3_retry_begin(&k.retry, op, c->retry_window_ns);
    for (;;) {
        struct s3_verdict v = {0};
        struct cairn_error e;
        bool end;
        size_t taken = req->sink ? req->sink->taken : 0;
        int rc = attempt(&k, &v, err);
        if (rc || v.error_class == CAIRN_OK)
            return rc;
        if (v.error_class == CAIRN_TIMEOUT || v.error_class == CAIRN_CANCELLED)
            return give_up(&k, v.error_class, v.sys_errno, res->outcome.fault.message, err);
        describe(&k);
        log_line(LOG_LEVEL_DEBUG, "S3 %s: %s", k.what, k.last);
        if (adapted(&k, &v, &end, err))
            continue;
        if (end)
            return err->error_class;
        describe(&k); /* adapt may have found out more */
        k.unanswered += res->outcome.curl != 0;
        if (v.error_class != CAIRN_TRANSIENT || (req->sink && req->sink->refused) ||
            (req->max_unanswered && k.unanswered >= req->max_unanswered))
            return give_up(&k, v.error_class, v.sys_errno, NULL, err);
        /* One that got on is as good as the first. */
        if (req->sink && req->sink->taken - taken >= PROGRESS_MIN)
            s3_retry_begin(&k.retry, op, c->retry_window_ns);
        rc = s3_retry_wait(&k.retry, res->outcome.retry_after_ns, k.what, &e);
        if (rc == CAIRN_TRANSIENT)
            return give_up(&k, v.error_class, v.sys_errno, NULL, err);
        if (rc)
            return op_ended(&k, &e, err);
    }
}

static int make(const struct s3_config *config, const char *region, const char *limiter,
                struct s3_credentials *creds, struct s3_client **out, struct cairn_error *err)
{
    struct s3_client *c = NULL;
    int rc = config->signature == S3_SIGNATURE_V2 ? client_v2_new(config, &c, err)
                                                  : client_v4_new(config, region, &c, err);
    if (rc)
        return rc;
    rc = s3_limiter_get(limiter, config->max_requests ? config->max_requests : S3_MAX_REQUESTS,
                        &c->limiter, err);
    if (rc) {
        c->ops->free(c);
        return rc;
    }
    c->creds = creds;
    c->retry_window_ns = config->retry_window_ns;
    *out = c;
    return CAIRN_OK;
}

int s3_client_new(const struct s3_config *config, struct s3_client **out, struct cairn_error *err)
{
    struct s3_creds_env env;
    struct s3_credentials *creds = NULL;
    CLEANUP_FREE char *region = NULL;
    int rc = s3_config_check(config, err);
    if (!rc)
        rc = s3_creds_env_read(config->profile, &env, err);
    if (rc)
        return rc;
    if (config->region) {
        region = strdup(config->region);
        if (!region)
            rc = error_oom(err, "S3 client");
    } else {
        rc = s3_creds_region(&env, &region, err);
    }
    if (!rc && region && !s3_region_is_valid(region))
        rc = error_set(err, CAIRN_INVALID, EINVAL, "S3: not a region's name: \"%.100s\"", region);
    if (rc) {
        s3_creds_env_release(&env);
        return rc;
    }
    rc = s3_credentials_new(&env, &creds, err);
    if (!rc)
        rc = make(config, region ? region : S3_DEFAULT_REGION,
                  config->endpoint ? config->endpoint : "aws", creds, out, err);
    if (rc)
        s3_credentials_free(creds);
    return rc;
}

void s3_client_free(struct s3_client *c)
{
    if (!c)
        return;
    s3_limiter_put(c->limiter);
    s3_credentials_free(c->creds);
    c->ops->free(c);
}
