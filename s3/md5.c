#include "s3/md5.h"

#include "base/util.h"

#include <string.h>

/* floor(2^32 * abs(sin(i + 1))), RFC 1321 section 3.4. */
static const uint32_t sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static const uint8_t turns[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

static void take_block(uint32_t state[4], const uint8_t *block)
{
    uint32_t x[16], a = state[0], b = state[1], c = state[2], d = state[3];
    for (int i = 0; i < 16; i++)
        x[i] = get_le32(block + 4 * i);
    for (int i = 0; i < 64; i++) {
        uint32_t f;
        int k;
        switch (i / 16) {
        case 0:
            f = (b & c) | (~b & d);
            k = i;
            break;
        case 1:
            f = (b & d) | (c & ~d);
            k = (5 * i + 1) % 16;
            break;
        case 2:
            f = b ^ c ^ d;
            k = (3 * i + 5) % 16;
            break;
        default:
            f = c ^ (b | ~d);
            k = 7 * i % 16;
            break;
        }
        uint32_t sum = a + f + sines[i] + x[k];
        int turn = turns[i / 16][i % 4];
        a = d;
        d = c;
        c = b;
        b += sum << turn | sum >> (32 - turn);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void md5_init(struct md5 *m)
{
    *m = (struct md5){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void md5_update(struct md5 *m, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t have = m->len % 64;
    m->len += len;
    if (have) {
        size_t n = 64 - have < len ? 64 - have : len;
        memcpy(m->block + have, p, n);
        if (have + n < 64)
            return;
        take_block(m->state, m->block);
        p += n;
        len -= n;
    }
    for (; len >= 64; p += 64, len -= 64)
        take_block(m->state, p);
    if (len)
        memcpy(m->block, p, len);
}

void md5_final(struct md5 *m, uint8_t out[MD5_LEN])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t bits[8];
    put_le64(bits, m->len * 8);
    md5_update(m, padding, 1 + (119 - m->len % 64) % 64);
    md5_update(m, bits, sizeof(bits));
    for (int i = 0; i < 4; i++)
        put_le32(out + 4 * i, m->state[i]);
}

void md5_base64(const uint8_t digest[MD5_LEN], char out[MD5_BASE64])
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *o = out;
    for (int i = 0; i < MD5_LEN; i += 3) {
        uint32_t v = (uint32_t)digest[i] << 16;
        if (i + 1 < MD5_LEN)
            v |= (uint32_t)digest[i + 1] << 8;
        if (i + 2 < MD5_LEN)
            v |= digest[i + 2];
        *o++ = digit[v >> 18];
        *o++ = digit[v >> 12 & 63];
        *o++ = i + 1 < MD5_LEN ? digit[v >> 6 & 63] : '=';
        *o++ = i + 2 < MD5_LEN ? digit[v & 63] : '=';
    }
    *o = 0;
}
