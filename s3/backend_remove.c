#include "s3/backend_remove.h"

#include "base/util.h"
#include "s3/retry.h"

#include <stdio.h>
#include <string.h>

/* The keys of one batch that are still to be deleted, and what became of the others. */
struct batch {
    struct s3_client *client;
    const struct cairn_op *op;
    size_t n;
    char **full;             /* owned, keys in the bucket */
    const char *const *name; /* as the caller knows them */
    bool *gone;
    /* of the whole call */
    size_t *n_failed;
    struct cairn_error *first; /* the first failure */
};

static void note(struct batch *b, const struct cairn_error *e)
{
    if ((*b->n_failed)++ == 0)
        *b->first = *e;
}

static void remove_one(struct batch *b, size_t i)
{
    struct s3_request req = {.verb = S3_DELETE, .key = b->full[i], .name = b->name[i]};
    struct s3_result res;
    struct cairn_error e;
    int rc = s3_key_check(b->name[i], &e);
    if (!rc)
        rc = s3_perform(b->client, b->op, &req, &res, &e);
    b->gone[i] = !rc || rc == CAIRN_NOT_FOUND;
    if (!b->gone[i])
        note(b, &e);
}

/* What the answer says of one key. 0: gone; transient: worth asking again; else it failed. */
static int judge_key(const struct s3_deleted *d, const char *name, struct cairn_error *e)
{
    if (!d->told)
        return error_set(e, CAIRN_TRANSIENT, 0, "DELETE %.200s: the answer does not name it", name);
    if (!d->fault.code[0])
        return CAIRN_OK;
    /* A code that is not known is a server's failure, as in any 200. */
    struct s3_outcome o = {.http = 200, .fault = d->fault};
    struct s3_verdict v = s3_judge(&o);
    if (v.error_class == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    return error_set(e, v.error_class, v.sys_errno, "DELETE %.200s: %s (%s)", name, d->fault.code,
                     d->fault.message[0] ? d->fault.message : "no detail");
}

/* A gateway may fall over a request for many keys (Ceph 16.2.15 does, now and then, in
 * RGWDeleteMultiObj, unless rgw_multi_obj_del_max_aio is 1): after so many that were not answered
 * the keys are asked for one by one. */
#define UNANSWERED_MAX 2

/* One DeleteObjects of the keys in todo. Those that are worth asking again are kept in todo; *last
 * is what was said of the last of them. */
static int ask_once(struct batch *b, size_t *todo, size_t *n_todo, struct s3_deleted *deleted,
                    const char **keys, bool *unanswered, struct cairn_error *last)
{
    char what[64];
    size_t again = 0, n = *n_todo;
    struct s3_result res = {.date = 0};
    for (size_t i = 0; i < n; i++)
        keys[i] = b->full[todo[i]];
    snprintf(what, sizeof(what), "of %zu keys (first ", n);
    CLEANUP_FREE char *name = NULL;
    if (asprintf(&name, "%s%.200s)", what, b->name[todo[0]]) < 0) {
        name = NULL;
        return error_oom(last, "delete");
    }
    struct s3_request req = {.verb = S3_DELETE_MANY,
                             .key = "",
                             .name = name,
                             .keys = keys,
                             .n = n,
                             .deleted = deleted,
                             .max_unanswered = UNANSWERED_MAX};
    int rc = s3_perform(b->client, b->op, &req, &res, last);
    *unanswered = rc == CAIRN_TRANSIENT && res.outcome.curl;
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct cairn_error e;
        rc = judge_key(&deleted[i], b->name[todo[i]], &e);
        if (!rc) {
            b->gone[todo[i]] = true;
        } else if (rc == CAIRN_TRANSIENT) {
            *last = e;
            todo[again++] = todo[i];
        } else {
            note(b, &e);
        }
    }
    *n_todo = again;
    return CAIRN_OK;
}

/* todo: the keys that XML can hold. */
static void remove_many(struct batch *b, size_t *todo, size_t n_todo)
{
    CLEANUP_FREE struct s3_deleted *deleted = calloc(n_todo, sizeof(*deleted));
    CLEANUP_FREE const char **keys = calloc(n_todo, sizeof(*keys));
    struct cairn_error last;
    struct s3_retry retry;
    int rc = deleted && keys ? CAIRN_OK : error_oom(&last, "delete");
    s3_retry_begin(&retry, b->op, b->client->retry_window_ns);
    while (!rc && n_todo) {
        struct cairn_error e;
        bool unanswered = false;
        rc = ask_once(b, todo, &n_todo, deleted, keys, &unanswered, &last);
        if (unanswered) {
            for (size_t i = 0; i < n_todo; i++)
                remove_one(b, todo[i]);
            return;
        }
        if (rc || !n_todo)
            break;
        retry.attempts++;
        rc = s3_retry_wait(&retry, 0, "DELETE", &e);
        if (rc && rc != CAIRN_TRANSIENT)
            last = e;
    }
    for (size_t i = 0; i < n_todo; i++)
        note(b, &last);
}

static void remove_batch(struct batch *b)
{
    size_t todo[S3_DELETE_KEYS], n_todo = 0;
    bool many = b->client->ops->deletes_many && b->n > 1;
    for (size_t i = 0; i < b->n; i++)
        if (many && xml_can_hold(b->full[i]) && !s3_key_check(b->name[i], NULL))
            todo[n_todo++] = i;
        else
            remove_one(b, i);
    if (n_todo == 1)
        remove_one(b, todo[0]);
    else if (n_todo)
        remove_many(b, todo, n_todo);
}

int s3_remove_keys(struct s3_client *c, const struct cairn_op *op, const char *prefix,
                   const char *const *keys, size_t n, bool *failed, struct cairn_error *err)
{
    struct cairn_error first = {0};
    size_t n_failed = 0;
    for (size_t at = 0; at < n; at += S3_DELETE_KEYS) {
        size_t m = n - at < S3_DELETE_KEYS ? n - at : S3_DELETE_KEYS;
        char *full[S3_DELETE_KEYS] = {0};
        bool gone[S3_DELETE_KEYS] = {0};
        struct batch b = {.client = c,
                          .op = op,
                          .n = m,
                          .full = full,
                          .name = keys + at,
                          .gone = gone,
                          .n_failed = &n_failed,
                          .first = &first};
        bool ok = true;
        for (size_t i = 0; i < m && ok; i++)
            if (asprintf(&full[i], "%s%s", prefix, keys[at + i]) < 0) {
                full[i] = NULL;
                ok = false;
            }
        if (ok) {
            remove_batch(&b);
        } else {
            struct cairn_error e;
            error_oom(&e, "delete");
            for (size_t i = 0; i < m; i++)
                note(&b, &e);
        }
        for (size_t i = 0; i < m; i++) {
            free(full[i]);
            if (failed)
                failed[at + i] = !gone[i];
        }
    }
    if (!n_failed)
        return CAIRN_OK;
    if (n == 1)
        return error_pass(err, &first);
    return error_set(err, first.error_class, first.sys_errno, "%zu of %zu keys not deleted: %s",
                     n_failed, n, first.message);
}
