/* Reading the small XML documents that S3 answers with, by expat, without a tree.
 *
 * Names are local names (a prefix is cut off); a DOCTYPE is refused, so no entity can be defined;
 * depth, text and names are bounded. Not thread-safe a call; calls are independent. */
#ifndef CAIRN_S3_XML_H
#define CAIRN_S3_XML_H

#include "base/error.h"

#include <stdbool.h>

/* path: the names from the root, "ListBucketResult/Contents/Key". text: all character data directly
 * inside the element, borrowed for the call, terminated (len does not count the NUL). Called when
 * the element ends. Non-zero stops the reading and is returned. */
typedef int xml_leaf(void *ctx, const char *path, const char *text, size_t len,
                     struct cairn_error *err);

/* The whole document, which must be complete. Transient with EBADMSG: it is not well-formed, or cut
 * (what a server sends once more may be whole). Internal: memory. */
CAIRN_MUST_CHECK int xml_parse(const void *data, size_t len, xml_leaf *leaf, void *ctx,
                               struct cairn_error *err);

#define S3_CODE_MAX   64
#define S3_DETAIL_MAX 200

/* What an <Error> document says; "" where it does not. */
struct s3_fault {
    char code[S3_CODE_MAX];
    char message[S3_DETAIL_MAX]; /* printable ASCII */
    char region[S3_CODE_MAX];
    char endpoint[S3_DETAIL_MAX];
};

/* True when the document's root is <Error>, well-formed up to what was read of it; *out is filled
 * with what could be read even if the rest is cut. False: any other bytes, *out is empty. */
bool s3_fault_parse(const void *data, size_t len, struct s3_fault *out);

#endif
