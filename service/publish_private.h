/* The inside of publish_jobs: its table, and who works on a token.
 *
 * Whoever works on a token owns its entry of the table, a *job*:
 *
 *   phase     meaning                                           followed by
 *   CLAIMED   one call looks at its ticket, or changes it       QUEUED, ENDED
 *   QUEUED    the lane has it                                   RUNNING
 *   RUNNING   the lane's thread publishes                       ENDED
 *   ENDED     no longer in the table; lives until the last call has looked
 *
 * No ticket is written but by the owner of its token's job, so files need no lock. */
#ifndef CAIRN_SERVICE_PUBLISH_PRIVATE_H
#define CAIRN_SERVICE_PUBLISH_PRIVATE_H

#include "service/publish_jobs.h"

#include <pthread.h>
#include <stdatomic.h>

enum job_phase { JOB_CLAIMED, JOB_QUEUED, JOB_RUNNING, JOB_ENDED };

struct job {
    struct lane_job lane_job; /* first */
    struct publish_jobs *p;   /* constant */
    char token[TOKEN_TEXT];   /* constant */
    /* Set while CLAIMED, then constant but for the ticket, which is the running thread's until
     * ENDED and is read by others as p->lock allows (see job_ticket). */
    char *folder;   /* owned; NULL: the staging of the token */
    uint32_t asker; /* a user */
    struct buf meta;
    char *parent; /* owned; NULL: none */
    bool digest, owned;
    struct cairn_op op;
    struct cairn_cancel *cancel; /* owned; NULL until QUEUED */
    atomic_uint_fast64_t bytes_done, bytes_total;
    /* guarded by p->lock */
    enum job_phase phase;
    unsigned refs;
    struct ticket ticket; /* state QUEUED is shown as RUNNING while phase is */
    int rc;               /* once ENDED, of a job that was QUEUED; err if it is a failure */
    struct cairn_error err;
    pthread_cond_t changed; /* phase */
    struct job *next;       /* in the table */
};

struct publish_jobs {
    struct publish_jobs_options o; /* constant; its texts and keep_ns are not used */
    struct staging_area *area;     /* owned, constant */
    int tickets;                   /* folder, owned, constant */
    pthread_mutex_t lock;          /* guards all below */
    pthread_cond_t none;           /* at_work became 0 */
    struct job *jobs;
    unsigned at_work;  /* jobs that the lane has, until nothing is left to do for them */
    uint64_t stagings; /* folders in the area, about */
    bool stop;
    unsigned waiting; /* calls */
    int64_t keep_ns;
    struct publish_jobs_counts counts;
};

/* The token is this caller's until job_release (*job: one reference, CLAIMED, mine), or it is a job
 * that runs (*job: one reference, QUEUED or RUNNING). Waits, within op, while another call has it.
 */
CAIRN_MUST_CHECK int job_enter(struct publish_jobs *p, const char *token, const struct cairn_op *op,
                               struct job **job, bool *mine, struct cairn_error *err);
/* Of a job that is CLAIMED by the caller: it is ENDED, and the reference gone. */
void job_release(struct job *job);
void job_unref(struct job *job);
/* Until the job's phase is at least this one. */
CAIRN_MUST_CHECK int job_wait(struct job *job, enum job_phase phase, const struct cairn_op *op,
                              struct cairn_error *err);
/* What is known of a job that was QUEUED. */
void job_ticket(struct job *job, struct ticket *out);
/* The same, and its class and error if it ended as failed. */
CAIRN_MUST_CHECK int job_outcome(struct job *job, struct ticket *out, struct cairn_error *err);
/* *out is to be released, also after a failure. Descriptors are held only while they are used: any
 * number of jobs may be queued. */
CAIRN_MUST_CHECK int job_open_staging(const struct job *job, struct staging_open *out,
                                      struct cairn_error *err);
/* For the lane: publish. */
void job_run(struct lane_job *lane_job);

/* *t says QUEUED, and no job runs: find out how it ended, write and say that. */
CAIRN_MUST_CHECK int publish_resolve(struct publish_jobs *p, const struct cairn_op *op,
                                     struct ticket *t, struct cairn_error *err);
/* Absent is success, both; own: its staging goes, too. */
CAIRN_MUST_CHECK int publish_remove_staging(struct publish_jobs *p, const char *token,
                                            struct cairn_error *err);
CAIRN_MUST_CHECK int publish_forget(struct publish_jobs *p, const char *token, bool own,
                                    struct cairn_error *err);

#endif
