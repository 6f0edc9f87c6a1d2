#include "fuse/touches.h"

#include "base/clock.h"
#include "base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A bit each: 1 MiB of them at most. */
#define BITS_MAX ((uint64_t)1 << 23)
/* Of a generation larger than this, more than half being read is a copy. */
#define COPY_MIN ((uint64_t)64 << 20)
/* So long are the runs, on average, of somebody who reads on and on: he is read ahead for anyway.
 */
#define COPY_RUN 32

struct touches {
    uint32_t chunk_size, n_files;
    uint64_t data_chunks; /* of all files together, about */
    uint64_t *base;       /* owned; of each file the bit of its first chunk, and where all end */
    _Atomic uint64_t *bits;
    size_t n_words;
    atomic_bool on;
    pthread_mutex_t lock; /* guards all below, and turns bits on */
    struct trace all, late;
    uint64_t count;
    int64_t first_ns; /* of the first touch; 0: none yet */
};

int touches_new(const struct manifest *m, struct touches **out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    uint64_t n_bits = 0;
    if (info->n_files > TRACE_FILES_MAX)
        return error_set(err, CAIRN_INVALID, E2BIG, "too many files");
    struct touches *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "touches");
    pthread_mutex_init(&t->lock, NULL);
    t->chunk_size = info->chunk_size;
    t->n_files = info->n_files;
    t->data_chunks = info->data_bytes / info->chunk_size;
    t->base = calloc((size_t)info->n_files + 1, sizeof(*t->base));
    for (uint32_t i = 0; t->base && i < info->n_files && n_bits <= BITS_MAX; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        t->base[i] = n_bits;
        n_bits += f.size / info->chunk_size + 1;
        t->base[i + 1] = n_bits;
    }
    t->n_words = (size_t)(n_bits / 64 + 1);
    if (n_bits <= BITS_MAX)
        t->bits = calloc(t->n_words, sizeof(*t->bits));
    if (t->base && t->bits) {
        *out = t;
        return CAIRN_OK;
    }
    touches_free(t);
    return n_bits > BITS_MAX ? error_set(err, CAIRN_INVALID, E2BIG, "files of too many chunks")
                             : error_oom(err, "touches");
}

void touches_free(struct touches *t)
{
    if (!t)
        return;
    trace_release(&t->all);
    trace_release(&t->late);
    free(t->base);
    free((void *)t->bits);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void touches_begin(struct touches *t)
{
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->n_words; i++)
        atomic_store_explicit(&t->bits[i], 0, memory_order_relaxed);
    trace_release(&t->all);
    trace_release(&t->late);
    t->count = 0;
    t->first_ns = 0;
    atomic_store(&t->on, true);
    pthread_mutex_unlock(&t->lock);
}

/* A chunk that was not touched before, as far as the caller saw. Without memory it stays unnoted: a
 * trace need not be complete. */
static void add_first(struct touches *t, uint32_t file, uint64_t no, uint64_t bit, bool data,
                      bool late)
{
    struct cairn_error ignored;
    struct trace_run run = {.first = no, .file = file, .count = 1};
    uint64_t mask = (uint64_t)1 << bit % 64;
    pthread_mutex_lock(&t->lock);
    bool first = atomic_load(&t->on) && !(atomic_fetch_or(&t->bits[bit / 64], mask) & mask);
    if (first && data) {
        t->count++;
        if (!t->first_ns)
            t->first_ns = clock_monotonic();
        if (!trace_add(&t->all, &run, &ignored) && late)
            (void)!trace_add(&t->late, &run, &ignored);
    }
    pthread_mutex_unlock(&t->lock);
}

void touches_add(struct touches *t, const struct manifest *m, const struct trace_run *run,
                 bool late)
{
    struct manifest_file f;
    uint32_t ignored;
    uint64_t row;
    if (run->file >= t->n_files)
        return;
    for (uint64_t no = run->first; no < run->first + run->count; no++) {
        uint64_t bit = t->base[run->file] + no;
        if (bit >= t->base[run->file + 1])
            break;
        uint64_t word = atomic_load_explicit(&t->bits[bit / 64], memory_order_relaxed);
        if (word >> bit % 64 & 1)
            continue;
        manifest_file(m, run->file, &f);
        add_first(t, run->file, no, bit, manifest_lookup(m, &f, no, &ignored, &row), late);
    }
}

void touches_note(struct touches *t, const struct manifest *m, uint32_t file, uint64_t off,
                  uint64_t len, bool late)
{
    if (!len || !atomic_load_explicit(&t->on, memory_order_relaxed))
        return;
    uint64_t first = off / t->chunk_size, last = (off + len - 1) / t->chunk_size;
    struct trace_run run = {.first = first, .file = file, .count = (uint32_t)(last - first + 1)};
    touches_add(t, m, &run, late);
}

uint64_t touches_count(struct touches *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t n = t->count;
    pthread_mutex_unlock(&t->lock);
    return n;
}

bool touches_is_over(struct touches *t, int64_t now)
{
    pthread_mutex_lock(&t->lock);
    bool over = atomic_load(&t->on) && t->first_ns && now - t->first_ns >= TOUCHES_NS;
    pthread_mutex_unlock(&t->lock);
    return over;
}

static bool is_copy_locked(const struct touches *t)
{
    bool on_and_on = t->all.chunks == TRACE_CHUNKS_MAX && t->all.n < TRACE_CHUNKS_MAX / COPY_RUN;
    return on_and_on || (t->count * t->chunk_size > COPY_MIN && t->count > t->data_chunks / 2);
}

void touches_end(struct touches *t, struct touched *out)
{
    *out = (struct touched){.copy = false};
    pthread_mutex_lock(&t->lock);
    if (atomic_exchange(&t->on, false)) {
        *out = (struct touched){.all = t->all, .late = t->late, .copy = is_copy_locked(t)};
        t->all = t->late = (struct trace){0};
    }
    pthread_mutex_unlock(&t->lock);
}

void touched_release(struct touched *t)
{
    trace_release(&t->all);
    trace_release(&t->late);
}
