#include "store/pin_keeper.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "base/thread.h"
#include "base/util.h"
#include "store/pin.h"

#include <string.h>

#define CALL_MAX_NS  (60 * NS_PER_S) /* of one put or remove */
#define REMOVE_TRIES 4

/* All that is held of one generation.
 *
 *   refs > 0               held; due_ns: when its pin is put (again)
 *   refs == 0, maybe_there let go; due_ns: when its pin is removed
 *   refs == 0, else        freed by whoever sees it first, but not while busy */
struct held {
    struct held *next;
    /* constant */
    char id[ID_MAX + 1], gen[GEN_TEXT];
    /* guarded by the keeper's lock */
    unsigned refs;
    bool busy; /* the thread is putting or removing its pin: it is not freed */
    int64_t due_ns;
    bool maybe_there; /* a put was begun */
    bool failing;
    unsigned removes; /* that failed */
    struct pack_set packs;
    /* the thread's own */
    char key[KEY_MAX]; /* of its pin; "": none yet */
};

/* One use. Several of a generation share a struct held. */
struct keeper_hold {
    struct held *held;
};

struct pin_keeper {
    /* constant */
    struct cairn_store *s;
    int64_t grace_ns;
    void (*tick)(struct cairn_store *s);
    struct cairn_cancel *cancel; /* owned; fired at the end */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    bool stop, woken;
    struct held *list;
    struct keeper_stats stats; /* the counts of calls */

    char node[LAYOUT_NODE_TEXT]; /* the thread's own; "": not read yet */
};

static void held_free(struct held *h)
{
    pack_set_release(&h->packs);
    free(h);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void unlink_locked(struct pin_keeper *k, struct held *h)
{
    struct held **p = &k->list;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
}

static int put_pin(struct pin_keeper *k, const struct cairn_op *op, struct held *h,
                   struct pack_set *packs, struct cairn_error *err)
{
    struct pin p = {0};
    int rc = k->node[0] ? CAIRN_OK : pin_node(k->s, k->node, err);
    if (!rc && !h->key[0]) {
        rc = pin_init(&p, k->node, h->id, h->gen, err);
        if (!rc)
            memcpy(h->key, p.key, KEY_MAX);
    } else if (!rc) {
        memcpy(p.key, h->key, KEY_MAX);
        memcpy(p.id, h->id, sizeof(p.id));
        memcpy(p.gen, h->gen, sizeof(p.gen));
    }
    if (rc) {
        k->node[0] = 0;
        return rc;
    }
    p.packs = *packs; /* borrowed */
    rc = pin_put(k->s, op, &p, err);
    STEP("keeper.put");
    return rc;
}

static int remove_pin(struct pin_keeper *k, const struct cairn_op *op, const struct held *h,
                      struct cairn_error *err)
{
    struct pin p = {0};
    memcpy(p.key, h->key, KEY_MAX);
    int rc = pin_remove(k->s, op, &p, err);
    STEP("keeper.removed");
    return rc;
}

static struct cairn_op call_op(const struct pin_keeper *k)
{
    int64_t bound = k->grace_ns / 8;
    return (struct cairn_op){.deadline_ns =
                                 clock_add(clock_monotonic(), bound < NS_PER_S      ? NS_PER_S
                                                              : bound > CALL_MAX_NS ? CALL_MAX_NS
                                                                                    : bound),
                             .cancel = k->cancel};
}

static int copy_packs_locked(const struct held *h, struct pack_set *out, struct cairn_error *err)
{
    size_t n = h->packs.n;
    *out = (struct pack_set){0};
    if (!n)
        return CAIRN_OK;
    out->packs = malloc(n * PACK_ID_LEN);
    if (!out->packs)
        return error_oom(err, "pin");
    memcpy(out->packs, h->packs.packs, n * PACK_ID_LEN);
    out->n = out->cap = n;
    return CAIRN_OK;
}

static void tell(const struct held *h, bool was_failing, int rc, const struct cairn_error *err)
{
    if (rc && !was_failing)
        log_line(LOG_LEVEL_WARNING,
                 "pin of %s, generation %s: %s; it is tried again, and collectors may take away "
                 "what is held if that goes on for longer than the grace",
                 h->id, h->gen, err->message);
    else if (!rc && was_failing)
        log_line(LOG_LEVEL_NOTICE, "pin of %s, generation %s: it is there now", h->id, h->gen);
}

/* The lock is held, and is free while the store is called. */
static void refresh_locked(struct pin_keeper *k, struct held *h)
{
    struct cairn_error err;
    CLEANUP_PACK_SET struct pack_set packs;
    int64_t begun = clock_boottime();
    int rc = copy_packs_locked(h, &packs, &err);
    bool was_failing = h->failing;
    h->busy = true;
    h->maybe_there = h->maybe_there || !rc;
    k->stats.puts += !rc;
    pthread_mutex_unlock(&k->lock);
    if (!rc) {
        struct cairn_op op = call_op(k);
        rc = put_pin(k, &op, h, &packs, &err);
    }
    if (rc != CAIRN_CANCELLED)
        tell(h, was_failing, rc, &err);
    pthread_mutex_lock(&k->lock);
    h->busy = false;
    h->failing = rc != CAIRN_OK;
    k->stats.failures += rc != CAIRN_OK;
    int64_t now = clock_boottime();
    if (!h->refs)
        h->due_ns = now;
    else
        h->due_ns = rc ? clock_add(now, k->grace_ns / 32) : clock_add(begun, k->grace_ns / 4);
}

/* The same. True: there is nothing more to do for it. */
static bool take_away_locked(struct pin_keeper *k, struct held *h, const struct cairn_op *op)
{
    struct cairn_error err;
    if (!h->maybe_there || !h->key[0])
        return true;
    h->busy = true;
    k->stats.removes++;
    pthread_mutex_unlock(&k->lock);
    int rc = remove_pin(k, op, h, &err);
    if (rc && ++h->removes >= REMOVE_TRIES)
        log_line(LOG_LEVEL_WARNING, "pin of %s, generation %s: %s; it is left to expire", h->id,
                 h->gen, err.message);
    pthread_mutex_lock(&k->lock);
    h->busy = false;
    k->stats.failures += rc != CAIRN_OK;
    h->due_ns = clock_add(clock_boottime(), k->grace_ns / 32);
    return !rc || h->removes >= REMOVE_TRIES;
}

/* The one whose time has come first; NULL: none's has. */
static struct held *due_locked(const struct pin_keeper *k, int64_t now)
{
    struct held *first = NULL;
    for (struct held *h = k->list; h; h = h->next)
        if (h->due_ns <= now && (!first || h->due_ns < first->due_ns))
            first = h;
    return first;
}

static void wait_locked(struct pin_keeper *k)
{
    int64_t now = clock_boottime(), until = clock_add(now, k->grace_ns / 16);
    for (const struct held *h = k->list; h; h = h->next)
        if (h->due_ns < until)
            until = h->due_ns;
    int64_t at = clock_add(clock_monotonic(), until > now ? until - now : 0);
    struct timespec ts = {.tv_sec = at / NS_PER_S, .tv_nsec = at % NS_PER_S};
    if (!k->stop && !k->woken)
        pthread_cond_timedwait(&k->wake, &k->lock, &ts);
    k->woken = false;
}

/* One call at a time: while the store does not answer, each may take a minute, and the tick is not
 * to wait for all of them. False: nothing was due. */
static bool work_locked(struct pin_keeper *k)
{
    struct held *h = k->stop ? NULL : due_locked(k, clock_boottime());
    if (!h)
        return false;
    if (h->refs) {
        refresh_locked(k, h);
        return true;
    }
    struct cairn_op op = call_op(k);
    if (take_away_locked(k, h, &op)) {
        unlink_locked(k, h);
        held_free(h);
    }
    return true;
}

static void *thread_main(void *arg)
{
    struct pin_keeper *k = arg;
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        pthread_mutex_unlock(&k->lock);
        if (k->tick)
            k->tick(k->s);
        pthread_mutex_lock(&k->lock);
        if (!work_locked(k))
            wait_locked(k);
    }
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), KEEPER_CLOSE_NS)};
    while (k->list) {
        struct held *h = k->list;
        struct cairn_error ignored;
        if (op_check(&op, "closing", &ignored) == CAIRN_OK)
            (void)take_away_locked(k, h, &op);
        unlink_locked(k, h);
        held_free(h);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int start(struct pin_keeper *k, struct cairn_error *err)
{
    int e = thread_start(&k->thread, thread_main, k);
    k->started = e == 0;
    return e ? error_sys(err, e, "starting the keeper of pins") : CAIRN_OK;
}

int keeper_new(struct cairn_store *s, int64_t grace_ns, void (*tick)(struct cairn_store *s),
               struct pin_keeper **out, struct cairn_error *err)
{
    struct pin_keeper *k = calloc(1, sizeof(*k));
    if (!k)
        return error_oom(err, "keeper of pins");
    k->s = s;
    k->grace_ns = grace_ns > 0 ? grace_ns : KEEPER_GRACE_NS;
    k->tick = tick;
    pthread_mutex_init(&k->lock, NULL);
    op_cond_init(&k->wake);
    int rc = cairn_cancel_new(&k->cancel, err);
    if (!rc)
        rc = start(k, err);
    if (rc) {
        keeper_free(k);
        return rc;
    }
    *out = k;
    return CAIRN_OK;
}

void keeper_free(struct pin_keeper *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    k->stop = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    if (k->cancel)
        cairn_cancel_fire(k->cancel);
    if (k->started)
        pthread_join(k->thread, NULL);
    cairn_cancel_free(k->cancel);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static int add_packs(struct pack_set *to, const struct manifest *m, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_packs; i++)
        rc = pack_set_add(to, manifest_pack(m, i), err);
    return rc;
}

static struct held *find_locked(const struct pin_keeper *k, const char *id, const char *gen)
{
    for (struct held *h = k->list; h; h = h->next)
        if (h->refs && strcmp(h->id, id) == 0 && strcmp(h->gen, gen) == 0)
            return h;
    return NULL;
}

int keeper_hold(struct cairn_store *s, const char *id, const char *gen, const struct manifest *m,
                struct keeper_hold **out, struct cairn_error *err)
{
    struct pin_keeper *k = s->keeper;
    struct keeper_hold *hold = calloc(1, sizeof(*hold));
    struct held *fresh = calloc(1, sizeof(*fresh));
    int rc = hold && fresh ? CAIRN_OK : error_oom(err, "holding a generation");
    if (!rc) {
        memcpy(fresh->id, id, strlen(id) + 1);
        memcpy(fresh->gen, gen, GEN_TEXT);
        fresh->due_ns = clock_add(clock_boottime(), k->grace_ns / 2);
        rc = add_packs(&fresh->packs, m, err);
    }
    if (!rc) {
        pthread_mutex_lock(&k->lock);
        hold->held = find_locked(k, id, gen);
        if (!hold->held) {
            hold->held = util_steal(&fresh);
            hold->held->next = k->list;
            k->list = hold->held;
        } else {
            rc = add_packs(&hold->held->packs, m, err);
        }
        if (!rc) {
            hold->held->refs++;
            k->stats.holds++;
        }
        pthread_mutex_unlock(&k->lock);
    }
    if (fresh)
        held_free(fresh);
    if (rc) {
        free(hold);
        return rc;
    }
    *out = hold;
    return CAIRN_OK;
}

int keeper_hold_more(struct cairn_store *s, struct keeper_hold *h, const struct manifest *m,
                     struct cairn_error *err)
{
    struct pin_keeper *k = s->keeper;
    pthread_mutex_lock(&k->lock);
    int rc = add_packs(&h->held->packs, m, err);
    pthread_mutex_unlock(&k->lock);
    return rc;
}

void keeper_release(struct cairn_store *s, struct keeper_hold *hold)
{
    if (!hold)
        return;
    struct pin_keeper *k = s->keeper;
    struct held *h = hold->held, *dead = NULL;
    pthread_mutex_lock(&k->lock);
    k->stats.holds--;
    if (--h->refs == 0) {
        if (h->maybe_there || h->busy) {
            h->due_ns = clock_boottime();
            k->woken = true;
            pthread_cond_signal(&k->wake);
        } else {
            unlink_locked(k, h);
            dead = h;
        }
    }
    pthread_mutex_unlock(&k->lock);
    if (dead)
        held_free(dead);
    free(hold);
}

void keeper_wake(struct cairn_store *s)
{
    struct pin_keeper *k = s->keeper;
    pthread_mutex_lock(&k->lock);
    k->woken = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
}

void keeper_stats(struct cairn_store *s, struct keeper_stats *out)
{
    struct pin_keeper *k = s->keeper;
    pthread_mutex_lock(&k->lock);
    *out = k->stats;
    for (const struct held *h = k->list; h; h = h->next) {
        out->held_generations += h->refs > 0;
        out->pins += h->maybe_there;
        out->busy += h->busy;
    }
    pthread_mutex_unlock(&k->lock);
}
