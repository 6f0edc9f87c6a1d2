/* Calls of the library, asked of a service over its socket: the same arguments, results, classes
 * and messages. For commands that look at or change records without moving their bytes from or to
 * the local disk. */
#ifndef CAIRN_CLI_REMOTE_H
#define CAIRN_CLI_REMOTE_H

#include "cli/http.h"
#include "store/cairn.h"

CAIRN_MUST_CHECK int remote_list(struct http_client *c, const struct cairn_op *op,
                                 const struct cairn_list_options *options,
                                 int (*fn)(void *ctx, const struct cairn_list_entry *entry),
                                 void *ctx, struct cairn_error *err);
CAIRN_MUST_CHECK int remote_delete(struct http_client *c, const struct cairn_op *op, const char *id,
                                   struct cairn_error *err);
CAIRN_MUST_CHECK int remote_hold(struct http_client *c, const struct cairn_op *op, const char *id,
                                 bool held, struct cairn_error *err);
CAIRN_MUST_CHECK int remote_fork(struct http_client *c, const struct cairn_op *op, const char *id,
                                 const char *new_id, const void *meta, size_t meta_len,
                                 char gen[CAIRN_GEN_TEXT], struct cairn_error *err);

/* A record as it was shown. */
struct remote_record {
    struct cairn_record_info info; /* borrowed from answer and bytes */
    struct cairn_file *files;      /* owned array, info.files of them */
    struct jval *answer;           /* owned */
    struct buf *bytes;             /* owned; texts that are no UTF-8 */
    size_t n_bytes;
};
CAIRN_MUST_CHECK int remote_show(struct http_client *c, const struct cairn_op *op, const char *id,
                                 struct remote_record *out, struct cairn_error *err);
void remote_record_release(struct remote_record *r); /* zero-initialised is allowed */

/* The bytes of one file. */
CAIRN_MUST_CHECK int remote_cat(struct http_client *c, const struct cairn_op *op, const char *id,
                                const char *path, http_sink *sink, void *ctx,
                                struct cairn_error *err);

#endif
