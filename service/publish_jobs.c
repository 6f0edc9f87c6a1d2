#include "service/publish_jobs.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "service/publish_private.h"
#include "store/meta.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* So many calls wait at most, each on a thread of its own. */
#define WAITING_MAX 128
/* So many are queued or run at most: each keeps its meta, and the descriptor of its token. */
#define JOBS_MAX 512
/* So many stagings are open at most. */
#define STAGINGS_MAX 65536

/* ---- Life ------------------------------------------------------------------------------------ */

int publish_jobs_new(const struct publish_jobs_options *options, struct publish_jobs **out,
                     struct cairn_error *err)
{
    struct publish_jobs *p = calloc(1, sizeof(*p));
    if (!p)
        return error_oom(err, "publishes");
    p->o = *options;
    p->o.staging = p->o.tickets = NULL;
    p->keep_ns = options->keep_ns;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->none, NULL);
    int rc = store_make_folders(options->tickets, err);
    p->tickets = rc ? -1 : open(options->tickets, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!rc && p->tickets < 0) {
        int e = errno;
        rc = error_sys(err, e, "tickets in %s", options->tickets);
    }
    if (!rc)
        rc = ticket_clean(p->tickets, err);
    if (!rc)
        rc = staging_area_open(options->staging, &p->area, err);
    if (rc) {
        publish_jobs_free(p);
        return rc;
    }
    *out = p;
    return CAIRN_OK;
}

void publish_jobs_cancel_all(struct publish_jobs *p)
{
    /* A token's lock comes before others: it is fired without ours, held by a reference. */
    for (struct job *last = NULL;;) {
        pthread_mutex_lock(&p->lock);
        struct job *j = p->jobs;
        while (j && (j->phase == JOB_CLAIMED || cairn_cancel_fired(j->cancel)))
            j = j->next;
        if (j)
            j->refs++;
        pthread_mutex_unlock(&p->lock);
        if (last)
            job_unref(last);
        if (!j)
            return;
        cairn_cancel_fire(j->cancel);
        last = j;
    }
}

void publish_jobs_free(struct publish_jobs *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    publish_jobs_cancel_all(p);
    pthread_mutex_lock(&p->lock);
    while (p->at_work)
        pthread_cond_wait(&p->none, &p->lock);
    pthread_mutex_unlock(&p->lock);
    staging_area_close(p->area);
    if (p->tickets >= 0)
        close(p->tickets);
    pthread_cond_destroy(&p->none);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void publish_jobs_keep(struct publish_jobs *p, int64_t keep_ns)
{
    pthread_mutex_lock(&p->lock);
    p->keep_ns = keep_ns;
    pthread_mutex_unlock(&p->lock);
}

bool publish_jobs_busy(struct publish_jobs *p)
{
    pthread_mutex_lock(&p->lock);
    bool busy = p->at_work > 0;
    pthread_mutex_unlock(&p->lock);
    return busy;
}

void publish_jobs_count(struct publish_jobs *p, struct publish_jobs_counts *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->counts;
    out->active = p->at_work;
    pthread_mutex_unlock(&p->lock);
}

/* ---- Asking for one -------------------------------------------------------------------------- */

/* What was asked for, but the contents of a staged meta.json. */
static int request_hash(const struct publish_request *r, char out[65], struct cairn_error *err)
{
    CLEANUP_BUF struct buf b = BUF_INIT((size_t)64 * 1024);
    uint8_t sha[SHA256_LEN];
    int rc = r->meta ? hash_sha256(r->meta, r->meta_len, sha, err) : CAIRN_OK;
    util_hex(sha, r->meta ? sizeof(sha) : 0, out);
    if (!rc)
        rc = buf_addf(&b, err, "%s\n%s\n%s\n%d %d\n%s", r->id, r->parent ? r->parent : "",
                      r->meta ? out : "", r->digest, r->keep, r->staging ? r->staging : "");
    if (!rc)
        rc = hash_sha256(b.data, b.len, sha, err);
    if (!rc)
        util_hex(sha, sizeof(sha), out);
    return rc;
}

static int other_request(struct cairn_error *err, const struct ticket *t)
{
    return error_set(err, CAIRN_BUSY, EEXIST,
                     "this token belongs to another request, which is %s (%s)",
                     ticket_state_name(t->state), t->id);
}

/* Tokens are secrets: no message has one. */
static int not_theirs(struct cairn_error *err)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no publish with this token");
}

/* Whether this request may go on with that ticket. */
static int check_ticket(const struct publish_request *r, const struct ticket *t, const char *hash,
                        struct cairn_error *err)
{
    if (r->uid != 0 && t->uid != r->uid)
        return not_theirs(err);
    if (strcmp(t->id, r->id) != 0)
        return error_set(err, CAIRN_INVALID, EINVAL, "this token is for %s, and not for %s", t->id,
                         r->id);
    if (t->own && r->staging)
        return error_set(err, CAIRN_INVALID, EINVAL, "this token has a staging of its own");
    if ((t->state == TICKET_QUEUED || t->state == TICKET_RUNNING || t->state == TICKET_DONE) &&
        strcmp(t->request, hash) != 0)
        return other_request(err, t);
    if (!t->own && !r->staging)
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "this token has no staging of its own: name the folder again");
    return CAIRN_OK;
}

/* The ticket of a token that the caller has claimed; a new one where the staging is the client's.
 */
static int get_ticket(struct publish_jobs *p, const struct publish_request *r, const char *token,
                      const char *hash, const struct cairn_op *op, struct ticket *t,
                      struct cairn_error *err)
{
    int rc = ticket_read(p->tickets, token, t, err);
    if (rc == CAIRN_NOT_FOUND && r->staging) {
        *t = (struct ticket){.state = TICKET_STAGED, .uid = r->uid};
        memcpy(t->token, token, TOKEN_TEXT);
        memcpy(t->id, r->id, strlen(r->id) + 1);
        t->created_ns = clock_realtime();
        rc = CAIRN_OK;
    }
    if (!rc && (r->uid == 0 || t->uid == r->uid) && t->state == TICKET_QUEUED)
        rc = publish_resolve(p, op, t, err);
    return rc ? rc : check_ticket(r, t, hash, err);
}

static int get_meta(struct job *j, const struct staging_open *staging,
                    const struct publish_request *r, char gen[GEN_TEXT], struct cairn_error *err)
{
    int rc;
    if (r->meta) {
        rc = r->meta_len > META_MAX ? CAIRN_OK : buf_add(&j->meta, r->meta, r->meta_len, err);
        return rc ? rc : gen_of_meta(r->meta, r->meta_len, gen, err);
    }
    rc = staging_meta(staging, r->uid, &j->meta, err);
    if (rc == CAIRN_NOT_FOUND)
        rc = meta_default(r->id, &j->meta, err);
    return rc ? rc : gen_of_meta(j->meta.data, j->meta.len, gen, err);
}

/* Everything the job needs, so that it depends on no request. */
static int prepare(struct job *j, const struct publish_request *r, struct ticket *t,
                   struct cairn_error *err)
{
    struct staging_open staging;
    j->asker = r->uid;
    if (r->staging && !(j->folder = strdup(r->staging)))
        return error_oom(err, "publish");
    int rc = job_open_staging(j, &staging, err);
    if (!rc)
        rc = get_meta(j, &staging, r, t->gen, err);
    staging_open_release(&staging);
    if (!rc && !j->meta.data)
        rc = buf_reserve(&j->meta, 1, err); /* an empty one is no absent one */
    if (!rc && r->parent && !(j->parent = strdup(r->parent)))
        rc = error_oom(err, "publish");
    if (!rc)
        rc = cairn_cancel_new(&j->cancel, err);
    if (rc)
        return rc;
    j->digest = r->digest;
    j->owned = r->uid != 0 && r->uid != geteuid();
    cairn_op_init(&j->op, r->seconds, j->cancel);
    t->keep = r->keep;
    t->uid = r->uid == 0 ? t->uid : r->uid;
    t->updated_ns = clock_realtime();
    t->state = TICKET_QUEUED;
    return CAIRN_OK;
}

/* The ticket on the disk is as it was, or says why not. */
static void take_back(struct job *j, struct ticket *before, const struct cairn_error *why)
{
    struct cairn_error ignored;
    int rc;
    if (before->state == TICKET_STAGED && !before->own) {
        rc = ticket_remove(j->p->tickets, j->token, &ignored);
    } else {
        if (before->state == TICKET_FAILED)
            before->error = *why;
        rc = ticket_write(j->p->tickets, before, &ignored);
    }
    if (rc)
        log_line(LOG_LEVEL_WARNING, "%s", ignored.message);
}

/* Where a backend has no locks, an older state that was stuck must not replace a newer one. */
static bool is_published_locked(const struct publish_jobs *p, const char *id)
{
    for (const struct job *j = p->jobs; j; j = j->next)
        if (j->phase != JOB_CLAIMED && strcmp(j->ticket.id, id) == 0)
            return true;
    return false;
}

/* Hand a job that is CLAIMED to the lane. */
static int submit(struct job *j, const struct ticket *t, struct cairn_error *err)
{
    struct publish_jobs *p = j->p;
    pthread_mutex_lock(&p->lock);
    bool stop = p->stop, taken = is_published_locked(p, t->id), full = p->at_work >= JOBS_MAX;
    if (!stop && !taken && !full) {
        j->ticket = *t;
        j->phase = JOB_QUEUED;
        j->refs++; /* the lane's */
        p->at_work++;
        pthread_cond_broadcast(&j->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (stop)
        return error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "the service is being stopped");
    if (taken)
        return error_set(err, CAIRN_BUSY, EBUSY, "%s is being published by another request", t->id);
    if (full)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "%d publishes are queued already", JOBS_MAX);
    j->lane_job.run = job_run;
    int rc = lane_submit(p->o.lane, &j->lane_job, err);
    if (!rc)
        return CAIRN_OK;
    /* Those who joined meanwhile are told; the token may be claimed again. */
    pthread_mutex_lock(&p->lock);
    j->phase = JOB_CLAIMED;
    j->refs--;
    j->rc = rc;
    j->err = *err;
    if (--p->at_work == 0)
        pthread_cond_broadcast(&p->none);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Of a token that the caller has claimed. *done: it was done before. */
static int begin(struct job *j, const struct publish_request *r, const char *hash,
                 const struct cairn_op *op, struct ticket *t, bool *done, struct cairn_error *err)
{
    struct publish_jobs *p = j->p;
    *done = false;
    int rc = get_ticket(p, r, j->token, hash, op, t, err);
    *done = !rc && t->state == TICKET_DONE;
    if (rc || *done)
        return rc;
    struct ticket before = *t;
    rc = prepare(j, r, t, err);
    if (rc)
        return rc;
    memcpy(t->request, hash, sizeof(t->request));
    rc = ticket_write(p->tickets, t, err);
    if (rc)
        return rc;
    STEP("service.queued");
    rc = submit(j, t, err);
    if (rc)
        take_back(j, &before, err);
    return rc;
}

static int check_request(const struct publish_request *r, struct cairn_error *err)
{
    int rc = id_check(r->id, err);
    if (!rc && r->parent)
        rc = id_check(r->parent, err);
    if (!rc && !r->token[0] && !r->staging)
        rc = error_set(err, CAIRN_INVALID, EINVAL,
                       "neither the token of a staging nor a folder is given");
    if (!rc && r->token[0] && !ticket_token_is_valid(r->token))
        rc = error_set(err, CAIRN_INVALID, EINVAL, "a token has %d lower-case hex digits",
                       TOKEN_TEXT - 1);
    return rc;
}

static int wait_for(struct job *j, const struct cairn_op *op, struct cairn_error *err)
{
    struct publish_jobs *p = j->p;
    pthread_mutex_lock(&p->lock);
    bool full = p->waiting >= WAITING_MAX;
    p->waiting += !full;
    pthread_mutex_unlock(&p->lock);
    if (full)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN,
                         "too many wait for publishes: it goes on, ask again");
    int rc = job_wait(j, JOB_ENDED, op, err);
    pthread_mutex_lock(&p->lock);
    p->waiting--;
    pthread_mutex_unlock(&p->lock);
    return rc;
}

int publish_jobs_run(struct publish_jobs *p, const struct publish_request *r, bool wait,
                     const struct cairn_op *op, struct ticket *out, struct cairn_error *err)
{
    char token[TOKEN_TEXT], hash[65];
    struct job *j;
    bool mine, done = false;
    *out = (struct ticket){0};
    int rc = check_request(r, err);
    if (!rc && !r->token[0])
        rc = ticket_token(token, err);
    else if (!rc)
        memcpy(token, r->token, TOKEN_TEXT);
    if (!rc)
        rc = request_hash(r, hash, err);
    if (!rc)
        rc = job_enter(p, token, op, &j, &mine, err);
    if (rc)
        return rc;
    struct ticket t = {0};
    if (mine) {
        rc = begin(j, r, hash, op, &t, &done, err);
        if (rc || done)
            job_release(j);
        if (done)
            *out = t;
        if (rc || done)
            return rc;
    } else {
        job_ticket(j, &t);
        rc = check_ticket(r, &t, hash, err);
        pthread_mutex_lock(&p->lock);
        p->counts.joined += !rc;
        pthread_mutex_unlock(&p->lock);
    }
    if (!rc && wait)
        rc = wait_for(j, op, err);
    if (!rc)
        rc = job_outcome(j, out, err);
    job_unref(j);
    return rc;
}

/* ---- Stagings, looking, dropping ------------------------------------------------------------- */

int publish_jobs_stage(struct publish_jobs *p, const char *id, uid_t uid, gid_t gid,
                       char token[TOKEN_TEXT], char **path, struct cairn_error *err)
{
    struct ticket t = {.state = TICKET_STAGED, .uid = uid, .own = true};
    int rc = id_check(id, err);
    if (!rc)
        rc = ticket_token(t.token, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&p->lock);
    bool full = p->stagings >= STAGINGS_MAX;
    pthread_mutex_unlock(&p->lock);
    if (full)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "%d stagings are open already",
                         STAGINGS_MAX);
    memcpy(t.id, id, strlen(id) + 1);
    t.created_ns = t.updated_ns = clock_realtime();
    rc = ticket_write(p->tickets, &t, err);
    if (!rc) {
        STEP("service.ticket");
        rc = staging_make(p->area, t.token, uid, gid, path, err);
    }
    struct cairn_error ignored;
    if (rc) {
        if (ticket_remove(p->tickets, t.token, &ignored))
            log_line(LOG_LEVEL_WARNING, "%s", ignored.message);
        return rc;
    }
    memcpy(token, t.token, TOKEN_TEXT);
    pthread_mutex_lock(&p->lock);
    p->stagings++;
    p->counts.staged++;
    pthread_mutex_unlock(&p->lock);
    return CAIRN_OK;
}

int publish_jobs_look(struct publish_jobs *p, const char *token, uid_t uid,
                      const struct cairn_op *op, struct ticket *out, struct cairn_error *err)
{
    struct job *j;
    bool mine;
    *out = (struct ticket){0};
    if (!ticket_token_is_valid(token))
        return not_theirs(err);
    int rc = job_enter(p, token, op, &j, &mine, err);
    if (rc)
        return rc;
    struct ticket t = {0};
    if (mine) {
        rc = ticket_read(p->tickets, token, &t, err);
        if (!rc && uid != 0 && t.uid != uid)
            rc = not_theirs(err);
        if (!rc && t.state == TICKET_QUEUED)
            rc = publish_resolve(p, op, &t, err);
        job_release(j);
    } else {
        job_ticket(j, &t);
        job_unref(j);
        if (uid != 0 && t.uid != uid)
            rc = not_theirs(err);
    }
    if (!rc)
        *out = t;
    return rc;
}

int publish_jobs_drop(struct publish_jobs *p, const char *token, uid_t uid,
                      const struct cairn_op *op, bool *cancelling, struct cairn_error *err)
{
    struct job *j;
    bool mine;
    struct ticket t = {0};
    *cancelling = false;
    if (!ticket_token_is_valid(token))
        return CAIRN_OK;
    int rc = job_enter(p, token, op, &j, &mine, err);
    if (rc)
        return rc;
    struct cairn_error e;
    if (!mine) {
        job_ticket(j, &t);
        *cancelling = uid == 0 || t.uid == uid;
        if (*cancelling)
            cairn_cancel_fire(j->cancel);
        job_unref(j);
        return CAIRN_OK;
    }
    rc = ticket_read(p->tickets, token, &t, &e);
    if (rc == CAIRN_NOT_FOUND || (!rc && uid != 0 && t.uid != uid))
        rc = CAIRN_OK;
    else if (rc && (rc != CAIRN_CORRUPT || uid != 0))
        *err = e;
    else {
        rc = publish_forget(p, token, rc == CAIRN_CORRUPT || t.own, err);
    }
    job_release(j);
    return rc;
}
