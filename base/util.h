/* Small things every folder needs: cleanup attributes, little-endian loads and stores, hex. */
#ifndef CAIRN_BASE_UTIL_H
#define CAIRN_BASE_UTIL_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline void util_freep(void *p)
{
    free(*(void **)p);
}

static inline void util_closep(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void util_closedirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

#define CLEANUP_FREE __attribute__((cleanup(util_freep)))
#define CLEANUP_FD   __attribute__((cleanup(util_closep), unused))
#define CLEANUP_DIR  __attribute__((cleanup(util_closedirp)))

/* Hand over what a cleanup attribute would free or close. */
static inline int util_steal_fd(int *fd)
{
    int v = *fd;
    *fd = -1;
    return v;
}

static inline void *util_steal(void *pp)
{
    void *v = *(void **)pp;
    *(void **)pp = NULL;
    return v;
}

static inline uint32_t get_le32(const void *p)
{
    const uint8_t *b = p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t get_le64(const void *p)
{
    return get_le32(p) | (uint64_t)get_le32((const uint8_t *)p + 4) << 32;
}

static inline void put_le32(void *p, uint32_t v)
{
    uint8_t *b = p;
    for (int i = 0; i < 4; i++)
        b[i] = (uint8_t)(v >> (8 * i));
}

static inline void put_le64(void *p, uint64_t v)
{
    put_le32(p, (uint32_t)v);
    put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline void put_be64(void *p, uint64_t v)
{
    uint8_t *b = p;
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (56 - 8 * i));
}

static inline uint64_t align_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

/* out has room for 2 * len + 1 bytes. Lower case. */
void util_hex(const void *data, size_t len, char *out);

/* Exactly 2 * len lower-case hex digits at text; false otherwise. */
bool util_unhex(const char *text, void *out, size_t len);

/* The first name of path, up to a '/' or its end: the length, or -1 with errno where it is longer
 * than any can be. */
ssize_t util_first_name(const char *path, char name[NAME_MAX + 1]);

/* True when all len bytes are zero. */
bool util_is_zero(const void *data, size_t len);

/* True when len bytes are valid UTF-8 without NUL (RFC 3629: no surrogates, no overlong forms). */
bool util_is_utf8(const void *data, size_t len);

/* Restart after short counts and EINTR. Return the bytes moved (fewer only at the end of the file)
 * or -1 with errno. */
ssize_t util_pread_full(int fd, void *buf, size_t len, uint64_t off);
ssize_t util_pwrite_full(int fd, const void *buf, size_t len, uint64_t off);

/* len random bytes of the kernel; false with errno where it has none to give. */
bool util_random(void *out, size_t len);

#endif
