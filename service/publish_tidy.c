#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "service/publish_private.h"

#include <errno.h>
#include <string.h>

/* A job that its process did not live to end is asked about for so long. */
#define RESOLVE_SECONDS 30

int publish_resolve(struct publish_jobs *p, const struct cairn_op *op, struct ticket *t,
                    struct cairn_error *err)
{
    struct cairn_op bounded = op ? *op : (struct cairn_op){.deadline_ns = CAIRN_NO_DEADLINE};
    int64_t until = clock_add(clock_monotonic(), RESOLVE_SECONDS * NS_PER_S);
    if (bounded.deadline_ns > until)
        bounded.deadline_ns = until;
    struct cairn_record *r = NULL;
    struct cairn_record_info info = {0};
    int rc = cairn_record_open(p->o.store, &bounded, t->id, &r, err);
    if (rc && rc != CAIRN_NOT_FOUND)
        return error_wrap(err, "looking how the publish of %s ended", t->id);
    if (!rc)
        cairn_record_info(r, &info);
    if (!rc && strcmp(info.gen, t->gen) == 0) {
        t->state = TICKET_DONE;
        t->recovered = true;
        t->result = (struct cairn_publish_result){0};
        memcpy(t->result.gen, t->gen, GEN_TEXT);
        snprintf(t->result.digest, sizeof(t->result.digest), "%s", info.digest);
    } else {
        t->state = TICKET_FAILED;
        error_set(&t->error, CAIRN_TRANSIENT, EINTR,
                  "interrupted: the service ended before generation %s of %s was committed", t->gen,
                  t->id);
    }
    cairn_record_close(r);
    t->updated_ns = clock_realtime();
    log_line(LOG_LEVEL_NOTICE, "publish of %s, generation %s, which an earlier process left: %s",
             t->id, t->gen, ticket_state_name(t->state));
    rc = ticket_write(p->tickets, t, err);
    if (!rc && t->state == TICKET_DONE && t->own && !t->keep)
        rc = publish_remove_staging(p, t->token, err);
    return rc;
}

struct tokens {
    char (*list)[TOKEN_TEXT]; /* owned */
    size_t n, cap;
};

static void tokens_release(struct tokens *t)
{
    free(t->list);
}

static int add_token(void *ctx, const char *token, struct cairn_error *err)
{
    struct tokens *t = ctx;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        void *list = reallocarray(t->list, cap, TOKEN_TEXT);
        if (!list)
            return error_oom(err, "tickets");
        t->list = list;
        t->cap = cap;
    }
    memcpy(t->list[t->n++], token, TOKEN_TEXT);
    return CAIRN_OK;
}

static int add_staging(void *ctx, const char *name, struct cairn_error *err)
{
    return ticket_token_is_valid(name) ? add_token(ctx, name, err) : CAIRN_OK;
}

static bool is_old(struct publish_jobs *p, int64_t ns)
{
    pthread_mutex_lock(&p->lock);
    int64_t keep = p->keep_ns;
    pthread_mutex_unlock(&p->lock);
    return clock_realtime() - ns >= keep;
}

int publish_remove_staging(struct publish_jobs *p, const char *token, struct cairn_error *err)
{
    bool there = staging_touched(p->area, token) != 0;
    int rc = staging_remove(p->area, token, err);
    pthread_mutex_lock(&p->lock);
    p->stagings -= !rc && there && p->stagings;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* What is left when this is cut short is removed by the next one. */
int publish_forget(struct publish_jobs *p, const char *token, bool own, struct cairn_error *err)
{
    int rc = own ? publish_remove_staging(p, token, err) : CAIRN_OK;
    return rc ? rc : ticket_remove(p->tickets, token, err);
}

/* One token, which the caller has claimed. */
static int tidy_token(struct publish_jobs *p, const struct cairn_op *op, const char *token,
                      struct cairn_error *err)
{
    struct ticket t;
    struct cairn_error e;
    int64_t touched = staging_touched(p->area, token);
    int rc = ticket_read(p->tickets, token, &t, &e);
    if (rc == CAIRN_NOT_FOUND)
        return is_old(p, touched) ? publish_remove_staging(p, token, err) : CAIRN_OK;
    if (rc == CAIRN_CORRUPT) {
        log_line(LOG_LEVEL_WARNING, "%s: it is removed", e.message);
        return ticket_remove(p->tickets, token, err);
    }
    if (rc)
        return error_pass(err, &e);
    if (t.state == TICKET_QUEUED) {
        rc = publish_resolve(p, op, &t, err);
        if (rc)
            return rc;
    }
    /* Between the outcome and this a process may have died. */
    if (t.state == TICKET_DONE && t.own && !t.keep && touched) {
        rc = publish_remove_staging(p, token, err);
        if (rc)
            return rc;
    }
    if (!is_old(p, t.updated_ns > touched ? t.updated_ns : touched))
        return CAIRN_OK;
    if (t.own && t.state != TICKET_DONE)
        log_line(LOG_LEVEL_INFO, "the staging of %s, which nobody uses any more, is removed", t.id);
    return publish_forget(p, token, t.own, err);
}

int publish_jobs_tidy(struct publish_jobs *p, const struct cairn_op *op, struct cairn_error *err)
{
    __attribute__((cleanup(tokens_release))) struct tokens all = {0};
    int rc = ticket_each(p->tickets, add_token, &all, err);
    size_t tickets = all.n;
    if (!rc)
        rc = staging_each(p->area, add_staging, &all, err);
    if (!rc) {
        pthread_mutex_lock(&p->lock);
        p->stagings = all.n - tickets;
        pthread_mutex_unlock(&p->lock);
    }
    int late = CAIRN_OK;
    struct cairn_error e;
    for (size_t i = 0; !rc && i < all.n; i++) {
        struct job *j;
        bool mine;
        rc = op_check(op, "removing old stagings", err);
        if (!rc)
            rc = job_enter(p, all.list[i], op, &j, &mine, err);
        if (rc)
            break;
        if (!mine) {
            job_unref(j);
            continue;
        }
        int one = tidy_token(p, op, all.list[i], &e);
        job_release(j);
        if (one && !late)
            late = error_pass(err, &e);
    }
    return rc ? rc : late;
}
