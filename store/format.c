#include "store/format.h"

#include "base/jsonw.h"
#include "base/jval.h"
#include "base/util.h"
#include "store/chunk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SIGNATURE   "checkpoint store"
#define CLOSING     ",\"sha256\":\"" /* then 64 hex digits, then ENDING */
#define ENDING      "\"}\n"
#define CLOSING_LEN (sizeof(CLOSING) - 1)
#define TAIL_LEN    (CLOSING_LEN + 2 * SHA256_LEN + sizeof(ENDING) - 1)

static const char *const compressions[] = {[FORMAT_ZSTD] = "zstd", [FORMAT_NONE] = "none"};

int format_new(uint32_t chunk_size, enum format_compression compression, struct store_format *out,
               struct cairn_error *err)
{
    if (!chunk_size_is_valid(chunk_size))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "bad chunk size %" PRIu32 ": it is a power of two from %u to %u",
                         chunk_size, CHUNK_SIZE_MIN, CHUNK_SIZE_MAX);
    if ((size_t)compression >= ARRAY_SIZE(compressions))
        return error_set(err, CAIRN_INVALID, EINVAL, "unknown compression");
    *out = (struct store_format){.version = FORMAT_VERSION,
                                 .min_reader = 1,
                                 .min_writer = 1,
                                 .min_sweeper = 1,
                                 .chunk_size = chunk_size,
                                 .compression = compression};
    uint8_t id[FORMAT_STORE_ID / 2];
    if (!util_random(id, sizeof(id)) || !util_random(out->secret, sizeof(out->secret)))
        return error_sys(err, errno, "random bytes for a new store");
    util_hex(id, sizeof(id), out->store_id);
    return CAIRN_OK;
}

/* ---- Encoding -------------------------------------------------------------------------------- */

static int encode_members(const struct store_format *f, struct buf *out, struct cairn_error *err)
{
    char secret[2 * XXH3_SECRET_LEN + 1];
    util_hex(f->secret, XXH3_SECRET_LEN, secret);
    struct jsonw w = JSONW_INIT(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "cairn", SIGNATURE);
    jsonw_u64(&w, "format", f->version);
    jsonw_u64(&w, "min_reader", f->min_reader);
    jsonw_u64(&w, "min_writer", f->min_writer);
    jsonw_u64(&w, "min_sweeper", f->min_sweeper);
    jsonw_u64(&w, "chunk_size", f->chunk_size);
    jsonw_str(&w, "compression", compressions[f->compression]);
    jsonw_str(&w, "store_id", f->store_id);
    jsonw_str(&w, "secret", secret);
    return jsonw_end(&w);
}

int format_encode(const struct store_format *f, struct buf *out, struct cairn_error *err)
{
    uint8_t sha[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];
    size_t start = out->len;
    int rc = encode_members(f, out, err);
    if (!rc)
        rc = hash_sha256(out->data + start, out->len - start, sha, err);
    if (rc) {
        error_wrap(err, "format.json");
        return rc;
    }
    util_hex(sha, sizeof(sha), hex);
    return buf_addf(out, err, CLOSING "%s" ENDING, hex);
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static int bad(struct cairn_error *err, const char *what)
{
    return error_set(err, CAIRN_CORRUPT, 0, "format.json: %s", what);
}

/* The text as a whole: its end, and the checksum of what is before. */
static int check_text(const uint8_t *text, size_t len, struct cairn_error *err)
{
    if (len > FORMAT_MAX)
        return bad(err, "too long");
    if (len < TAIL_LEN)
        return bad(err, "cut short");
    const uint8_t *tail = text + len - TAIL_LEN;
    uint8_t sha[SHA256_LEN], want[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1] = "";
    memcpy(hex, tail + CLOSING_LEN, sizeof(hex) - 1);
    if (memcmp(tail, CLOSING, CLOSING_LEN) != 0 ||
        memcmp(tail + CLOSING_LEN + 2 * SHA256_LEN, ENDING, sizeof(ENDING) - 1) != 0 ||
        !util_unhex(hex, want, SHA256_LEN))
        return bad(err, "it does not end in its checksum");
    int rc = hash_sha256(text, len - TAIL_LEN, sha, err);
    if (rc)
        return rc;
    return memcmp(sha, want, SHA256_LEN) == 0 ? CAIRN_OK : bad(err, "the checksum does not match");
}

static bool get_u32(const struct jval *v, const char *name, uint32_t *out)
{
    int64_t n;
    if (!jval_int(jval_get(v, name), &n) || n < 1 || n > UINT32_MAX)
        return false;
    *out = (uint32_t)n;
    return true;
}

static int get_versions(const struct jval *v, struct store_format *out, struct cairn_error *err)
{
    const char *signature = jval_str(jval_get(v, "cairn"));
    if (!signature || strcmp(signature, SIGNATURE) != 0)
        return bad(err, "it is not that of a checkpoint store");
    if (!get_u32(v, "format", &out->version) || !get_u32(v, "min_reader", &out->min_reader) ||
        !get_u32(v, "min_writer", &out->min_writer) ||
        !get_u32(v, "min_sweeper", &out->min_sweeper))
        return bad(err, "a version is missing or none");
    if (out->version > FORMAT_VERSION || out->min_reader > FORMAT_VERSION)
        return error_set(err, CAIRN_PERMANENT, 0,
                         "format.json: the store has format %" PRIu32 " and needs a program of at "
                         "least %" PRIu32 ": this one knows %d, use a newer one",
                         out->version, out->min_reader, FORMAT_VERSION);
    return CAIRN_OK;
}

static int get_members(const struct jval *v, struct store_format *out, struct cairn_error *err)
{
    const char *compression = jval_str(jval_get(v, "compression"));
    const char *store_id = jval_str(jval_get(v, "store_id"));
    const char *secret = jval_str(jval_get(v, "secret"));
    uint8_t id[FORMAT_STORE_ID / 2];
    size_t i = 0;
    if (!get_u32(v, "chunk_size", &out->chunk_size) || !chunk_size_is_valid(out->chunk_size))
        return bad(err, "bad chunk size");
    while (compression && i < ARRAY_SIZE(compressions) && strcmp(compression, compressions[i]) != 0)
        i++;
    if (!compression || i == ARRAY_SIZE(compressions))
        return bad(err, "unknown compression");
    out->compression = (enum format_compression)i;
    if (!store_id || !util_unhex(store_id, id, sizeof(id)))
        return bad(err, "bad store id");
    memcpy(out->store_id, store_id, sizeof(out->store_id));
    if (!secret || !util_unhex(secret, out->secret, XXH3_SECRET_LEN))
        return bad(err, "bad secret");
    return CAIRN_OK;
}

int format_decode(const void *data, size_t len, struct store_format *out, struct cairn_error *err)
{
    int rc = check_text(data, len, err);
    if (rc)
        return rc;
    CLEANUP_JVAL struct jval *v = NULL;
    struct cairn_error e;
    rc = jval_parse(data, len, &v, &e);
    if (rc)
        return error_set(err, rc == CAIRN_INVALID ? CAIRN_CORRUPT : rc, e.sys_errno,
                         "format.json: %s", e.message);
    *out = (struct store_format){0};
    rc = get_versions(v, out, err);
    return rc ? rc : get_members(v, out, err);
}
