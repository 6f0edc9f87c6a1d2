#include "fuse/turns.h"

#include <stdlib.h>
#include <string.h>

struct turns {
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct turn *taken; /* guarded by lock */
};

int turns_new(struct turns **out, struct cairn_error *err)
{
    struct turns *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "turns");
    pthread_mutex_init(&t->lock, NULL);
    op_cond_init(&t->given);
    *out = t;
    return CAIRN_OK;
}

void turns_free(struct turns *t)
{
    if (!t)
        return;
    pthread_cond_destroy(&t->given);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static bool is_taken_locked(const struct turns *t, const char *id)
{
    const struct turn *i = t->taken;
    while (i && strcmp(i->id, id) != 0)
        i = i->next;
    return i;
}

int turns_take(struct turns *t, const struct cairn_op *op, const char *id, struct turn *turn,
               struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    memcpy(turn->id, id, strlen(id) + 1);
    op_waiter_add(&w, op, &t->lock, &t->given);
    pthread_mutex_lock(&t->lock);
    while (is_taken_locked(t, id) &&
           !(rc = op_wait_locked(&w, "waiting for a commit that is under way", err)))
        ;
    if (!rc) {
        turn->next = t->taken;
        t->taken = turn;
    }
    pthread_mutex_unlock(&t->lock);
    op_waiter_remove(&w);
    return rc;
}

void turns_give(struct turns *t, struct turn *turn)
{
    pthread_mutex_lock(&t->lock);
    struct turn **at = &t->taken;
    while (*at != turn)
        at = &(*at)->next;
    *at = turn->next;
    pthread_cond_broadcast(&t->given);
    pthread_mutex_unlock(&t->lock);
}
