#include "base/hash_lanes.h"

#include "base/util.h"

#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define LANES_CODE __attribute__((target("avx512f,avx512bw")))
#define BLOCK_LEN  64
#define ROUNDS     64

/* FIPS 180-4, 4.2.2 and 5.3.3. */
static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

bool hash_lanes_can(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

/* The order of bytes that swaps those of each word. */
LANES_CODE static __m512i big_endian(void)
{
    return _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);
}

/* Sixteen rows of sixteen words become sixteen columns: row i is word i of every lane. */
LANES_CODE static void transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        r[j + 4] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0x88);
        r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
        r[j + 12] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0xdd);
    }
}

#define ADD(a, b)     _mm512_add_epi32(a, b)
#define XOR3(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0x96)
#define BIG_SIGMA(x, i, j, k)                                                                      \
    XOR3(_mm512_ror_epi32(x, i), _mm512_ror_epi32(x, j), _mm512_ror_epi32(x, k))
#define SMALL_SIGMA(x, i, j, k)                                                                    \
    XOR3(_mm512_ror_epi32(x, i), _mm512_ror_epi32(x, j), _mm512_srli_epi32(x, k))
#define CHOOSE(x, y, z)   _mm512_ternarylogic_epi32(x, y, z, 0xca)
#define MAJORITY(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0xe8)

/* FIPS 180-4, 6.2.2, on blocks of every lane from `at` on. */
LANES_CODE static void compress(__m512i state[8], const uint8_t *const data[HASH_LANES], size_t at,
                                size_t blocks)
{
    const __m512i order = big_endian();
    for (; blocks; blocks--, at += BLOCK_LEN) {
        __m512i w[16];
        for (int i = 0; i < 16; i++)
            w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(data[i] + at), order);
        transpose(w);
        __m512i a = state[0], b = state[1], c = state[2], d = state[3];
        __m512i e = state[4], f = state[5], g = state[6], h = state[7];
#pragma GCC unroll 64
        for (int t = 0; t < ROUNDS; t++) {
            __m512i *word = &w[t % 16];
            if (t >= 16)
                *word = ADD(ADD(*word, SMALL_SIGMA(w[(t + 1) % 16], 7, 18, 3)),
                            ADD(w[(t + 9) % 16], SMALL_SIGMA(w[(t + 14) % 16], 17, 19, 10)));
            /* What is known early is added first; the next round waits for the last sum. */
            __m512i early = ADD(ADD(h, ADD(*word, _mm512_set1_epi32((int)round_constants[t]))),
                                CHOOSE(e, f, g));
            __m512i sigma = BIG_SIGMA(e, 6, 11, 25);
            __m512i late = ADD(BIG_SIGMA(a, 2, 13, 22), MAJORITY(a, b, c));
            h = g;
            g = f;
            f = e;
            e = ADD(ADD(d, early), sigma);
            d = c;
            c = b;
            b = a;
            a = ADD(ADD(early, late), sigma);
        }
        state[0] = ADD(state[0], a);
        state[1] = ADD(state[1], b);
        state[2] = ADD(state[2], c);
        state[3] = ADD(state[3], d);
        state[4] = ADD(state[4], e);
        state[5] = ADD(state[5], f);
        state[6] = ADD(state[6], g);
        state[7] = ADD(state[7], h);
    }
}

LANES_CODE void hash_lanes_sha256(const uint8_t *const data[HASH_LANES], size_t len,
                                  uint8_t *const out[HASH_LANES])
{
    __m512i state[8];
    for (int i = 0; i < 8; i++)
        state[i] = _mm512_set1_epi32((int)initial[i]);
    compress(state, data, 0, len / BLOCK_LEN);
    /* The last bytes, a one bit, zeros, the length in bits. */
    size_t rest = len % BLOCK_LEN, end = rest < BLOCK_LEN - 8 ? BLOCK_LEN : 2 * BLOCK_LEN;
    uint8_t tails[HASH_LANES][2 * BLOCK_LEN] = {0};
    const uint8_t *tail[HASH_LANES];
    for (int i = 0; i < HASH_LANES; i++) {
        if (rest)
            memcpy(tails[i], data[i] + len - rest, rest);
        tails[i][rest] = 0x80;
        put_be64(tails[i] + end - 8, (uint64_t)len * 8);
        tail[i] = tails[i];
    }
    compress(state, tail, 0, end / BLOCK_LEN);
    for (int word = 0; word < 8; word++) {
        uint32_t lanes[HASH_LANES];
        _mm512_storeu_si512(lanes, _mm512_shuffle_epi8(state[word], big_endian()));
        for (int i = 0; i < HASH_LANES; i++)
            memcpy(out[i] + 4 * word, &lanes[i], 4);
    }
}

#else

bool hash_lanes_can(void)
{
    return false;
}

void hash_lanes_sha256(const uint8_t *const data[HASH_LANES], size_t len,
                       uint8_t *const out[HASH_LANES])
{
    (void)data;
    (void)len;
    (void)out;
}

#endif
