#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

static const char hex_digits[] = "0123456789abcdef";

void util_hex(const void *data, size_t len, char *out)
{
    const uint8_t *b = data;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex_digits[b[i] >> 4];
        out[2 * i + 1] = hex_digits[b[i] & 15];
    }
    out[2 * len] = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

bool util_unhex(const char *text, void *out, size_t len)
{
    uint8_t *b = out;
    for (size_t i = 0; i < len; i++) {
        int hi = hex_value(text[2 * i]);
        int lo = hi < 0 ? -1 : hex_value(text[2 * i + 1]);
        if (lo < 0)
            return false;
        b[i] = (uint8_t)(hi << 4 | lo);
    }
    return text[2 * len] == 0;
}

bool util_is_zero(const void *data, size_t len)
{
    const uint8_t *b = data;
    /* Most chunks that hold data show it early; the rest is compared with itself, one byte on,
     * which runs at memcmp's speed. */
    size_t head = len < 16 ? len : 16;
    for (size_t i = 0; i < head; i++)
        if (b[i])
            return false;
    return len <= 16 || memcmp(b, b + 16, len - 16) == 0;
}

ssize_t util_first_name(const char *path, char name[NAME_MAX + 1])
{
    size_t n = strcspn(path, "/");
    if (n > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name, path, n);
    name[n] = 0;
    return (ssize_t)n;
}

bool util_is_utf8(const void *data, size_t len)
{
    const uint8_t *p = data, *end = p + len;
    while (p < end) {
        uint32_t c = *p++, min;
        int more;
        if (c == 0)
            return false;
        if (c < 0x80)
            continue;
        if (c >= 0xc2 && c < 0xe0) {
            more = 1, min = 0x80, c &= 0x1f;
        } else if (c >= 0xe0 && c < 0xf0) {
            more = 2, min = 0x800, c &= 0x0f;
        } else if (c >= 0xf0 && c < 0xf5) {
            more = 3, min = 0x10000, c &= 0x07;
        } else {
            return false;
        }
        if (end - p < more)
            return false;
        for (; more; more--) {
            if ((*p & 0xc0) != 0x80)
                return false;
            c = c << 6 | (*p++ & 0x3f);
        }
        if (c < min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return false;
    }
    return true;
}

ssize_t util_pread_full(int fd, void *buf, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t util_pwrite_full(int fd, const void *buf, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = pwrite(fd, (const char *)buf + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) {
            errno = EIO;
            return -1;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

bool util_random(void *out, size_t len)
{
    uint8_t *b = out;
    while (len) {
        ssize_t n = getrandom(b, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        b += n;
        len -= (size_t)n;
    }
    return true;
}
