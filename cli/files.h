/* Small local files: read whole, written whole. Where a path comes from the user it is shown with
 * odd bytes escaped. */
#ifndef CAIRN_CLI_FILES_H
#define CAIRN_CLI_FILES_H

#include "base/buf.h"
#include "base/op.h"

#include <stdbool.h>

/* Append the file at path ("-": standard input) to out. what names it in messages. More than
 * out->max bytes: invalid, found out without reading all of it. Waiting for a pipe or a terminal is
 * bounded by op (NULL: not). Errors else as of the system call. */
CAIRN_MUST_CHECK int files_read(const char *path, const struct cairn_op *op, const char *what,
                                struct buf *out, struct cairn_error *err);

/* A new content for path, staged beside it so that a full disk shows early and the file is never
 * seen half-written. Nothing of it remains after an abort; a path that is there and is no regular
 * file (a terminal, /dev/null) is written to as it is, at the commit. Waiting for somebody to read
 * a FIFO is bounded by op (NULL: not), which is borrowed until the commit. Zero-initialised:
 * nothing. */
struct staged_file {
    char *path, *tmp; /* owned */
    int fd;
    const void *data; /* borrowed until the commit */
    size_t len;
    const struct cairn_op *op;
};
CAIRN_MUST_CHECK int files_stage(struct staged_file *s, const char *path, const void *data,
                                 size_t len, const struct cairn_op *op, struct cairn_error *err);
CAIRN_MUST_CHECK int files_commit(struct staged_file *s, struct cairn_error *err);
void files_abort(struct staged_file *s); /* also after a commit: it then only frees */
#define CLEANUP_STAGED __attribute__((cleanup(files_abort)))

/* The folder and every one above it that is absent, with this mode. */
CAIRN_MUST_CHECK int files_make_dirs(const char *path, unsigned mode, struct cairn_error *err);

/* The absolute path without links, "." and "..", as far as it exists; what does not exist is
 * appended as it is written. The caller owns *out. */
CAIRN_MUST_CHECK int files_canonical(const char *path, char **out, struct cairn_error *err);
/* Whether inner is outer or lies beneath it; both are canonical. */
bool files_is_inside(const char *inner, const char *outer);

#endif
