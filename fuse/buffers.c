#include "fuse/buffers.h"

#include <pthread.h>
#include <stdlib.h>

/* More than that only while more threads answer at once. */
#define KEEP_MAX 16

struct buffers {
    pthread_mutex_t lock;
    void *free[KEEP_MAX]; /* guarded by lock, as is n */
    size_t n;
};

int buffers_new(struct buffers **out, struct cairn_error *err)
{
    struct buffers *b = calloc(1, sizeof(*b));
    if (!b)
        return error_oom(err, "buffers");
    pthread_mutex_init(&b->lock, NULL);
    *out = b;
    return CAIRN_OK;
}

void buffers_free(struct buffers *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n; i++)
        free(b->free[i]);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void *buffers_get(struct buffers *b)
{
    void *buffer = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->n)
        buffer = b->free[--b->n];
    pthread_mutex_unlock(&b->lock);
    return buffer ? buffer : aligned_alloc(4096, BUFFER_LEN);
}

void buffers_put(struct buffers *b, void *buffer)
{
    pthread_mutex_lock(&b->lock);
    if (buffer && b->n < KEEP_MAX) {
        b->free[b->n++] = buffer;
        buffer = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    free(buffer);
}
