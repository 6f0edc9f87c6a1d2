/* One page of ListObjectsV2 or ListObjects, and the answer to DeleteObjects. */
#ifndef CAIRN_S3_XML_LIST_H
#define CAIRN_S3_XML_LIST_H

#include "base/buf.h"
#include "store/backend.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes of a page that are read: 1,000 keys of 1,024 bytes, three times that when encoded, and what
 * stands around them. */
#define XML_LIST_MAX ((size_t)8 * 1024 * 1024)

struct s3_entry {
    const char *key; /* in the page, decoded, terminated */
    size_t key_off;  /* private to the reader */
    struct backend_stat stat;
};

struct s3_page {
    struct s3_entry *entries; /* owned */
    size_t n, cap;
    struct buf keys;    /* what entries point into */
    bool truncated;     /* there is more */
    char *token, *next; /* continuation token; next marker. NULL: none. Owned, decoded */
    size_t skipped;     /* keys that hold a NUL, which no key of ours does */
};

void s3_page_release(struct s3_page *page);

/* Fill an empty page. A document that is cut, has another root, an entry without key or size, or no
 * IsTruncated is transient with EBADMSG: never a short page. Times are cut to whole seconds, as
 * those of a HEAD are. */
CAIRN_MUST_CHECK int xml_list_parse(const void *data, size_t len, struct s3_page *page,
                                    struct cairn_error *err);

/* For each <Error> of a DeleteResult call failed, for each <Deleted> deleted, with the key decoded.
 * Errors as above. */
struct xml_delete_events {
    void (*deleted)(void *ctx, const char *key);
    void (*failed)(void *ctx, const char *key, const char *code, const char *message);
    void *ctx;
};
CAIRN_MUST_CHECK int xml_delete_parse(const void *data, size_t len,
                                      const struct xml_delete_events *events,
                                      struct cairn_error *err);

/* Append the body of a DeleteObjects request. A key that no XML 1.0 document can hold (control
 * bytes, bad UTF-8) is invalid: look first with xml_can_hold. */
CAIRN_MUST_CHECK int xml_delete_body(const char *const *keys, size_t n, struct buf *out,
                                     struct cairn_error *err);
bool xml_can_hold(const char *key);

#endif
