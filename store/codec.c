#include "store/codec.h"

#include "base/util.h"

#include <string.h>
#include <zstd.h>

#define FRAME_MAGIC 0xFD2FB528u /* RFC 8878, 3.1.1 */

/* Measured on the changed 64 KiB chunks of a chain of VM memory images, each against the chunk it
 * replaces: a table for every position of base and plain (hashLog 16) gives 4 to 10 % less than
 * level 1's own and is no slower; at 1 MiB it is what makes the base useful at all (a sixth of the
 * bytes). A larger one gains nothing, long-distance matching halves the speed, level 3 takes 8 to
 * 19 % off what is one percent of the data already, at 15 % of the speed. */
#define LEVEL 1
/* Without a base, on the cold 64 KiB chunks of a memory and a disk image: a table of 2^11 entries
 * and matches of at least 7 bytes encode 1.38 times as fast as level 1's own choice (0.91 against
 * 0.66 GB/s a core) for 4 % more bytes (38.0 against 36.5 %), and decode as fast; negative levels
 * are slower at that size. Larger chunks get a larger table. */
#define PLAIN_HASH_LOG_LESS 5
#define PLAIN_HASH_LOG_MIN  8
#define PLAIN_MIN_MATCH     7
#define BASE_HASH_LOG_MAX   16
#define WINDOW_LOG_MIN      10 /* ZSTD_WINDOWLOG_ABSOLUTEMIN */
#define WINDOW_LOG_MAX      21 /* base and plain of CHUNK_SIZE_MAX each */

struct codec {
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
};

static int set_parameter(struct codec *c, ZSTD_cParameter p, int value)
{
    return ZSTD_isError(ZSTD_CCtx_setParameter(c->cctx, p, value)) != 0;
}

int codec_new(struct codec **out, struct cairn_error *err)
{
    struct codec *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "codec");
    c->cctx = ZSTD_createCCtx();
    c->dctx = ZSTD_createDCtx();
    if (!c->cctx || !c->dctx) {
        codec_free(c);
        return error_oom(err, "zstd contexts");
    }
    if (set_parameter(c, ZSTD_c_compressionLevel, LEVEL) ||
        set_parameter(c, ZSTD_c_contentSizeFlag, 1) || set_parameter(c, ZSTD_c_checksumFlag, 0) ||
        set_parameter(c, ZSTD_c_dictIDFlag, 0) ||
        ZSTD_isError(ZSTD_DCtx_setParameter(c->dctx, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
        codec_free(c);
        return error_set(err, CAIRN_INTERNAL, 0, "zstd refuses its parameters");
    }
    *out = c;
    return CAIRN_OK;
}

void codec_free(struct codec *c)
{
    if (!c)
        return;
    ZSTD_freeCCtx(c->cctx);
    ZSTD_freeDCtx(c->dctx);
    free(c);
}

size_t codec_bound(size_t len)
{
    return ZSTD_compressBound(len);
}

static int log2_ceil(size_t v)
{
    int n = 0;
    while (((size_t)1 << n) < v)
        n++;
    return n;
}

/* 0 is zstd's own choice. */
static int set_search(struct codec *c, size_t len, size_t base_len)
{
    int window = 0, hash, match = 0;
    if (base_len) {
        window = log2_ceil(len + base_len);
        if (window < WINDOW_LOG_MIN)
            window = WINDOW_LOG_MIN;
        hash = window < BASE_HASH_LOG_MAX ? window : BASE_HASH_LOG_MAX;
    } else {
        hash = log2_ceil(len) - PLAIN_HASH_LOG_LESS;
        if (hash < PLAIN_HASH_LOG_MIN)
            hash = PLAIN_HASH_LOG_MIN;
        match = PLAIN_MIN_MATCH;
    }
    return set_parameter(c, ZSTD_c_windowLog, window) || set_parameter(c, ZSTD_c_hashLog, hash) ||
           set_parameter(c, ZSTD_c_minMatch, match);
}

int codec_encode(struct codec *c, const void *plain, size_t len, const void *base, size_t base_len,
                 void *out, enum chunk_encoding *encoding, size_t *out_len, struct cairn_error *err)
{
    if (len < 1 || len > CHUNK_SIZE_MAX || base_len > CHUNK_SIZE_MAX)
        return error_set(err, CAIRN_INTERNAL, 0, "encoding a chunk of %zu bytes (base: %zu)", len,
                         base_len);
    if (set_search(c, len, base_len) ||
        ZSTD_isError(ZSTD_CCtx_refPrefix(c->cctx, base_len ? base : NULL, base_len)))
        return error_set(err, CAIRN_INTERNAL, 0, "zstd refuses its parameters");
    size_t n = ZSTD_compress2(c->cctx, out, codec_bound(len), plain, len);
    if (ZSTD_isError(n)) {
        ZSTD_CCtx_refPrefix(c->cctx, NULL, 0);
        return error_set(err, CAIRN_INTERNAL, 0, "zstd: %s", ZSTD_getErrorName(n));
    }
    if (n >= len || (len - n) * 8 < len) {
        *encoding = CHUNK_RAW;
        *out_len = len;
    } else {
        *encoding = base_len ? CHUNK_ZSTD_BASE : CHUNK_ZSTD;
        *out_len = n;
    }
    return CAIRN_OK;
}

/* How many bytes the frame says it holds. The bytes are to be exactly one frame that needs nothing
 * but itself (and the base): zstd alone would also take several, skippable ones, and old formats.
 */
static int frame_content(const void *stored, size_t stored_len, size_t *content,
                         struct cairn_error *err)
{
    if (stored_len < 4 || get_le32(stored) != FRAME_MAGIC)
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: no zstd frame");
    unsigned long long size = ZSTD_getFrameContentSize(stored, stored_len);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size == 0)
        return error_set(err, CAIRN_CORRUPT, 0,
                         "decoding a chunk: the zstd frame does not say its size");
    if (size > SIZE_MAX)
        size = SIZE_MAX;
    if (ZSTD_getDictID_fromFrame(stored, stored_len) != 0)
        return error_set(err, CAIRN_CORRUPT, 0,
                         "decoding a chunk: the zstd frame wants a dictionary");
    size_t n = ZSTD_findFrameCompressedSize(stored, stored_len);
    if (ZSTD_isError(n))
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: zstd: %s", ZSTD_getErrorName(n));
    if (n != stored_len)
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: %zu bytes behind the zstd frame",
                         stored_len - n);
    *content = (size_t)size;
    return CAIRN_OK;
}

static int check_size(size_t size, size_t cap, size_t expect, struct cairn_error *err)
{
    if (size > cap)
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: %zu bytes, at most %zu expected",
                         size, cap);
    if (expect && size != expect)
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: %zu bytes, %zu expected", size,
                         expect);
    return CAIRN_OK;
}

static int decode_frame(struct codec *c, const void *stored, size_t stored_len, const void *base,
                        size_t base_len, void *plain, size_t cap, size_t expect, size_t *plain_len,
                        struct cairn_error *err)
{
    size_t size = 0;
    int rc = frame_content(stored, stored_len, &size, err);
    if (!rc)
        rc = check_size(size, cap, expect, err);
    if (rc)
        return rc;
    if (ZSTD_isError(ZSTD_DCtx_refPrefix(c->dctx, base_len ? base : NULL, base_len)))
        return error_set(err, CAIRN_INTERNAL, 0, "zstd refuses the base chunk");
    /* Not cap but size: a frame that gives more than it says is refused by zstd itself. */
    size_t n = ZSTD_decompressDCtx(c->dctx, plain, size, stored, stored_len);
    if (ZSTD_isError(n))
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: zstd: %s", ZSTD_getErrorName(n));
    if (n != size)
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: %zu bytes, the frame says %zu",
                         n, size);
    *plain_len = n;
    return CAIRN_OK;
}

int codec_decode(struct codec *c, uint8_t encoding, const void *stored, size_t stored_len,
                 const void *base, size_t base_len, void *plain, size_t cap, size_t expect,
                 size_t *plain_len, struct cairn_error *err)
{
    switch (encoding) {
    case CHUNK_RAW: {
        int rc = check_size(stored_len, cap, expect, err);
        if (rc)
            return rc;
        if (stored_len)
            memcpy(plain, stored, stored_len);
        *plain_len = stored_len;
        return CAIRN_OK;
    }
    case CHUNK_ZSTD:
        return decode_frame(c, stored, stored_len, NULL, 0, plain, cap, expect, plain_len, err);
    case CHUNK_ZSTD_BASE:
        if (!base_len)
            return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: its base is missing");
        return decode_frame(c, stored, stored_len, base, base_len, plain, cap, expect, plain_len,
                            err);
    default:
        return error_set(err, CAIRN_CORRUPT, 0, "decoding a chunk: encoding %u is not known",
                         encoding);
    }
}
