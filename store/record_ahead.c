#include "store/record_ahead.h"

void record_ahead_step(struct record_ahead *a, uint32_t file, uint32_t chunk_size, uint64_t first,
                       uint64_t last, uint64_t *from, uint64_t *n)
{
    struct record_ahead_file *f = &a->files[file % RECORD_AHEAD_FILES];
    *from = *n = 0;
    if (f->file != file + 1) {
        *f = (struct record_ahead_file){.file = file + 1, .next = last + 1};
        return;
    }
    if (last + 1 == f->next)
        return; /* more of the chunk that the last read ended in */
    if (first != f->next && first + 1 != f->next) {
        *f = (struct record_ahead_file){.file = file + 1, .next = last + 1};
        return;
    }
    f->next = last + 1;
    if (++f->run < 2)
        return;
    uint32_t least = RECORD_AHEAD_MIN > chunk_size ? RECORD_AHEAD_MIN / chunk_size : 1;
    uint32_t most = RECORD_AHEAD_MAX > chunk_size ? RECORD_AHEAD_MAX / chunk_size : 1;
    uint32_t window = f->window ? f->window : least;
    if (f->until > f->next && f->until - f->next > window / 2)
        return;
    *from = f->until > f->next ? f->until : f->next;
    *n = window;
    f->until = *from + window;
    f->window = 2 * window < most ? 2 * window : most;
}
