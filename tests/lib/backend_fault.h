/* A wrapper around any backend that fails at will: a plan says which call goes wrong, and how.
 * Calls are counted by operation, with or without a plan. Thread-safe; what lies beneath is called
 * without a lock held.
 *
 * The wrapper has the kind of what it wraps, and an open_fd only if that has one. */
#ifndef CAIRN_TESTS_BACKEND_FAULT_H
#define CAIRN_TESTS_BACKEND_FAULT_H

#include "store/backend.h"

/* The operations that count and can fail. FAULT_ANY, in a plan: whichever comes. */
enum fault_op {
    FAULT_ANY,
    FAULT_GET,
    FAULT_READ,
    FAULT_STAT,
    FAULT_PUT,
    FAULT_REMOVE,
    FAULT_LIST,
    FAULT_ITER_NEXT, /* a listing cut short by an error: the page that cannot be had */
    FAULT_UPLOAD_NEW,
    FAULT_UPLOAD_COMMIT,
    FAULT_STAGE,
    FAULT_COMMIT,
    FAULT_LOCK,
    FAULT_OPEN_FD,
    FAULT_SPACE,
    FAULT_OPS, /* their number */
};

enum fault_kind {
    FAULT_FAIL,  /* nothing is done, the plan's error comes back */
    FAULT_LOST,  /* everything is done, the plan's error comes back: the answer got lost */
    FAULT_DELAY, /* nothing is done until the op's deadline passes or its token fires. An op with
                  * neither has timed out at once */
    FAULT_TEAR,  /* put, stage, upload_commit: an object of the first half of the bytes (or the
                  * first keep, if set) is durable under the key; remove: the first half of the keys
                  * are; then the plan's error. Elsewhere as FAULT_FAIL */
    FAULT_SHORT, /* get: the first half of the bytes, as success. read: corrupt. Else FAULT_FAIL */
    FAULT_FLIP,  /* get, read: one bit of the result (bit number keep, modulo its length) is wrong;
                  * success. Elsewhere as FAULT_FAIL */
};

struct fault_plan {
    enum fault_op op;
    enum fault_kind kind;
    unsigned nth;         /* from 1: the first call that goes wrong, of those that match */
    unsigned times;       /* that many in a row; 0 = 1; UINT_MAX = from nth on */
    const char *key_part; /* only calls whose key (id, prefix; any key of a remove) contains this;
                           * borrowed until the plan is cleared; NULL: all. upload_new, iter_next
                           * and space have no key */
    int error_class;      /* 0: transient */
    int sys_errno;
    uint64_t keep;
};

/* inner is transferred, unless this fails. The caller owns *out until backend_free. */
CAIRN_MUST_CHECK int backend_fault_new(struct backend *inner, struct backend **out,
                                       struct cairn_error *err);

/* At most 8 plans stand at a time; the first that is due wins, each counts by itself from here. */
CAIRN_MUST_CHECK int backend_fault_add(struct backend *b, const struct fault_plan *plan,
                                       struct cairn_error *err);
void backend_fault_clear(struct backend *b); /* plans and counts */

/* Calls since the start or the last clear; of FAULT_ANY: all. */
unsigned backend_fault_calls(struct backend *b, enum fault_op op);
/* Calls that went wrong by plan. */
unsigned backend_fault_fired(struct backend *b);

const char *backend_fault_op_name(enum fault_op op);

/* What is wrapped; borrowed. */
struct backend *backend_fault_inner(struct backend *b);

#endif
