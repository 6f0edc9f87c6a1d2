#include "tests/lib/backend_fault.h"

#include "base/util.h"
#include "tests/lib/backend_wrap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLANS_MAX 8

struct live_plan {
    struct fault_plan plan;
    unsigned seen;
};

struct fault_backend {
    struct wrap wrap;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t delay; /* nobody signals it: only ops end a delay */
    struct live_plan plans[PLANS_MAX];
    size_t n_plans;
    unsigned calls[FAULT_OPS], fired;
};

static struct fault_backend *fault_of(struct backend *b)
{
    return (struct fault_backend *)b;
}

static const char *const op_names[FAULT_OPS] = {
    [FAULT_ANY] = "any",
    [FAULT_GET] = "get",
    [FAULT_READ] = "read",
    [FAULT_STAT] = "stat",
    [FAULT_PUT] = "put",
    [FAULT_REMOVE] = "remove",
    [FAULT_LIST] = "list",
    [FAULT_ITER_NEXT] = "iter_next",
    [FAULT_UPLOAD_NEW] = "upload_new",
    [FAULT_UPLOAD_COMMIT] = "upload_commit",
    [FAULT_STAGE] = "stage",
    [FAULT_COMMIT] = "commit",
    [FAULT_LOCK] = "lock",
    [FAULT_OPEN_FD] = "open_fd",
    [FAULT_SPACE] = "space",
};

const char *backend_fault_op_name(enum fault_op op)
{
    return op_names[op];
}

static bool has_key(const struct fault_plan *p, const char *const *keys, size_t n)
{
    if (!p->key_part)
        return true;
    for (size_t i = 0; i < n; i++)
        if (keys[i] && strstr(keys[i], p->key_part))
            return true;
    return false;
}

/* Counts a call. True, with the plan, if it is to go wrong. */
static bool is_due(struct fault_backend *f, enum fault_op op, const char *const *keys, size_t n,
                   struct fault_plan *out)
{
    bool due = false;
    pthread_mutex_lock(&f->lock);
    f->calls[op]++;
    f->calls[FAULT_ANY]++;
    for (size_t i = 0; i < f->n_plans; i++) {
        struct live_plan *l = &f->plans[i];
        const struct fault_plan *p = &l->plan;
        if ((p->op != FAULT_ANY && p->op != op) || !has_key(p, keys, n))
            continue;
        l->seen++;
        unsigned times = p->times ? p->times : 1;
        if (!due && l->seen >= p->nth && l->seen - p->nth < times) {
            *out = *p;
            due = true;
            f->fired++;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return due;
}

static int delay(struct fault_backend *f, const struct cairn_op *op, const char *what,
                 struct cairn_error *err)
{
    if (!op || (op->deadline_ns == CAIRN_NO_DEADLINE && !op->cancel))
        return error_set(err, CAIRN_TIMEOUT, ETIMEDOUT, "%s: delayed for ever (by plan)", what);
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &f->lock, &f->delay);
    pthread_mutex_lock(&f->lock);
    while (!rc)
        rc = op_wait_locked(&w, what, err);
    pthread_mutex_unlock(&f->lock);
    op_waiter_remove(&w);
    return rc;
}

static int planned(const struct fault_plan *p, enum fault_op op, const char *key,
                   struct cairn_error *err)
{
    return error_set(err, p->error_class ? p->error_class : CAIRN_TRANSIENT, p->sys_errno,
                     "%s %s: fails by plan", op_names[op], key ? key : "(no key)");
}

static uint64_t kept(const struct fault_plan *p, uint64_t len)
{
    if (!p->keep)
        return len / 2;
    return p->keep < len ? p->keep : len;
}

/* What a plan means for one call: none of the flags set, it is simply done. */
struct verdict {
    bool answered; /* rc is the answer */
    bool lost;     /* to be done, then planned() */
    bool tear, cut, flip;
    int rc;
    struct fault_plan plan;
};

static struct verdict judge(struct backend *b, const struct cairn_op *op, enum fault_op what,
                            const char *key, struct cairn_error *err)
{
    struct fault_backend *f = fault_of(b);
    struct verdict v = {.answered = false};
    if (!is_due(f, what, &key, 1, &v.plan))
        return v;
    bool writes = what == FAULT_PUT || what == FAULT_STAGE || what == FAULT_UPLOAD_COMMIT;
    bool reads = what == FAULT_GET || what == FAULT_READ;
    v.lost = v.plan.kind == FAULT_LOST;
    v.tear = v.plan.kind == FAULT_TEAR && writes;
    v.cut = v.plan.kind == FAULT_SHORT && reads;
    v.flip = v.plan.kind == FAULT_FLIP && reads;
    v.answered = !v.lost && !v.tear && !v.cut && !v.flip;
    if (v.answered)
        v.rc = v.plan.kind == FAULT_DELAY ? delay(f, op, op_names[what], err)
                                          : planned(&v.plan, what, key, err);
    return v;
}

/* The answer after the work was done. */
static int finish(const struct verdict *v, int rc, enum fault_op what, const char *key,
                  struct cairn_error *err)
{
    return !rc && (v->lost || v->tear) ? planned(&v->plan, what, key, err) : rc;
}

static void flip_bit(uint8_t *data, size_t len, uint64_t bit)
{
    if (len)
        data[bit / 8 % len] ^= (uint8_t)(1u << bit % 8);
}

/* ---- The operations ---- */

static int fault_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                     struct buf *out, struct backend_stat *stat, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_GET, key, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    size_t before = out->len;
    int rc = in->ops->get(in, op, key, max, out, stat, err);
    if (!rc && v.flip)
        flip_bit(out->data + before, out->len - before, v.plan.keep);
    if (!rc && (v.cut || v.lost))
        out->len = v.lost ? before : before + (out->len - before) / 2;
    return finish(&v, rc, FAULT_GET, key, err);
}

static int fault_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                      void *dst, size_t len, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_READ, key, err);
    if (v.answered)
        return v.rc;
    if (v.cut)
        return error_set(err, CAIRN_CORRUPT, 0, "read %s: short by plan", key);
    struct backend *in = wrap_inner(b);
    int rc = in->ops->read(in, op, key, off, dst, len, err);
    if (!rc && v.flip)
        flip_bit(dst, len, v.plan.keep);
    return finish(&v, rc, FAULT_READ, key, err);
}

static int fault_stat(struct backend *b, const struct cairn_op *op, const char *key,
                      struct backend_stat *out, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_STAT, key, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    return finish(&v, in->ops->stat(in, op, key, out, err), FAULT_STAT, key, err);
}

static int fault_put(struct backend *b, const struct cairn_op *op, const char *key,
                     const void *data, size_t len, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_PUT, key, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    size_t n = v.tear ? (size_t)kept(&v.plan, len) : len;
    return finish(&v, in->ops->put(in, op, key, data, n, err), FAULT_PUT, key, err);
}

static int fault_remove(struct backend *b, const struct cairn_op *op, const char *const *keys,
                        size_t n, bool *failed, struct cairn_error *err)
{
    struct fault_backend *f = fault_of(b);
    struct backend *in = wrap_inner(b);
    struct fault_plan p = {0};
    if (!is_due(f, FAULT_REMOVE, keys, n, &p))
        return in->ops->remove(in, op, keys, n, failed, err);
    size_t done = p.kind == FAULT_LOST ? n : p.kind == FAULT_TEAR ? (size_t)kept(&p, n) : 0;
    int rc = done ? in->ops->remove(in, op, keys, done, failed, err) : CAIRN_OK;
    /* Whoever hears no answer knows of no key that it is gone. */
    for (size_t i = p.kind == FAULT_LOST ? 0 : done; failed && i < n; i++)
        failed[i] = true;
    if (rc)
        return rc;
    if (p.kind == FAULT_DELAY)
        return delay(f, op, "remove", err);
    rc = planned(&p, FAULT_REMOVE, n ? keys[done < n ? done : 0] : NULL, err);
    if (n > 1)
        error_wrap(err, "%zu of %zu objects not removed", n - done, n);
    return rc;
}

static int fault_list(struct backend *b, const struct cairn_op *op, const char *prefix,
                      const char *after, struct backend_iter **out, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_LIST, prefix, err);
    if (v.answered)
        return v.rc;
    int rc = wrap_list(b, op, prefix, after, out, err);
    if (!rc && v.lost) {
        backend_iter_freep(out);
        *out = NULL;
    }
    return finish(&v, rc, FAULT_LIST, prefix, err);
}

static int fault_iter_next(struct backend_iter *base, const struct cairn_op *op,
                           struct backend_entry *out, struct cairn_error *err)
{
    *out = (struct backend_entry){.key = NULL};
    struct verdict v = judge(((struct wrap_iter *)base)->backend, op, FAULT_ITER_NEXT, NULL, err);
    if (v.answered || v.lost)
        return v.answered ? v.rc : planned(&v.plan, FAULT_ITER_NEXT, NULL, err);
    return wrap_iter_next(base, op, out, err);
}

static int fault_upload_new(struct backend *b, const struct cairn_op *op,
                            struct backend_upload **out, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_UPLOAD_NEW, NULL, err);
    if (v.answered || v.lost)
        return v.answered ? v.rc : planned(&v.plan, FAULT_UPLOAD_NEW, NULL, err);
    return wrap_upload_new(b, op, out, err);
}

static int fault_upload_commit(struct backend_upload *base, const struct cairn_op *op,
                               const char *key, uint64_t size, struct cairn_error *err)
{
    struct verdict v = judge(base->backend, op, FAULT_UPLOAD_COMMIT, key, err);
    if (v.answered) {
        base->backend->ops->upload_abort(base);
        return v.rc;
    }
    uint64_t n = v.tear ? kept(&v.plan, size) : size;
    return finish(&v, wrap_upload_commit(base, op, key, n, err), FAULT_UPLOAD_COMMIT, key, err);
}

static int fault_stage(struct backend *b, const struct cairn_op *op, const char *id,
                       const char *gen, const void *meta, size_t len, struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_STAGE, id, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    size_t n = v.tear ? (size_t)kept(&v.plan, len) : len;
    return finish(&v, in->ops->stage(in, op, id, gen, meta, n, err), FAULT_STAGE, id, err);
}

static int fault_commit(struct backend *b, const struct cairn_op *op, const char *id,
                        const char *gen, const void *meta, size_t len, enum backend_once once,
                        struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_COMMIT, id, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    int rc = in->ops->commit(in, op, id, gen, meta, len, once, err);
    return finish(&v, rc, FAULT_COMMIT, id, err);
}

static int fault_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
                      struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_LOCK, id, err);
    if (v.answered || v.lost)
        return v.answered ? v.rc : planned(&v.plan, FAULT_LOCK, id, err);
    struct backend *in = wrap_inner(b);
    return in->ops->lock(in, op, id, lock, err);
}

static int fault_open_fd(struct backend *b, const struct cairn_op *op, const char *key, int *fd,
                         struct cairn_error *err)
{
    struct verdict v = judge(b, op, FAULT_OPEN_FD, key, err);
    if (v.answered || v.lost)
        return v.answered ? v.rc : planned(&v.plan, FAULT_OPEN_FD, key, err);
    struct backend *in = wrap_inner(b);
    return in->ops->open_fd(in, op, key, fd, err);
}

static int fault_space(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err)
{
    struct verdict v = judge(b, NULL, FAULT_SPACE, NULL, err);
    if (v.answered)
        return v.rc;
    struct backend *in = wrap_inner(b);
    return finish(&v, in->ops->space(in, avail, total, err), FAULT_SPACE, NULL, err);
}

static void fault_free(struct backend *b)
{
    struct fault_backend *f = fault_of(b);
    backend_free(f->wrap.inner);
    pthread_cond_destroy(&f->delay);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

int backend_fault_new(struct backend *inner, struct backend **out, struct cairn_error *err)
{
    struct fault_backend *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "fault backend");
    wrap_init(&f->wrap, inner);
    struct backend_ops *ops = &f->wrap.ops;
    ops->free = fault_free;
    ops->get = fault_get;
    ops->read = fault_read;
    ops->stat = fault_stat;
    ops->put = fault_put;
    ops->remove = fault_remove;
    ops->list = fault_list;
    ops->iter_next = fault_iter_next;
    ops->upload_new = fault_upload_new;
    ops->upload_commit = fault_upload_commit;
    ops->stage = fault_stage;
    ops->commit = fault_commit;
    ops->lock = fault_lock;
    if (ops->open_fd)
        ops->open_fd = fault_open_fd;
    ops->space = fault_space;
    pthread_mutex_init(&f->lock, NULL);
    op_cond_init(&f->delay);
    *out = &f->wrap.base;
    return CAIRN_OK;
}

int backend_fault_add(struct backend *b, const struct fault_plan *plan, struct cairn_error *err)
{
    struct fault_backend *f = fault_of(b);
    if (plan->nth == 0 || plan->op >= FAULT_OPS)
        return error_set(err, CAIRN_INVALID, EINVAL, "fault plan: nth counts from 1");
    pthread_mutex_lock(&f->lock);
    bool room = f->n_plans < PLANS_MAX;
    if (room)
        f->plans[f->n_plans++] = (struct live_plan){.plan = *plan};
    pthread_mutex_unlock(&f->lock);
    return room ? CAIRN_OK
                : error_set(err, CAIRN_INVALID, EINVAL, "more than %d fault plans", PLANS_MAX);
}

void backend_fault_clear(struct backend *b)
{
    struct fault_backend *f = fault_of(b);
    pthread_mutex_lock(&f->lock);
    f->n_plans = 0;
    f->fired = 0;
    memset(f->calls, 0, sizeof(f->calls));
    pthread_mutex_unlock(&f->lock);
}

unsigned backend_fault_calls(struct backend *b, enum fault_op op)
{
    struct fault_backend *f = fault_of(b);
    pthread_mutex_lock(&f->lock);
    unsigned n = f->calls[op];
    pthread_mutex_unlock(&f->lock);
    return n;
}

unsigned backend_fault_fired(struct backend *b)
{
    struct fault_backend *f = fault_of(b);
    pthread_mutex_lock(&f->lock);
    unsigned n = f->fired;
    pthread_mutex_unlock(&f->lock);
    return n;
}

struct backend *backend_fault_inner(struct backend *b)
{
    return wrap_inner(b);
}
