#include "fuse/inode.h"

#include "base/util.h"
#include "fuse/file.h"
#include "fuse/ops.h"
#include "fuse/spool_fd.h"

#include <pthread.h>
#include <string.h>

#define ROOT_NODE_ID 1 /* FUSE_ROOT_ID */

struct inode_table {
    pthread_mutex_t lock;
    struct inode root;
    struct inode **buckets; /* guarded by lock, as is all below; n_buckets is a power of two */
    size_t n_buckets, n;
    struct inode *strays; /* hidden ones, found by their address only */
};

/* FNV-1a: keys are ours or hashes already. */
static uint64_t hash_key(enum inode_kind kind, const void *key, size_t len)
{
    const uint8_t *p = key;
    uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)kind;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

int inode_table_new(struct inode_table **out, struct cairn_error *err)
{
    struct inode_table *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "inodes");
    t->n_buckets = 256;
    t->buckets = calloc(t->n_buckets, sizeof(t->buckets[0]));
    if (!t->buckets) {
        free(t);
        return error_oom(err, "inodes");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->root.kind = INODE_ROOT;
    t->root.ino = ROOT_NODE_ID;
    *out = t;
    return CAIRN_OK;
}

static void free_list(struct inode *i)
{
    while (i) {
        struct inode *next = i->next;
        inode_free(i);
        i = next;
    }
}

void inode_table_free(struct inode_table *t)
{
    if (!t)
        return;
    for (size_t b = 0; b < t->n_buckets; b++)
        free_list(t->buckets[b]);
    free_list(t->strays);
    free(t->buckets);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

struct inode *inode_of(struct mount *m, uint64_t node_id)
{
    return node_id == ROOT_NODE_ID ? &m->inodes->root : (struct inode *)(uintptr_t)node_id;
}

uint64_t inode_node_id(const struct mount *m, const struct inode *i)
{
    return i == &m->inodes->root ? ROOT_NODE_ID : (uint64_t)(uintptr_t)i;
}

struct inode *inode_new(enum inode_kind kind, const void *key, size_t key_len)
{
    struct inode *i = calloc(1, sizeof(*i));
    if (!i)
        return NULL;
    i->kind = kind;
    i->key = malloc(key_len ? key_len : 1);
    if (!i->key) {
        free(i);
        return NULL;
    }
    memcpy(i->key, key, key_len);
    i->key_len = key_len;
    return i;
}

void inode_free(struct inode *i)
{
    if (!i)
        return;
    switch (i->kind) {
    case INODE_SPOOL:
        spool_inode_free(i->spool);
        break;
    case INODE_FILE:
        file_state_free(i->file);
        break;
    default:
        free(i->path);
        free(i->bytes);
    }
    free(i->key);
    free(i);
}

static struct inode **find_locked(struct inode_table *t, enum inode_kind kind, const void *key,
                                  size_t key_len)
{
    struct inode **at = &t->buckets[hash_key(kind, key, key_len) & (t->n_buckets - 1)];
    while (*at && ((*at)->kind != kind || (*at)->key_len != key_len ||
                   memcmp((*at)->key, key, key_len) != 0))
        at = &(*at)->next;
    return at;
}

/* Without memory for it, the buckets only get longer. */
static void grow_locked(struct inode_table *t)
{
    size_t n = 2 * t->n_buckets;
    struct inode **buckets = calloc(n, sizeof(buckets[0]));
    if (!buckets)
        return;
    for (size_t b = 0; b < t->n_buckets; b++) {
        struct inode *i = t->buckets[b];
        while (i) {
            struct inode *next = i->next;
            struct inode **at = &buckets[hash_key(i->kind, i->key, i->key_len) & (n - 1)];
            i->next = *at;
            *at = i;
            i = next;
        }
    }
    free(t->buckets);
    t->buckets = buckets;
    t->n_buckets = n;
}

struct inode *inode_find(struct mount *m, enum inode_kind kind, const void *key, size_t key_len)
{
    struct inode_table *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct inode *i = *find_locked(t, kind, key, key_len);
    if (i)
        i->lookups++;
    pthread_mutex_unlock(&t->lock);
    return i;
}

struct inode *inode_intern(struct mount *m, struct inode *fresh)
{
    struct inode_table *t = m->inodes;
    struct inode *spare = NULL;
    pthread_mutex_lock(&t->lock);
    struct inode **at = find_locked(t, fresh->kind, fresh->key, fresh->key_len), *i = *at;
    if (i) {
        spare = fresh;
    } else {
        *at = i = fresh;
        i->next = NULL;
        t->n++;
    }
    i->lookups++;
    if (t->n > 2 * t->n_buckets)
        grow_locked(t);
    pthread_mutex_unlock(&t->lock);
    inode_free(spare);
    return i;
}

static void unlink_locked(struct inode_table *t, struct inode *i)
{
    struct inode **at =
        i->hidden ? &t->strays
                  : &t->buckets[hash_key(i->kind, i->key, i->key_len) & (t->n_buckets - 1)];
    while (*at != i)
        at = &(*at)->next;
    *at = i->next;
    if (!i->hidden)
        t->n--;
}

void inode_hide(struct mount *m, struct inode *i)
{
    struct inode_table *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    if (!i->hidden) {
        unlink_locked(t, i);
        i->hidden = true;
        i->next = t->strays;
        t->strays = i;
    }
    pthread_mutex_unlock(&t->lock);
}

static bool is_of_record(const struct inode *i, const char *id)
{
    switch (i->kind) {
    case INODE_META:
    case INODE_DIGEST:
    case INODE_EXPORT:
    case INODE_SUBDIR:
        return strcmp(i->id, id) == 0;
    default:
        return false;
    }
}

void inode_hide_record(struct mount *m, const char *id)
{
    struct inode_table *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    for (size_t b = 0; b < t->n_buckets; b++)
        for (struct inode **at = &t->buckets[b]; *at;) {
            struct inode *i = *at;
            if (!is_of_record(i, id)) {
                at = &i->next;
                continue;
            }
            *at = i->next;
            t->n--;
            i->hidden = true;
            i->next = t->strays;
            t->strays = i;
        }
    pthread_mutex_unlock(&t->lock);
}

void inode_ref(struct mount *m, struct inode *i)
{
    struct inode_table *t = m->inodes;
    if (i == &t->root)
        return;
    pthread_mutex_lock(&t->lock);
    i->lookups++;
    pthread_mutex_unlock(&t->lock);
}

void inode_forget(struct mount *m, struct inode *i, uint64_t n)
{
    struct inode_table *t = m->inodes;
    if (i == &t->root)
        return;
    pthread_mutex_lock(&t->lock);
    i->lookups -= n < i->lookups ? n : i->lookups;
    bool last = i->lookups == 0;
    if (last)
        unlink_locked(t, i);
    pthread_mutex_unlock(&t->lock);
    if (last)
        inode_free(i);
}

uint64_t inode_number(const void *key, size_t len)
{
    /* Programs are known that lose the upper half of an inode number's sign bit. */
    uint64_t h = hash_key(INODE_ROOT, key, len);
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u & INT64_MAX;
    return h > 1 ? h : 2;
}

struct inode *inode_record(struct mount *m, const char *id)
{
    size_t len = strlen(id);
    struct inode *i = inode_find(m, INODE_RECORD, id, len);
    if (i)
        return i;
    i = inode_new(INODE_RECORD, id, len);
    if (!i)
        return NULL;
    i->ino = inode_number(id, len);
    memcpy(i->id, id, len + 1);
    return inode_intern(m, i);
}
