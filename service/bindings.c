#include "service/bindings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct binding {
    uint64_t connection;
    char lease[CAIRN_LEASE_TEXT];
    struct binding *next;
};

struct bindings {
    pthread_mutex_t lock; /* guards all below */
    struct binding *list;
    uint64_t n;
};

int bindings_new(struct bindings **out, struct cairn_error *err)
{
    struct bindings *b = calloc(1, sizeof(*b));
    if (!b)
        return error_oom(err, "leases");
    pthread_mutex_init(&b->lock, NULL);
    *out = b;
    return CAIRN_OK;
}

static void free_list(struct binding *list)
{
    for (struct binding *next; list; list = next) {
        next = list->next;
        free(list);
    }
}

void bindings_free(struct bindings *b)
{
    if (!b)
        return;
    free_list(b->list);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

int bindings_add(struct bindings *b, uint64_t connection, const char *lease,
                 struct cairn_error *err)
{
    struct binding *one = malloc(sizeof(*one));
    if (!one)
        return error_oom(err, "lease");
    one->connection = connection;
    memcpy(one->lease, lease, sizeof(one->lease));
    pthread_mutex_lock(&b->lock);
    one->next = b->list;
    b->list = one;
    b->n++;
    pthread_mutex_unlock(&b->lock);
    return CAIRN_OK;
}

static struct binding *unlink_locked(struct bindings *b, struct binding **at)
{
    struct binding *one = *at;
    *at = one->next;
    b->n--;
    return one;
}

void bindings_remove(struct bindings *b, const char *lease)
{
    struct binding *one = NULL;
    pthread_mutex_lock(&b->lock);
    for (struct binding **at = &b->list; *at && !one;)
        if (strcmp((*at)->lease, lease) == 0)
            one = unlink_locked(b, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&b->lock);
    free(one);
}

bool bindings_take(struct bindings *b, uint64_t connection, char lease[CAIRN_LEASE_TEXT])
{
    struct binding *one = NULL;
    pthread_mutex_lock(&b->lock);
    for (struct binding **at = &b->list; *at && !one;)
        if ((*at)->connection == connection)
            one = unlink_locked(b, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&b->lock);
    if (one)
        memcpy(lease, one->lease, sizeof(one->lease));
    free(one);
    return one;
}

uint64_t bindings_count(struct bindings *b)
{
    pthread_mutex_lock(&b->lock);
    uint64_t n = b->n;
    pthread_mutex_unlock(&b->lock);
    return n;
}
