/* Publishes that outlive whoever asked for them.
 *
 * Each has a token. A job runs on a lane of its own account; any number of calls may wait for it
 * and leave it at any time. Asking again with the token of a job that runs joins it; of one that is
 * done returns what was remembered; of one that failed, or was interrupted by the end of a process,
 * tries it again. So a client may repeat its request until it has an answer. Thread-safe. */
#ifndef CAIRN_SERVICE_PUBLISH_JOBS_H
#define CAIRN_SERVICE_PUBLISH_JOBS_H

#include "service/lane.h"
#include "service/staging.h"

struct publish_jobs;

struct publish_jobs_options {
    struct cairn_store *store; /* borrowed */
    struct lane *lane;         /* borrowed; where the jobs run */
    const char *staging;       /* absolute path of the area of staging folders */
    const char *tickets;       /* path of the private folder of tickets; both are made if absent */
    int64_t keep_ns;           /* stagings nobody uses, and outcomes, are kept for so long */
    void (*idle)(void *ctx);   /* called when the last job has ended; may be NULL */
    void *ctx;
};

/* Local disk only. The caller owns *out. */
CAIRN_MUST_CHECK int publish_jobs_new(const struct publish_jobs_options *options,
                                      struct publish_jobs **out, struct cairn_error *err);
/* Cancels what runs and waits for it. No call may begin afterwards. NULL is allowed. */
void publish_jobs_free(struct publish_jobs *p);
/* From now on; as in the options. */
void publish_jobs_keep(struct publish_jobs *p, int64_t keep_ns);
/* Fire the token of every job: they end as failed, cancelled. */
void publish_jobs_cancel_all(struct publish_jobs *p);
bool publish_jobs_busy(struct publish_jobs *p);

/* Give out a staging for a publish of id by that user. *path is owned by the caller. transient: too
 * many are open. */
CAIRN_MUST_CHECK int publish_jobs_stage(struct publish_jobs *p, const char *id, uid_t uid,
                                        gid_t gid, char token[TOKEN_TEXT], char **path,
                                        struct cairn_error *err);

struct publish_request {
    const char *id;
    const char *token;   /* "": a fresh one is made (staging is then given) */
    const char *staging; /* a folder of the client's own; NULL: the token's */
    const char *parent;  /* NULL: none */
    const void *meta;    /* NULL: meta.json of the staging, and without one that of cairn_publish */
    size_t meta_len;
    bool digest, keep;
    double seconds; /* the job's own bound; negative: none */
    uid_t uid;
};

/* Begin, or join, as said above. With wait, returns when it ended, or when op says (the job goes
 * on): then timeout or cancelled. Without, as soon as it is queued. *out is filled with what is
 * known on success, and also when the job ended as failed (class and *err are then the job's);
 * out->token is "" where nothing was begun.
 *
 * not_found: no such token, or it is another user's. transient: too many wait already (the job goes
 * on). busy: it is being published, or was, with
 * another request than this one. invalid: the token is another record's. */
CAIRN_MUST_CHECK int publish_jobs_run(struct publish_jobs *p, const struct publish_request *req,
                                      bool wait, const struct cairn_op *op, struct ticket *out,
                                      struct cairn_error *err);

/* What became of it. A job that an earlier process left in the middle is found out now. uid: as in
 * publish_jobs_run. */
CAIRN_MUST_CHECK int publish_jobs_look(struct publish_jobs *p, const char *token, uid_t uid,
                                       const struct cairn_op *op, struct ticket *out,
                                       struct cairn_error *err);
/* End a job that runs (it becomes failed, cancelled, unless it was committed), else forget the
 * token and remove its staging. *cancelling: the first. Absent is success. */
CAIRN_MUST_CHECK int publish_jobs_drop(struct publish_jobs *p, const char *token, uid_t uid,
                                       const struct cairn_op *op, bool *cancelling,
                                       struct cairn_error *err);
/* Upkeep: find out what earlier processes left in the middle, remove what is old. */
CAIRN_MUST_CHECK int publish_jobs_tidy(struct publish_jobs *p, const struct cairn_op *op,
                                       struct cairn_error *err);

struct publish_jobs_counts {
    uint64_t staged, done, failed, joined; /* since the start */
    unsigned active;                       /* queued or running */
};
void publish_jobs_count(struct publish_jobs *p, struct publish_jobs_counts *out);

#endif
