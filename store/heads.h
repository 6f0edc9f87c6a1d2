/* What a listing shows of each record, remembered from one to the next: a local file,
 * <state>/<store id>/heads, of rows of one size, appended to and now and then written anew. A hint
 * and nothing more: each row is bound by a keyed checksum to its store, its record, and a stamp of
 * the objects that it was read from, which whoever asks compares with what is there now. A file
 * that is damaged, cut, of another version or another store is as good as none, and is replaced.
 *
 * Thread-safe; several processes may use one file. No call fails: what cannot be remembered is read
 * again. A heads that is NULL remembers nothing. */
#ifndef CAIRN_STORE_HEADS_H
#define CAIRN_STORE_HEADS_H

#include "base/hash.h"
#include "store/ids.h"

/* Rows that are kept at most: 40 MB. */
#define HEADS_MAX 262144u

struct head {
    char id[ID_MAX + 1];
    char gen[GEN_TEXT];
    uint8_t stamp[XXH3_LEN]; /* of the objects that this was read from */
    int64_t created_ns;
    uint64_t logical_bytes, stored_bytes, files;
    bool has_digest;
    uint8_t digest[SHA256_LEN];
};

struct heads;

/* Touches no file yet. state: the store's own folder; secret: the store's, borrowed. */
CAIRN_MUST_CHECK int heads_new(const char *state, const uint8_t *secret, struct heads **out,
                               struct cairn_error *err);
void heads_free(struct heads *h);

/* Bracket of a listing: read what other processes have added; then find and put; then write what
 * was put. all: every record that there is was asked for or put, so that what was not can be
 * forgotten.
 */
uint32_t heads_begin(struct heads *h);
void heads_end(struct heads *h, uint32_t listing, bool all);

/* False: the record is not known. Whether it still is what it was, its stamp tells. */
bool heads_find(struct heads *h, uint32_t listing, const char *id, struct head *out);
void heads_put(struct heads *h, uint32_t listing, const struct head *head);

#endif
