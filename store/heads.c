#include "store/heads.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* A row: magic, id padded with zeros, generation, stamp, the numbers, digest; then the checksum of
 * all that. Little-endian. The magic changes with the form. */
#define MAGIC      0x31485243u /* "CRH1" */
#define AT_ID      4
#define AT_GEN     40
#define AT_STAMP   48
#define AT_CREATED 64
#define AT_LOGICAL 72
#define AT_STORED  80
#define AT_FILES   88
#define AT_FLAGS   96
#define AT_DIGEST  104
#define AT_CHECK   136
#define ROW_LEN    (AT_CHECK + XXH3_LEN)

/* The file is written anew when it has more rows that are of no use than of use, and this many. */
#define WASTE_MIN 1024u

struct row {
    uint8_t bytes[ROW_LEN];
    uint32_t listing; /* the last one that met it */
};

struct heads {
    char *path, *new_path; /* owned, constant */
    const uint8_t *secret; /* borrowed, constant */
    pthread_mutex_t lock;  /* guards all below */
    struct row *rows;      /* one a record; owned */
    uint32_t n, cap;
    uint32_t *slots; /* hash table of numbers + 1; owned */
    uint32_t n_slots;
    uint8_t *added; /* rows that are not in the file yet; owned */
    uint32_t n_added, cap_added;
    dev_t dev; /* the file whose first `read` bytes are known */
    ino_t ino;
    uint64_t read;
    bool bad;     /* it has something in it that is no row */
    bool useless; /* it cannot be written: told once, not tried again */
    uint32_t listing;
};

/* ---- Rows ---- */

static void check_of(const struct heads *h, const uint8_t *row, uint8_t out[XXH3_LEN])
{
    hash_xxh3(h->secret, row, AT_CHECK, out);
}

static bool is_row(const struct heads *h, const uint8_t *row)
{
    uint8_t check[XXH3_LEN];
    if (get_le32(row) != MAGIC)
        return false;
    check_of(h, row, check);
    return memcmp(check, row + AT_CHECK, XXH3_LEN) == 0;
}

static void encode(const struct heads *h, const struct head *head, uint8_t row[ROW_LEN])
{
    memset(row, 0, ROW_LEN);
    put_le32(row, MAGIC);
    memcpy(row + AT_ID, head->id, strnlen(head->id, ID_MAX));
    (void)util_unhex(head->gen, row + AT_GEN, GEN_LEN);
    memcpy(row + AT_STAMP, head->stamp, XXH3_LEN);
    put_le64(row + AT_CREATED, (uint64_t)head->created_ns);
    put_le64(row + AT_LOGICAL, head->logical_bytes);
    put_le64(row + AT_STORED, head->stored_bytes);
    put_le64(row + AT_FILES, head->files);
    row[AT_FLAGS] = head->has_digest;
    memcpy(row + AT_DIGEST, head->digest, SHA256_LEN);
    check_of(h, row, row + AT_CHECK);
}

static void decode(const uint8_t row[ROW_LEN], struct head *out)
{
    memcpy(out->id, row + AT_ID, ID_MAX);
    out->id[ID_MAX] = 0;
    util_hex(row + AT_GEN, GEN_LEN, out->gen);
    memcpy(out->stamp, row + AT_STAMP, XXH3_LEN);
    out->created_ns = (int64_t)get_le64(row + AT_CREATED);
    out->logical_bytes = get_le64(row + AT_LOGICAL);
    out->stored_bytes = get_le64(row + AT_STORED);
    out->files = get_le64(row + AT_FILES);
    out->has_digest = row[AT_FLAGS] != 0;
    memcpy(out->digest, row + AT_DIGEST, SHA256_LEN);
}

/* ---- The table ---- */

/* The slot of that id (ID_MAX bytes, padded), or the free one where it belongs. */
static uint32_t *slot_locked(struct heads *h, const uint8_t *id)
{
    uint8_t hash[XXH3_LEN];
    hash_xxh3(h->secret, id, ID_MAX, hash);
    uint32_t i = get_le32(hash) & (h->n_slots - 1);
    while (h->slots[i] && memcmp(h->rows[h->slots[i] - 1].bytes + AT_ID, id, ID_MAX) != 0)
        i = (i + 1) & (h->n_slots - 1);
    return &h->slots[i];
}

static bool grow_locked(struct heads *h)
{
    uint32_t cap = h->cap ? 2 * h->cap : 256;
    struct row *rows = reallocarray(h->rows, cap, sizeof(*rows));
    if (!rows)
        return false;
    h->rows = rows;
    uint32_t *slots = calloc(2 * (size_t)cap, sizeof(*slots));
    if (!slots)
        return false;
    free(h->slots);
    h->slots = slots;
    h->n_slots = 2 * cap;
    h->cap = cap;
    for (uint32_t i = 0; i < h->n; i++)
        *slot_locked(h, h->rows[i].bytes + AT_ID) = i + 1;
    return true;
}

/* listing: the one that meets it; 0: none yet. */
static void insert_locked(struct heads *h, const uint8_t *row, uint32_t listing)
{
    uint32_t *s = h->n_slots ? slot_locked(h, row + AT_ID) : NULL;
    if (!s || !*s) {
        if (h->n >= HEADS_MAX || (h->n == h->cap && !grow_locked(h)))
            return;
        s = slot_locked(h, row + AT_ID);
        *s = ++h->n;
        h->rows[h->n - 1].listing = 0;
    }
    struct row *r = &h->rows[*s - 1];
    memcpy(r->bytes, row, ROW_LEN);
    if (r->listing < listing)
        r->listing = listing;
}

static void forget_all_locked(struct heads *h)
{
    h->n = 0;
    if (h->slots)
        memset(h->slots, 0, h->n_slots * sizeof(*h->slots));
}

/* Drop the rows that no listing since this one has met. */
static void forget_locked(struct heads *h, uint32_t listing)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < h->n; i++)
        if (h->rows[i].listing >= listing)
            h->rows[kept++] = h->rows[i];
    h->n = kept;
    if (h->slots)
        memset(h->slots, 0, h->n_slots * sizeof(*h->slots));
    for (uint32_t i = 0; i < h->n; i++)
        *slot_locked(h, h->rows[i].bytes + AT_ID) = i + 1;
}

/* ---- The file; none of this under the lock ---- */

struct piece {
    uint8_t *data; /* owned */
    size_t len;
    struct stat st;
    bool anew; /* from the beginning of a file */
};

/* What the file has behind the bytes that are known; false: nothing, or it cannot be read. */
static bool read_piece(const struct heads *h, dev_t dev, ino_t ino, uint64_t known,
                       struct piece *out)
{
    CLEANUP_FD int fd = open(h->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *out = (struct piece){.data = NULL};
    if (fd < 0 || fstat(fd, &out->st) != 0 || !S_ISREG(out->st.st_mode))
        return false;
    uint64_t size = (uint64_t)out->st.st_size;
    out->anew = out->st.st_dev != dev || out->st.st_ino != ino || size < known;
    uint64_t from = out->anew ? 0 : known;
    if (size == from || size > (uint64_t)4 * HEADS_MAX * ROW_LEN)
        return out->anew;
    out->data = malloc((size_t)(size - from));
    ssize_t n = out->data ? util_pread_full(fd, out->data, (size_t)(size - from), from) : -1;
    if (n < 0) {
        free(util_steal(&out->data));
        return false;
    }
    out->len = (size_t)n;
    return true;
}

static bool write_all(int fd, const uint8_t *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* One call, so that rows of several processes do not mix. */
static bool append(const struct heads *h, const uint8_t *rows, size_t len)
{
    CLEANUP_FD int fd = open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd >= 0 && write_all(fd, rows, len);
}

/* Whoever is at it already will do. */
static bool replace(const struct heads *h, const uint8_t *rows, size_t len)
{
    CLEANUP_FD int fd = open(h->new_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat mine, there;
    if (fd < 0)
        return false;
    /* What was open before another renamed it is the file in use by now. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &mine) != 0 ||
        stat(h->new_path, &there) != 0 || mine.st_ino != there.st_ino ||
        mine.st_dev != there.st_dev)
        return true;
    if (ftruncate(fd, 0) == 0 && write_all(fd, rows, len) && rename(h->new_path, h->path) == 0)
        return true;
    int e = errno;
    (void)unlink(h->new_path);
    errno = e;
    return false;
}

/* ---- Calls ---- */

int heads_new(const char *state, const uint8_t *secret, struct heads **out, struct cairn_error *err)
{
    struct heads *h = calloc(1, sizeof(*h));
    if (!h)
        return error_oom(err, "what listings remember");
    pthread_mutex_init(&h->lock, NULL);
    h->secret = secret;
    if (asprintf(&h->path, "%s/heads", state) < 0)
        h->path = NULL;
    if (asprintf(&h->new_path, "%s/heads.new", state) < 0)
        h->new_path = NULL;
    if (!h->path || !h->new_path) {
        heads_free(h);
        return error_oom(err, "what listings remember");
    }
    *out = h;
    return CAIRN_OK;
}

void heads_free(struct heads *h)
{
    if (!h)
        return;
    pthread_mutex_destroy(&h->lock);
    free(h->path);
    free(h->new_path);
    free(h->rows);
    free(h->slots);
    free(h->added);
    free(h);
}

static void take_piece_locked(struct heads *h, const struct piece *p)
{
    if (p->anew) {
        forget_all_locked(h);
        h->read = 0;
        h->bad = false;
    }
    h->dev = p->st.st_dev;
    h->ino = p->st.st_ino;
    for (size_t at = 0; at + ROW_LEN <= p->len; at += ROW_LEN) {
        if (is_row(h, p->data + at))
            insert_locked(h, p->data + at, 0);
        else
            h->bad = true;
    }
    h->read += p->len;
    /* The end of a row that was never written whole: what is appended behind it is none. */
    if (h->read % ROW_LEN || h->read != (uint64_t)p->st.st_size)
        h->bad = true;
}

uint32_t heads_begin(struct heads *h)
{
    if (!h)
        return 0;
    pthread_mutex_lock(&h->lock);
    dev_t dev = h->dev;
    ino_t ino = h->ino;
    uint64_t known = h->read;
    pthread_mutex_unlock(&h->lock);
    struct piece p;
    bool more = read_piece(h, dev, ino, known, &p);
    pthread_mutex_lock(&h->lock);
    uint32_t listing = ++h->listing;
    /* Unless another thread has done it meanwhile. */
    if (more && h->dev == dev && h->ino == ino && h->read == known)
        take_piece_locked(h, &p);
    pthread_mutex_unlock(&h->lock);
    free(p.data);
    return listing;
}

bool heads_find(struct heads *h, uint32_t listing, const char *id, struct head *out)
{
    uint8_t padded[ID_MAX] = {0};
    if (!h)
        return false;
    memcpy(padded, id, strnlen(id, ID_MAX));
    pthread_mutex_lock(&h->lock);
    uint32_t *s = h->n_slots ? slot_locked(h, padded) : NULL;
    bool found = s && *s;
    if (found) {
        struct row *r = &h->rows[*s - 1];
        decode(r->bytes, out);
        if (r->listing < listing)
            r->listing = listing;
    }
    pthread_mutex_unlock(&h->lock);
    return found;
}

void heads_put(struct heads *h, uint32_t listing, const struct head *head)
{
    uint8_t row[ROW_LEN];
    if (!h)
        return;
    encode(h, head, row);
    pthread_mutex_lock(&h->lock);
    if (h->n_added == h->cap_added && h->n_added < HEADS_MAX) {
        uint32_t cap = h->cap_added ? 2 * h->cap_added : 64;
        uint8_t *added = reallocarray(h->added, cap, ROW_LEN);
        if (added) {
            h->added = added;
            h->cap_added = cap;
        }
    }
    if (h->n_added < h->cap_added)
        memcpy(h->added + (size_t)h->n_added++ * ROW_LEN, row, ROW_LEN);
    insert_locked(h, row, listing);
    pthread_mutex_unlock(&h->lock);
}

/* All rows, to be written anew; owned by the caller. */
static uint8_t *all_rows_locked(const struct heads *h, size_t *len)
{
    uint8_t *all = malloc((size_t)h->n * ROW_LEN + 1);
    *len = all ? (size_t)h->n * ROW_LEN : 0;
    for (uint32_t i = 0; all && i < h->n; i++)
        memcpy(all + (size_t)i * ROW_LEN, h->rows[i].bytes, ROW_LEN);
    return all;
}

void heads_end(struct heads *h, uint32_t listing, bool all)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    if (all)
        forget_locked(h, listing);
    else if (h->n == HEADS_MAX)
        forget_locked(h, h->listing / 2); /* where only parts are ever listed */
    uint64_t in_file = h->read / ROW_LEN + h->n_added;
    bool anew = h->bad || in_file > 2 * (uint64_t)h->n + WASTE_MIN;
    CLEANUP_FREE uint8_t *rows = NULL;
    size_t len = 0;
    if (anew && !h->useless) {
        rows = all_rows_locked(h, &len);
    } else if (h->n_added && !h->useless) {
        rows = util_steal(&h->added);
        len = (size_t)h->n_added * ROW_LEN;
        h->cap_added = 0;
    }
    h->n_added = 0;
    pthread_mutex_unlock(&h->lock);
    if (!rows || (anew ? replace(h, rows, len) : append(h, rows, len)))
        return;
    struct cairn_error e;
    error_sys(&e, errno, "writing %s", h->path);
    log_line(LOG_LEVEL_INFO, "%s; listings will read again what they show", e.message);
    pthread_mutex_lock(&h->lock);
    h->useless = true;
    pthread_mutex_unlock(&h->lock);
}
