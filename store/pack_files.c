#include "store/pack_files.h"

#include "base/util.h"
#include "store/pack.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_PACKS_MAX 128
#define BLOCK_LEN      4096u
#define BITMAP_LEN     (PACK_SIZE_MAX / BLOCK_LEN / 8)

/* An open pack. Users hold references; one without any stays open until it is the least recently
 * used of more than OPEN_PACKS_MAX. users and used are guarded by the table's lock, pack and fd are
 * constant. */
struct pack_entry_ref {
    uint8_t pack[PACK_ID_LEN];
    int fd;
    unsigned users;
    uint64_t used; /* the table's clock at the last use */
    /* A bit for each block of 4 KiB: a raw chunk that begins there was verified. */
    _Atomic uint8_t verified[BITMAP_LEN];
};

struct pack_files {
    pthread_mutex_t lock;
    struct pack_entry_ref *open[OPEN_PACKS_MAX];
    size_t n;
    uint64_t clock;
};

int pack_files_new(struct pack_files **out, struct cairn_error *err)
{
    struct pack_files *p = calloc(1, sizeof(*p));
    if (!p)
        return error_oom(err, "table of open packs");
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return CAIRN_OK;
}

static void ref_free(struct pack_entry_ref *r)
{
    close(r->fd);
    free(r);
}

void pack_files_free(struct pack_files *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        ref_free(p->open[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static struct pack_entry_ref *find_locked(struct pack_files *p, const uint8_t pack[PACK_ID_LEN])
{
    for (size_t i = 0; i < p->n; i++)
        if (memcmp(p->open[i]->pack, pack, PACK_ID_LEN) == 0)
            return p->open[i];
    return NULL;
}

/* Put r into the table if there is room or an unused one can leave it. *out_of is what left, to be
 * closed without the lock. */
static bool insert_locked(struct pack_files *p, struct pack_entry_ref *r,
                          struct pack_entry_ref **out_of)
{
    *out_of = NULL;
    if (p->n < OPEN_PACKS_MAX) {
        p->open[p->n++] = r;
        return true;
    }
    size_t oldest = OPEN_PACKS_MAX;
    for (size_t i = 0; i < p->n; i++)
        if (!p->open[i]->users &&
            (oldest == OPEN_PACKS_MAX || p->open[i]->used < p->open[oldest]->used))
            oldest = i;
    if (oldest == OPEN_PACKS_MAX)
        return false;
    *out_of = p->open[oldest];
    p->open[oldest] = r;
    return true;
}

int pack_file_get(struct cairn_store *s, const struct cairn_op *op, const uint8_t pack[PACK_ID_LEN],
                  struct pack_file *out, struct cairn_error *err)
{
    *out = (struct pack_file){.fd = -1};
    struct backend *b = s->backend;
    if (!b->ops->open_fd)
        return CAIRN_OK;
    struct pack_files *p = s->packs;
    pthread_mutex_lock(&p->lock);
    struct pack_entry_ref *r = find_locked(p, pack);
    if (r) {
        r->users++;
        r->used = ++p->clock;
    }
    pthread_mutex_unlock(&p->lock);
    if (!r) {
        char key[KEY_MAX];
        layout_pack(pack, key);
        int fd;
        int rc = b->ops->open_fd(b, op, key, &fd, err);
        if (rc)
            return rc;
        r = calloc(1, sizeof(*r));
        if (!r) {
            close(fd);
            return error_oom(err, "open pack");
        }
        memcpy(r->pack, pack, PACK_ID_LEN);
        r->fd = fd;
        r->users = 1;
        struct pack_entry_ref *spare = NULL, *theirs;
        pthread_mutex_lock(&p->lock);
        theirs = find_locked(p, pack);
        if (theirs) {
            theirs->users++;
            spare = r;
            r = theirs;
        } else if (!insert_locked(p, r, &spare)) {
            r->used = UINT64_MAX; /* not in the table: closed when put back */
        }
        if (r->used != UINT64_MAX)
            r->used = ++p->clock;
        pthread_mutex_unlock(&p->lock);
        if (spare)
            ref_free(spare);
    }
    *out = (struct pack_file){.fd = r->fd, .ref = r};
    return CAIRN_OK;
}

void pack_file_put(struct cairn_store *s, struct pack_file *f)
{
    struct pack_entry_ref *r = f->ref;
    *f = (struct pack_file){.fd = -1};
    if (!r)
        return;
    pthread_mutex_lock(&s->packs->lock);
    r->users--;
    bool last = r->users == 0 && r->used == UINT64_MAX;
    pthread_mutex_unlock(&s->packs->lock);
    if (last)
        ref_free(r);
}

/* One pack at a time, with a use of its own while it is looked at. */
void pack_files_tidy(struct pack_files *p)
{
    for (size_t i = 0;; i++) {
        struct stat st;
        struct pack_entry_ref *gone = NULL;
        pthread_mutex_lock(&p->lock);
        struct pack_entry_ref *r = i < p->n ? p->open[i] : NULL;
        if (r)
            r->users++;
        pthread_mutex_unlock(&p->lock);
        if (!r)
            return;
        bool deleted = fstat(r->fd, &st) == 0 && st.st_nlink == 0;
        pthread_mutex_lock(&p->lock);
        r->users--;
        if (deleted && !r->users && i < p->n && p->open[i] == r) {
            p->open[i] = p->open[--p->n];
            gone = r;
        }
        pthread_mutex_unlock(&p->lock);
        if (gone) {
            ref_free(gone);
            i--; /* another one has its place */
        }
    }
}

bool pack_file_verified(const struct pack_file *f, uint32_t offset)
{
    uint32_t block = offset / BLOCK_LEN;
    return offset % BLOCK_LEN == 0 && block / 8 < BITMAP_LEN &&
           (atomic_load_explicit(&f->ref->verified[block / 8], memory_order_acquire) &
            1u << block % 8);
}

void pack_file_set_verified(const struct pack_file *f, uint32_t offset)
{
    uint32_t block = offset / BLOCK_LEN;
    if (offset % BLOCK_LEN == 0 && block / 8 < BITMAP_LEN)
        atomic_fetch_or_explicit(&f->ref->verified[block / 8], (uint8_t)(1u << block % 8),
                                 memory_order_release);
}
