#include "s3/backend_s3.h"

#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "s3/backend_remove.h"
#include "s3/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_BLOCK ((size_t)1024 * 1024)

struct backend_s3 {
    struct backend base;
    struct s3_client *client;
    char *prefix; /* "" or ends in '/' */
    char *spool_dir;
    atomic_bool no_conditions; /* the server does not know them */
};

static struct backend_s3 *self(struct backend *b)
{
    return (struct backend_s3 *)b;
}

/* prefix + key. Owned by the caller. */
static char *full_key(const struct backend_s3 *s, const char *key)
{
    char *out;
    return asprintf(&out, "%s%s", s->prefix, key) < 0 ? NULL : out;
}

/* The same for the key of an object. Without a key the request would be one on the bucket. */
static int object_key(const struct backend_s3 *s, const char *key, char **out,
                      struct cairn_error *err)
{
    int rc = s3_key_check(key, err);
    if (rc)
        return rc;
    *out = full_key(s, key);
    return *out ? CAIRN_OK : error_oom(err, key);
}

static void s3_free(struct backend *b)
{
    struct backend_s3 *s = self(b);
    s3_client_free(s->client);
    free(s->prefix);
    free(s->spool_dir);
    free(s);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int s3_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                  struct buf *out, struct backend_stat *stat, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    CLEANUP_FREE char *full = NULL;
    int rc = object_key(s, key, &full, err);
    if (rc)
        return rc;
    struct http_sink sink = {.buf = out, .buf_start = out->len, .max = max};
    struct s3_request req = {
        .verb = S3_GET, .key = full, .name = key, .len = S3_WHOLE, .sink = &sink};
    struct s3_result res;
    rc = s3_perform(s->client, op, &req, &res, err);
    if (rc)
        out->len = sink.buf_start;
    else if (stat)
        *stat = res.stat;
    return rc;
}

static int no_such_byte(const char *key, uint64_t off, struct cairn_error *err)
{
    return error_set(err, CAIRN_CORRUPT, EOVERFLOW, "GET %.200s: no object reaches to byte %llu",
                     key, (unsigned long long)off);
}

static int s3_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                   void *dst, size_t len, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    CLEANUP_FREE char *full = NULL;
    uint64_t end;
    int rc = object_key(s, key, &full, err);
    if (rc)
        return rc;
    if (__builtin_add_overflow(off, len, &end) || end > INT64_MAX)
        return no_such_byte(key, off, err);
    struct http_sink sink = {.dst = dst, .cap = len};
    struct s3_request req = {
        .verb = S3_GET, .key = full, .name = key, .off = off, .len = len, .sink = &sink};
    struct s3_result res;
    /* No range is empty: what is asked then is only whether the object is there. */
    if (!len)
        req.verb = S3_HEAD;
    rc = s3_perform(s->client, op, &req, &res, err);
    if (!rc && !len && off > res.stat.size)
        return error_set(err, CAIRN_CORRUPT, 0, "GET %.200s: the object ends before byte %llu", key,
                         (unsigned long long)off);
    return rc;
}

static int s3_stream(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                     size_t len, const struct backend_taker *to, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    CLEANUP_FREE char *full = NULL;
    uint64_t end;
    int rc = object_key(s, key, &full, err);
    if (rc || !len)
        return rc ? rc : s3_read(b, op, key, off, NULL, 0, err);
    if (__builtin_add_overflow(off, len, &end) || end > INT64_MAX)
        return no_such_byte(key, off, err);
    struct http_sink sink = {.take = to->take, .take_ctx = to->ctx, .cap = len};
    struct s3_request req = {
        .verb = S3_GET, .key = full, .name = key, .off = off, .len = len, .sink = &sink};
    struct s3_result res;
    return s3_perform(s->client, op, &req, &res, err);
}

static int s3_stat(struct backend *b, const struct cairn_op *op, const char *key,
                   struct backend_stat *out, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    CLEANUP_FREE char *full = NULL;
    int rc = object_key(s, key, &full, err);
    if (rc)
        return rc;
    struct s3_request req = {.verb = S3_HEAD, .key = full, .name = key};
    struct s3_result res;
    rc = s3_perform(s->client, op, &req, &res, err);
    if (!rc)
        *out = res.stat;
    return rc;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int send_body(struct backend_s3 *s, const struct cairn_op *op, const char *key,
                     const struct http_body *body, const uint8_t sha[SHA256_LEN],
                     const uint8_t md5[MD5_LEN], bool if_absent, struct s3_result *res,
                     struct cairn_error *err)
{
    CLEANUP_FREE char *full = NULL;
    *res = (struct s3_result){0};
    int rc = object_key(s, key, &full, err);
    if (rc)
        return rc;
    struct s3_request req = {.verb = S3_PUT,
                             .key = full,
                             .name = key,
                             .body = body,
                             .sha256 = sha,
                             .md5 = md5,
                             .if_absent = if_absent};
    return s3_perform(s->client, op, &req, res, err);
}

static int put_bytes(struct backend_s3 *s, const struct cairn_op *op, const char *key,
                     const void *data, size_t len, bool if_absent, struct s3_result *res,
                     struct cairn_error *err)
{
    struct http_body body = {.data = len ? data : "", .fd = -1, .len = len};
    uint8_t sha[SHA256_LEN], md5[MD5_LEN] = {0};
    int rc = hash_sha256(body.data, len, sha, err);
    if (rc)
        return error_wrap(err, "PUT %.200s", key);
    if (s->client->ops->wants_md5) {
        struct md5 m;
        md5_init(&m);
        md5_update(&m, body.data, len);
        md5_final(&m, md5);
    }
    return send_body(s, op, key, &body, sha, md5, if_absent, res, err);
}

static int s3_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
                  size_t len, struct cairn_error *err)
{
    struct s3_result res;
    return put_bytes(self(b), op, key, data, len, false, &res, err);
}

static int open_spool(const char *dir, struct cairn_error *err)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    /* File systems without O_TMPFILE: a name for as long as it takes to remove it. */
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
        char path[4096];
        if ((size_t)snprintf(path, sizeof(path), "%s/spool-XXXXXX", dir) >= sizeof(path))
            errno = ENAMETOOLONG;
        else if ((fd = mkostemp(path, O_CLOEXEC)) >= 0)
            unlink(path);
    }
    if (fd < 0)
        error_sys(err, errno, "making a spool file in %s", dir);
    return fd;
}

static int s3_upload_new(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                         struct cairn_error *err)
{
    int rc = op_check(op, "starting an upload", err);
    if (rc)
        return rc;
    struct backend_upload *up = calloc(1, sizeof(*up));
    if (!up)
        return error_oom(err, "upload");
    struct cairn_error e = {0};
    up->backend = b;
    up->fd = open_spool(self(b)->spool_dir, &e);
    if (up->fd < 0) {
        free(up);
        return error_pass(err, &e);
    }
    *out = up;
    return CAIRN_OK;
}

static void s3_upload_abort(struct backend_upload *up)
{
    close(up->fd);
    free(up);
}

/* Both hashes of the first size bytes of fd. */
static int hash_file(int fd, uint64_t size, const struct cairn_op *op, uint8_t sha[SHA256_LEN],
                     uint8_t md5[MD5_LEN], bool wants_md5, struct cairn_error *err)
{
    CLEANUP_SHA256 struct sha256 *h = NULL;
    CLEANUP_FREE uint8_t *block = malloc(HASH_BLOCK);
    struct md5 m;
    if (!block)
        return error_oom(err, "hashing the spool file");
    md5_init(&m);
    int rc = sha256_new(&h, err);
    for (uint64_t off = 0; !rc && off < size;) {
        size_t n = size - off < HASH_BLOCK ? (size_t)(size - off) : HASH_BLOCK;
        ssize_t got = util_pread_full(fd, block, n, off);
        if (got < 0)
            return error_sys(err, errno, "reading the spool file");
        if ((size_t)got != n)
            return error_set(err, CAIRN_INTERNAL, EIO, "the spool file is shorter than was said");
        rc = sha256_update(h, block, n, err);
        if (wants_md5)
            md5_update(&m, block, n);
        off += n;
        if (!rc)
            rc = op_check(op, "hashing the spool file", err);
    }
    if (!rc)
        rc = sha256_final(h, sha, err);
    md5_final(&m, md5);
    return rc;
}

static int s3_upload_commit(struct backend_upload *up, const struct cairn_op *op, const char *key,
                            uint64_t size, struct cairn_error *err)
{
    struct backend_s3 *s = self(up->backend);
    struct http_body body = {.fd = up->fd, .len = size};
    uint8_t sha[SHA256_LEN], md5[MD5_LEN];
    struct s3_result res;
    int rc = hash_file(up->fd, size, op, sha, md5, s->client->ops->wants_md5, err);
    if (rc)
        rc = error_wrap(err, "PUT %.200s", key);
    else
        rc = send_body(s, op, key, &body, sha, md5, false, &res, err);
    s3_upload_abort(up);
    STEP("s3-upload-sent");
    return rc;
}

static int s3_stage(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                    const void *meta, size_t len, struct cairn_error *err)
{
    (void)b, (void)id, (void)gen, (void)meta, (void)len;
    return op_check(op, "staging the meta", err);
}

static void s3_unstage(struct backend *b, const char *id, const char *gen)
{
    (void)b, (void)id, (void)gen;
}

/* There was no meta.json, and the server says that there is one now: somebody else's, ours by an
 * attempt whose answer got lost, or none (servers that take the condition for its opposite). */
static int settle(struct backend *b, const struct cairn_op *op, const char *key, const void *meta,
                  size_t len, struct cairn_error *err)
{
    CLEANUP_BUF struct buf there = BUF_INIT(META_MAX);
    struct cairn_error e;
    int rc = s3_get(b, op, key, META_MAX, &there, NULL, &e);
    if (rc == CAIRN_NOT_FOUND)
        return s3_put(b, op, key, meta, len, err);
    if (!rc && there.len == len && (!len || memcmp(there.data, meta, len) == 0))
        return CAIRN_OK;
    if (!rc || rc == CAIRN_CORRUPT)
        return error_set(err, CAIRN_BUSY, EEXIST, "%s is there already", key);
    return error_pass(err, &e);
}

/* Two hosts may get here at the same time: the server lets one of them pass, if it can. Where it
 * cannot, the later one wins. */
static int put_once(struct backend *b, const struct cairn_op *op, const char *key, const void *meta,
                    size_t len, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    struct s3_result res;
    struct cairn_error e;
    if (atomic_load(&s->no_conditions))
        return s3_put(b, op, key, meta, len, err);
    int rc = put_bytes(s, op, key, meta, len, true, &res, &e);
    if (rc == CAIRN_BUSY && e.sys_errno == EEXIST)
        return settle(b, op, key, meta, len, err);
    bool unknown = rc == CAIRN_PERMANENT && (res.outcome.http == 400 || res.outcome.http == 501);
    if (!unknown)
        return rc ? error_pass(err, &e) : CAIRN_OK;
    rc = s3_put(b, op, key, meta, len, err);
    if (!rc) {
        log_line(LOG_LEVEL_INFO, "S3: the server puts nothing on a condition: %s", e.message);
        atomic_store(&s->no_conditions, true);
    }
    return rc;
}

static int s3_commit(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                     const void *meta, size_t len, enum backend_once once, struct cairn_error *err)
{
    char key[KEY_MAX], byte;
    (void)gen;
    layout_meta(id, key);
    if (once == BACKEND_ONCE) {
        /* One byte of it: a single request tells "not there" from "no such bucket". */
        struct cairn_error e;
        int rc = s3_read(b, op, key, 0, &byte, 1, &e);
        if (rc == CAIRN_OK || rc == CAIRN_CORRUPT)
            return error_set(err, CAIRN_BUSY, EEXIST, "%s is there already", key);
        if (rc != CAIRN_NOT_FOUND)
            return error_pass(err, &e);
    }
    STEP("s3-commit");
    return once == BACKEND_REPLACE ? s3_put(b, op, key, meta, len, err)
                                   : put_once(b, op, key, meta, len, err);
}

static int s3_remove(struct backend *b, const struct cairn_op *op, const char *const *keys,
                     size_t n, bool *failed, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    return s3_remove_keys(s->client, op, s->prefix, keys, n, failed, err);
}

/* ---- Listing --------------------------------------------------------------------------------- */

struct iter {
    struct backend_iter base;
    struct backend_s3 *s;
    char *prefix; /* in the bucket */
    char *name;   /* of the listing, for messages */
    char *last;   /* the last key seen, in the bucket; "" at first */
    struct s3_page page;
    size_t at;
    bool end;
    char *token;    /* where the next page begins; NULL: behind last */
    unsigned empty; /* pages in a row without a key */
};

/* More than this many pages in a row without any key are no listing. */
#define EMPTY_PAGES_MAX 10000

static void s3_iter_free(struct backend_iter *base)
{
    struct iter *it = (struct iter *)base;
    s3_page_release(&it->page);
    free(it->prefix);
    free(it->name);
    free(it->last);
    free(it->token);
    free(it);
}

static int s3_list(struct backend *b, const struct cairn_op *op, const char *prefix,
                   const char *after, struct backend_iter **out, struct cairn_error *err)
{
    struct backend_s3 *s = self(b);
    int rc = op_check(op, "listing", err);
    if (rc)
        return rc;
    struct iter *it = calloc(1, sizeof(*it));
    if (!it)
        return error_oom(err, "listing");
    it->base.ops = b->ops;
    it->s = s;
    it->prefix = full_key(s, prefix);
    it->name = strdup(*prefix ? prefix : "(all)");
    it->last = *after ? full_key(s, after) : strdup("");
    if (!it->prefix || !it->name || !it->last) {
        s3_iter_free(&it->base);
        return error_oom(err, "listing");
    }
    *out = &it->base;
    return CAIRN_OK;
}

/* Where the page after this one begins. Nothing is changed by a failure but what was empty. */
static int next_place(struct iter *it, struct cairn_error *err)
{
    struct s3_page *page = &it->page;
    bool repeats = it->token && page->token && strcmp(it->token, page->token) == 0;
    char *last = NULL;
    if (page->n) {
        last = strdup(page->entries[page->n - 1].key);
        if (!last)
            return error_oom(err, "listing");
    } else if (page->next && strcmp(page->next, it->last) > 0) {
        last = util_steal(&page->next);
    } else if (page->truncated && !page->token) {
        return error_set(err, CAIRN_TRANSIENT, EBADMSG,
                         "LIST %.200s: an empty page that does not say how to go on", it->name);
    }
    it->empty = page->n ? 0 : it->empty + 1;
    if (page->truncated && !page->n && (repeats || it->empty > EMPTY_PAGES_MAX)) {
        free(last);
        return error_set(err, CAIRN_TRANSIENT, EBADMSG, "LIST %.200s: pages without an end",
                         it->name);
    }
    free(it->token);
    it->token = util_steal(&page->token);
    it->end = !page->truncated;
    if (last) {
        free(it->last);
        it->last = last;
    }
    return CAIRN_OK;
}

static int load_page(struct iter *it, const struct cairn_op *op, struct cairn_error *err)
{
    struct s3_request req = {.verb = S3_LIST,
                             .key = it->prefix,
                             .name = it->name,
                             .after = it->last,
                             .token = it->token,
                             .page = &it->page};
    struct s3_result res;
    it->at = 0;
    int rc = s3_perform(it->s->client, op, &req, &res, err);
    if (rc == CAIRN_NOT_FOUND) /* no listing is ever missing */
        return error_set(err, CAIRN_PERMANENT, 0, "LIST %.200s: the server knows no such listing",
                         it->name);
    if (rc)
        return rc;
    if (it->page.skipped)
        log_line(LOG_LEVEL_WARNING, "S3: %zu keys under %s that no store can have were passed over",
                 it->page.skipped, it->name);
    return next_place(it, err);
}

static int s3_iter_next(struct backend_iter *base, const struct cairn_op *op,
                        struct backend_entry *out, struct cairn_error *err)
{
    struct iter *it = (struct iter *)base;
    while (it->at >= it->page.n) {
        if (it->end) {
            *out = (struct backend_entry){.key = NULL};
            return CAIRN_OK;
        }
        int rc = load_page(it, op, err);
        if (rc) {
            /* The next call asks for the same page again. */
            it->page.n = it->at = 0;
            return rc;
        }
    }
    struct s3_entry *e = &it->page.entries[it->at++];
    *out = (struct backend_entry){.key = e->key + strlen(it->s->prefix), .stat = e->stat};
    return CAIRN_OK;
}

/* ---- The rest -------------------------------------------------------------------------------- */

static int s3_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
                   struct cairn_error *err)
{
    (void)b, (void)id;
    *lock = -1;
    return op_check(op, "locking a record", err);
}

static void s3_unlock(struct backend *b, const char *id, int lock)
{
    (void)b, (void)id, (void)lock;
}

static int s3_space(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err)
{
    (void)b, (void)err;
    *avail = *total = UINT64_MAX;
    return CAIRN_OK;
}

static const struct backend_ops s3_ops = {
    .kind = "s3",
    .looks_first = true,
    .free = s3_free,
    .get = s3_get,
    .read = s3_read,
    .stream = s3_stream,
    .stat = s3_stat,
    .put = s3_put,
    .remove = s3_remove,
    .list = s3_list,
    .iter_next = s3_iter_next,
    .iter_free = s3_iter_free,
    .upload_new = s3_upload_new,
    .upload_commit = s3_upload_commit,
    .upload_abort = s3_upload_abort,
    .stage = s3_stage,
    .commit = s3_commit,
    .unstage = s3_unstage,
    .lock = s3_lock,
    .unlock = s3_unlock,
    .space = s3_space,
};

int backend_s3_open(const struct s3_config *config, struct backend **out, struct cairn_error *err)
{
    struct backend_s3 *s = calloc(1, sizeof(*s));
    if (!s)
        return error_oom(err, "S3 store");
    s->base.ops = &s3_ops;
    const char *prefix = config->prefix ? config->prefix : "";
    size_t n = strlen(prefix);
    int rc = s3_client_new(config, &s->client, err);
    if (!rc) {
        s->spool_dir = strdup(config->spool_dir);
        if (asprintf(&s->prefix, "%s%s", prefix, n && prefix[n - 1] != '/' ? "/" : "") < 0)
            s->prefix = NULL;
        if (!s->spool_dir || !s->prefix)
            rc = error_oom(err, "S3 store");
    }
    if (rc) {
        s3_free(&s->base);
        return rc;
    }
    *out = &s->base;
    return CAIRN_OK;
}
