#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "service/publish_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct job *find_locked(struct publish_jobs *p, const char *token)
{
    struct job *j = p->jobs;
    while (j && strcmp(j->token, token) != 0)
        j = j->next;
    return j;
}

static int job_new(struct publish_jobs *p, const char *token, struct job **out,
                   struct cairn_error *err)
{
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        return error_oom(err, "publish");
    j->p = p;
    memcpy(j->token, token, TOKEN_TEXT);
    j->meta = BUF_INIT(META_MAX + 1);
    j->refs = 1;
    op_cond_init(&j->changed);
    *out = j;
    return CAIRN_OK;
}

static void job_free(struct job *j)
{
    free(j->folder);
    buf_release(&j->meta);
    free(j->parent);
    cairn_cancel_free(j->cancel);
    pthread_cond_destroy(&j->changed);
    free(j);
}

void job_unref(struct job *j)
{
    struct publish_jobs *p = j->p;
    pthread_mutex_lock(&p->lock);
    bool last = --j->refs == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        job_free(j);
}

static void end_locked(struct job *j)
{
    struct job **at = &j->p->jobs;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    j->phase = JOB_ENDED;
    pthread_cond_broadcast(&j->changed);
}

void job_release(struct job *j)
{
    pthread_mutex_lock(&j->p->lock);
    end_locked(j);
    pthread_mutex_unlock(&j->p->lock);
    job_unref(j);
}

int job_wait(struct job *j, enum job_phase phase, const struct cairn_op *op,
             struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &j->p->lock, &j->changed);
    pthread_mutex_lock(&j->p->lock);
    while (!rc && j->phase < phase)
        rc = op_wait_locked(&w, "waiting for a publish", err);
    if (j->phase >= phase)
        rc = CAIRN_OK;
    pthread_mutex_unlock(&j->p->lock);
    op_waiter_remove(&w);
    return rc;
}

int job_enter(struct publish_jobs *p, const char *token, const struct cairn_op *op,
              struct job **job, bool *mine, struct cairn_error *err)
{
    struct job *fresh = NULL;
    int rc = job_new(p, token, &fresh, err);
    if (rc)
        return rc;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        struct job *j = find_locked(p, token);
        *mine = !j && !p->stop;
        if (*mine) {
            fresh->next = p->jobs;
            p->jobs = fresh;
            *job = fresh;
        }
        bool stopping = !j && p->stop, other = j && j->phase == JOB_CLAIMED;
        if (j)
            j->refs++;
        pthread_mutex_unlock(&p->lock);
        if (*mine)
            return CAIRN_OK;
        if (stopping)
            rc = error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "the service is being stopped");
        else if (other)
            rc = job_wait(j, JOB_QUEUED, op, err);
        if (!rc && !other)
            *job = j;
        else if (j)
            job_unref(j);
        if (rc || !other)
            break;
    }
    job_free(fresh);
    return rc;
}

static void ticket_locked(const struct job *j, struct ticket *out)
{
    *out = j->ticket;
    if (j->phase != JOB_RUNNING)
        return;
    out->state = TICKET_RUNNING;
    out->bytes_done = atomic_load(&j->bytes_done);
    out->bytes_total = atomic_load(&j->bytes_total);
}

void job_ticket(struct job *j, struct ticket *out)
{
    pthread_mutex_lock(&j->p->lock);
    ticket_locked(j, out);
    pthread_mutex_unlock(&j->p->lock);
}

int job_outcome(struct job *j, struct ticket *out, struct cairn_error *err)
{
    pthread_mutex_lock(&j->p->lock);
    ticket_locked(j, out);
    int rc = j->phase == JOB_ENDED ? j->rc : CAIRN_OK;
    if (rc)
        *err = j->err;
    pthread_mutex_unlock(&j->p->lock);
    return rc;
}

static void progress(void *ctx, uint64_t done, uint64_t total)
{
    struct job *j = ctx;
    atomic_store(&j->bytes_done, done);
    atomic_store(&j->bytes_total, total);
}

int job_open_staging(const struct job *j, struct staging_open *out, struct cairn_error *err)
{
    return j->folder ? staging_open_for(NULL, j->folder, j->asker, out, err)
                     : staging_open_for(j->p->area, j->token, j->asker, out, err);
}

static int publish(struct job *j, struct cairn_publish_result *result, struct cairn_error *err)
{
    struct staging_open staging;
    int rc = job_open_staging(j, &staging, err);
    struct cairn_publish_options o = {.from = staging.from,
                                      .meta = j->meta.data,
                                      .meta_len = j->meta.len,
                                      .parent = j->parent,
                                      .digest = j->digest,
                                      .progress = {.report = progress, .ctx = j},
                                      .owned = j->owned,
                                      .owner = j->ticket.uid};
    if (!rc)
        rc = cairn_publish(j->p->o.store, &j->op, j->ticket.id, &o, result, err);
    staging_open_release(&staging);
    return rc;
}

static void remove_staging(struct publish_jobs *p, const char *token)
{
    struct cairn_error err;
    if (publish_remove_staging(p, token, &err))
        log_line(LOG_LEVEL_WARNING, "%s", err.message);
}

void job_run(struct lane_job *lane_job)
{
    struct job *j = (struct job *)lane_job;
    struct publish_jobs *p = j->p;
    struct cairn_publish_result result;
    struct cairn_error err = {0};
    pthread_mutex_lock(&p->lock);
    j->phase = JOB_RUNNING;
    struct ticket t = j->ticket;
    pthread_mutex_unlock(&p->lock);
    int rc = publish(j, &result, &err);
    STEP("service.published");
    t.state = rc ? TICKET_FAILED : TICKET_DONE;
    t.updated_ns = clock_realtime();
    if (rc)
        t.error = err;
    else
        t.result = result;
    struct cairn_error ignored;
    if (ticket_write(p->tickets, &t, &ignored)) /* who asks later is told what the store says */
        log_line(LOG_LEVEL_WARNING, "outcome of a publish of %s is not kept: %s", t.id,
                 ignored.message);
    STEP("service.noted");
    pthread_mutex_lock(&p->lock);
    j->ticket = t;
    j->rc = rc;
    j->err = err;
    end_locked(j);
    *(rc ? &p->counts.failed : &p->counts.done) += 1;
    pthread_mutex_unlock(&p->lock);
    if (!rc && t.own && !t.keep)
        remove_staging(p, t.token);
    STEP("service.ended");
    job_unref(j);
    pthread_mutex_lock(&p->lock);
    bool idle = --p->at_work == 0;
    if (idle)
        pthread_cond_broadcast(&p->none);
    void (*tell)(void *) = p->o.idle;
    void *ctx = p->o.ctx;
    pthread_mutex_unlock(&p->lock);
    if (idle && tell)
        tell(ctx);
}
