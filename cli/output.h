/* Standard output: buffered text and JSON, in pieces, so that a listing of any length takes no
 * memory. The first failure sticks and is seen at output_end: a full disk or a closed pipe never
 * passes for success. Waiting for a slow reader ends with the op. Used by one thread. */
#ifndef CAIRN_CLI_OUTPUT_H
#define CAIRN_CLI_OUTPUT_H

#include "base/jsonw.h"
#include "base/op.h"
#include "cli/text.h"

struct output {
    int fd;
    const struct cairn_op *op; /* borrowed; NULL: wait for ever */
    struct buf buf;
    struct jsonw json; /* writes into buf */
    bool in_array;     /* a top-level JSON array is open: an error becomes its last element */
    int rc;            /* the first failure, which err tells of */
    struct cairn_error err;
};

void output_init(struct output *out, int fd);
void output_release(struct output *out);

void output_printf(struct output *out, const char *fmt, ...) CAIRN_PRINTF(2, 3);
/* With odd bytes escaped. */
void output_text(struct output *out, const void *text, size_t len, enum text_mode mode);
/* Bytes as they are, past the buffer (which is written first). Returns the sticky class, and passes
 * its error on. */
CAIRN_MUST_CHECK int output_bytes(struct output *out, const void *data, size_t len,
                                  struct cairn_error *err);
/* To be called between two elements: writes the buffer when it has grown large. Returns the sticky
 * class. */
int output_piece(struct output *out);
/* End a JSON document: a line feed. */
void output_json_end(struct output *out);
/* Write what is left. Returns the sticky class, and passes its error on. */
CAIRN_MUST_CHECK int output_end(struct output *out, struct cairn_error *err);

#endif
