#include "store/kin.h"

#include "base/hash.h"
#include "base/util.h"

#include <pthread.h>
#include <string.h>

#define MEMBERS   64u /* are remembered, the newest */
#define SAMPLES   32u /* chunks of each */
#define FIRST     8u  /* of them are looked at before one is believed to be worth more */
#define TRIED     16u /* members are looked at for one file, the newest */
#define DATA_MIN  ((uint64_t)1 << 20)
#define NAME_MAX_ 256u

struct sample {
    uint64_t chunk_no;
    uint8_t xxh[XXH3_LEN];
};

struct member {
    char id[ID_MAX + 1], gen[GEN_TEXT], path[NAME_MAX_];
    uint64_t size;
    uint32_t n;
    struct sample samples[SAMPLES];
};

struct kin {
    pthread_mutex_t lock;
    struct member *members[MEMBERS]; /* newest first; owned; guarded by lock */
};

int kin_new(struct kin **out, struct cairn_error *err)
{
    struct kin *k = calloc(1, sizeof(*k));
    if (!k)
        return error_oom(err, "what new files may resemble");
    pthread_mutex_init(&k->lock, NULL);
    *out = k;
    return CAIRN_OK;
}

void kin_free(struct kin *k)
{
    if (!k)
        return;
    for (size_t i = 0; i < MEMBERS; i++)
        free(k->members[i]);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* ---- Remembering ----------------------------------------------------------------------------- */

/* Chunks at even distances among those that the file has. */
static void take_samples(const struct manifest *m, const struct manifest_file *f,
                         struct member *out)
{
    uint64_t chunks = 0, before = 0;
    for (uint32_t i = 0; i < f->n_extents; i++) {
        struct manifest_extent x;
        manifest_extent(m, f->first_extent + i, &x);
        chunks += x.count;
    }
    for (uint32_t i = 0; i < f->n_extents; i++) {
        struct manifest_extent x;
        manifest_extent(m, f->first_extent + i, &x);
        for (; out->n < SAMPLES; out->n++) {
            uint64_t wanted = out->n * chunks / SAMPLES;
            if (wanted < before || wanted >= before + x.count)
                break;
            uint32_t in_extent = (uint32_t)(wanted - before);
            struct sample *s = &out->samples[out->n];
            s->chunk_no = x.chunk_no + in_extent;
            memcpy(s->xxh, manifest_chunk_xxh(m, x.first + in_extent), XXH3_LEN);
        }
        before += x.count;
    }
}

static bool is_same(const struct member *a, const char *id, const char *gen, const char *path)
{
    return strcmp(a->gen, gen) == 0 && strcmp(a->id, id) == 0 && strcmp(a->path, path) == 0;
}

/* What is at place at becomes the newest; what was there is handed out. */
static struct member *to_front_locked(struct kin *k, size_t at, struct member *m)
{
    struct member *was = k->members[at];
    memmove(&k->members[1], &k->members[0], at * sizeof(k->members[0]));
    k->members[0] = m ? m : was;
    return was;
}

/* m is transferred. */
static void insert(struct kin *k, struct member *m)
{
    pthread_mutex_lock(&k->lock);
    size_t at = 0;
    while (at < MEMBERS - 1 && k->members[at] && !is_same(k->members[at], m->id, m->gen, m->path))
        at++;
    struct member *gone = to_front_locked(k, at, m);
    pthread_mutex_unlock(&k->lock);
    free(gone);
}

/* Whether it is remembered already; it is the newest then. */
static bool refresh(struct kin *k, const struct member *m)
{
    pthread_mutex_lock(&k->lock);
    size_t at = 0;
    while (at < MEMBERS && k->members[at] && !is_same(k->members[at], m->id, m->gen, m->path))
        at++;
    bool there = at < MEMBERS && k->members[at];
    if (there)
        (void)to_front_locked(k, at, NULL);
    pthread_mutex_unlock(&k->lock);
    return there;
}

static void remember(struct kin *k, const struct manifest *m, uint32_t i)
{
    const struct manifest_info *info = manifest_info(m);
    struct manifest_file f;
    manifest_file(m, i, &f);
    if (f.data_bytes < DATA_MIN || f.path_len >= NAME_MAX_)
        return;
    struct member *made = calloc(1, sizeof(*made));
    if (!made)
        return;
    memcpy(made->id, info->id, sizeof(made->id));
    memcpy(made->gen, info->gen, sizeof(made->gen));
    memcpy(made->path, f.path, f.path_len);
    made->size = f.size;
    if (refresh(k, made)) {
        free(made);
        return;
    }
    take_samples(m, &f, made);
    insert(k, made);
}

void kin_remember(struct kin *k, const struct manifest *m, uint32_t i)
{
    uint32_t n = manifest_info(m)->n_files;
    if (i < n)
        remember(k, m, i);
    for (i = i == UINT32_MAX ? 0 : n; i < n; i++)
        remember(k, m, i);
}

/* ---- Finding --------------------------------------------------------------------------------- */

struct search {
    struct cairn_store *s;
    int fd;
    uint64_t size;
    uint8_t *chunk; /* room for one */
};

static bool matches(const struct search *q, const struct sample *s)
{
    uint32_t chunk_size = q->s->format.chunk_size;
    uint64_t off = s->chunk_no * chunk_size;
    uint8_t xxh[XXH3_LEN];
    if (off >= q->size)
        return false;
    size_t len = q->size - off < chunk_size ? (size_t)(q->size - off) : chunk_size;
    if (util_pread_full(q->fd, q->chunk, len, off) != (ssize_t)len)
        return false;
    hash_xxh3(q->s->format.secret, q->chunk, len, xxh);
    return memcmp(xxh, s->xxh, XXH3_LEN) == 0;
}

/* How many of its samples, spread over the file, are the same. */
static uint32_t count_matches(const struct search *q, const struct member *m)
{
    uint32_t same = 0, looked = 0;
    for (uint32_t pass = 0; pass < SAMPLES / FIRST; pass++) {
        for (uint32_t i = pass; i < m->n; i += SAMPLES / FIRST, looked++)
            same += matches(q, &m->samples[i]);
        if (!same)
            return 0;
    }
    return looked && same >= looked / 4 ? same : 0;
}

/* Copies of the members to look at. */
static size_t candidates(struct kin *k, const char *path, uint64_t size, struct member *out)
{
    size_t n = 0;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < MEMBERS && k->members[i] && n < TRIED; i++)
        if (k->members[i]->size == size && strcmp(k->members[i]->path, path) == 0)
            out[n++] = *k->members[i];
    pthread_mutex_unlock(&k->lock);
    return n;
}

struct manifest *kin_find(struct kin *k, struct cairn_store *s, const struct cairn_op *op, int fd,
                          const char *path, uint64_t size)
{
    if (!s->backend->ops->open_fd)
        return NULL;
    CLEANUP_FREE struct member *some = calloc(TRIED, sizeof(*some));
    CLEANUP_FREE uint8_t *chunk = malloc(s->format.chunk_size);
    struct manifest *m = NULL;
    struct cairn_error ignored;
    if (!some || !chunk)
        return NULL;
    struct search q = {.s = s, .fd = fd, .size = size, .chunk = chunk};
    size_t n = candidates(k, path, size, some), best = 0;
    uint32_t most = 0;
    for (size_t i = 0; i < n && !op_check(op, "comparing files", &ignored); i++) {
        uint32_t same = count_matches(&q, &some[i]);
        if (same > most) {
            most = same;
            best = i;
        }
    }
    if (!most || store_load_manifest(s, op, some[best].id, some[best].gen, &m, &ignored))
        return NULL;
    return m;
}
