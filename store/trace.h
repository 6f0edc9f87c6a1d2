/* Traces: records/<id>/trace-<gen> tells which file chunks of a generation its first reader
 * touched, in the order of the first touches, so that the next one finds them here
 * (docs/format.md). By path and file chunk: a collector that moves chunks, and a fork, change
 * neither.
 *
 * A trace is a hint and nothing else. It is no root, makes no record exist, and may be wrong, old
 * or somebody's invention: each value is checked against the manifest in hand, and what does not
 * fit is passed over. Plain data, not thread-safe. */
#ifndef CAIRN_STORE_TRACE_H
#define CAIRN_STORE_TRACE_H

#include "store/manifest.h"
#include "store/store.h"

/* Of the object, and of what it may name. */
#define TRACE_MAX        ((size_t)1024 * 1024)
#define TRACE_CHUNKS_MAX 8192u
#define TRACE_FILES_MAX  4096u

/* File chunks first .. first + count - 1 of a file of the manifest. */
struct trace_run {
    uint64_t first;
    uint32_t file; /* its number in the manifest */
    uint32_t count;
};

struct trace {
    struct trace_run *runs; /* owned; in the order in which they were touched */
    size_t n, cap;
    uint32_t chunks; /* sum of the counts: at most TRACE_CHUNKS_MAX */
};

void trace_release(struct trace *t);
#define CLEANUP_TRACE __attribute__((cleanup(trace_release)))

/* Add a run, joined to the last one where it goes on from there; of one that is too long for a
 * trace the beginning (none of it: the trace is full, which is no error). */
CAIRN_MUST_CHECK int trace_add(struct trace *t, const struct trace_run *run,
                               struct cairn_error *err);

/* What of the text fits m, as runs of m's files. m NULL: only whether it is a trace. corrupt: it is
 * none. */
CAIRN_MUST_CHECK int trace_decode(const void *text, size_t len, const struct manifest *m,
                                  struct trace *out, struct cairn_error *err);
/* Runs of files whose paths are no UTF-8 are left out: JSON cannot name those. invalid: it would be
 * larger than TRACE_MAX. */
CAIRN_MUST_CHECK int trace_encode(const struct trace *t, const struct manifest *m, struct buf *out,
                                  struct cairn_error *err);

/* The trace of (id, gen), as trace_decode has it. not_found: it has none. */
CAIRN_MUST_CHECK int trace_get(struct cairn_store *s, const struct cairn_op *op, const char *id,
                               const char *gen, const struct manifest *m, struct trace *out,
                               struct cairn_error *err);
/* Create or replace that of the generation m. Errors: also those of store_check_writer. */
CAIRN_MUST_CHECK int trace_put(struct cairn_store *s, const struct cairn_op *op,
                               const struct manifest *m, const struct trace *t,
                               struct cairn_error *err);

#endif
