#include "store/fetch_claims.h"

#include <stdlib.h>
#include <string.h>

struct fetch_claims {
    pthread_mutex_t lock; /* guards the list */
    pthread_cond_t ended; /* a claim */
    struct fetch_claim *first;
};

int fetch_claims_new(struct fetch_claims **out, struct cairn_error *err)
{
    struct fetch_claims *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "fetch");
    pthread_mutex_init(&c->lock, NULL);
    op_cond_init(&c->ended);
    *out = c;
    return CAIRN_OK;
}

void fetch_claims_free(struct fetch_claims *c)
{
    if (!c)
        return;
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void fetch_claims_lock(struct fetch_claims *c)
{
    pthread_mutex_lock(&c->lock);
}

void fetch_claims_unlock(struct fetch_claims *c)
{
    pthread_mutex_unlock(&c->lock);
}

static bool holds(const struct fetch_claim *claim, const struct chunk_loc *loc)
{
    if (memcmp(claim->locs[0]->pack, loc->pack, PACK_ID_LEN) != 0)
        return false;
    size_t low = 0, high = claim->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (claim->locs[middle]->offset == loc->offset)
            return true;
        if (claim->locs[middle]->offset < loc->offset)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool fetch_claims_has_locked(const struct fetch_claims *c, const struct chunk_loc *loc)
{
    const struct fetch_claim *claim = c->first;
    while (claim && !holds(claim, loc))
        claim = claim->next;
    return claim != NULL;
}

void fetch_claims_add_locked(struct fetch_claims *c, struct fetch_claim *claim)
{
    claim->next = c->first;
    c->first = claim;
}

void fetch_claims_remove(struct fetch_claims *c, struct fetch_claim *claim)
{
    pthread_mutex_lock(&c->lock);
    struct fetch_claim **link = &c->first;
    while (*link != claim)
        link = &(*link)->next;
    *link = claim->next;
    pthread_cond_broadcast(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

int fetch_claims_wait(struct fetch_claims *c, const struct cairn_op *op,
                      const struct chunk_loc *loc, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &c->lock, &c->ended);
    pthread_mutex_lock(&c->lock);
    while (!rc && fetch_claims_has_locked(c, loc))
        rc = op_wait_locked(&w, "waiting for another fetch", err);
    pthread_mutex_unlock(&c->lock);
    op_waiter_remove(&w);
    return rc;
}
