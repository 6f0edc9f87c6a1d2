/* Tickets: what the service remembers of each publish, one small JSON file each, so that a client
 * that vanished, and the service after its own death, can say how it ended.
 *
 *   state     meaning                                     followed by
 *   STAGED    a staging was given out, nothing was asked  QUEUED, or removed when old
 *   QUEUED    gen is to be published                      RUNNING
 *   RUNNING   gen is being published (files say QUEUED)   DONE, FAILED
 *   DONE      gen was committed                           removed when old
 *   FAILED    error says why; the staging is untouched    QUEUED (tried again), removed when old
 *
 * A file that says QUEUED while no job of this process runs was left by a process that died:
 * publish_jobs.c then asks the store how it ended. Files are replaced by rename and fsynced, so
 * that one is whole or absent. Not thread-safe for one token; whoever writes claims it first. */
#ifndef CAIRN_SERVICE_TICKET_H
#define CAIRN_SERVICE_TICKET_H

#include "base/jsonw.h"
#include "store/cairn.h"
#include "store/ids.h"

/* 128 random bits in hex: the name of a staging, and the right to publish it. */
#define TOKEN_TEXT 33

enum ticket_state {
    TICKET_STAGED,
    TICKET_QUEUED,
    TICKET_RUNNING,
    TICKET_DONE,
    TICKET_FAILED,
    TICKET_STATES_,
};

struct ticket {
    char token[TOKEN_TEXT];
    enum ticket_state state;
    uint32_t uid;                       /* whose it is */
    char id[ID_MAX + 1];                /* of the record to be */
    bool own;                           /* the staging is one of ours, removed by us */
    bool keep;                          /* but not after success */
    char gen[GEN_TEXT];                 /* since QUEUED; "" before */
    char request[65];                   /* SHA-256, in hex, of what was asked; "" before QUEUED */
    int64_t created_ns, updated_ns;     /* CLOCK_REALTIME */
    struct cairn_publish_result result; /* DONE */
    bool recovered;                     /* DONE, and of result only gen is known */
    struct cairn_error error;           /* FAILED */
    uint64_t bytes_done, bytes_total;   /* RUNNING; not kept in the file */
};

/* A fresh token. Errors: as the kernel says. */
CAIRN_MUST_CHECK int ticket_token(char out[TOKEN_TEXT], struct cairn_error *err);
bool ticket_token_is_valid(const char *token);
const char *ticket_state_name(enum ticket_state state);

/* dir: descriptor of the private folder that they lie in. */
CAIRN_MUST_CHECK int ticket_write(int dir, const struct ticket *t, struct cairn_error *err);
/* not_found: none. corrupt: no ticket, or of another token. */
CAIRN_MUST_CHECK int ticket_read(int dir, const char *token, struct ticket *out,
                                 struct cairn_error *err);
/* Absent is success. */
CAIRN_MUST_CHECK int ticket_remove(int dir, const char *token, struct cairn_error *err);
/* Remove what writers that were killed left; while nobody writes. */
CAIRN_MUST_CHECK int ticket_clean(int dir, struct cairn_error *err);
/* Call fn for the token of each, in no order, until it returns a class other than CAIRN_OK. */
CAIRN_MUST_CHECK int ticket_each(int dir,
                                 int (*fn)(void *ctx, const char *token, struct cairn_error *err),
                                 void *ctx, struct cairn_error *err);

/* Its members, as a client sees them, into the object that is open. */
void ticket_json(struct jsonw *w, const struct ticket *t);

#endif
