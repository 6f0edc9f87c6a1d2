#include "tests/mount/stage.h"

#include "base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct cairn_error err;

const char *stage_path(const struct world *w, const char *path)
{
    static char texts[4][4096];
    static unsigned next;
    char *out = texts[next++ % 4];
    snprintf(out, sizeof(texts[0]), "%s/stage%s%s", w->top, path ? "/" : "", path ? path : "");
    return out;
}

void stage_file(const struct world *w, const char *path, uint64_t off, size_t len, uint64_t seed,
                uint64_t size)
{
    char full[4096];
    snprintf(full, sizeof(full), "%s", stage_path(w, path));
    for (char *s = full + strlen(w->top) + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        (void)mkdir(full, 0755);
        *s = '/';
    }
    CLEANUP_FD int fd = ck_sys(open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    CLEANUP_FREE uint8_t *bytes = malloc(len ? len : 1);
    testing_fill(bytes, len, seed);
    ck_assert_int_eq(util_pwrite_full(fd, bytes, len, off), (ssize_t)len);
    if (size)
        ck_sys(ftruncate(fd, (off_t)size));
}

void stage_publish(struct world *w, const char *id, const char *meta, bool digest, char gen[17])
{
    struct cairn_store *s = world_store(w);
    struct cairn_publish_result result;
    struct cairn_publish_options options = {
        .from = stage_path(w, NULL), .meta = meta, .meta_len = strlen(meta), .digest = digest};
    ck_ok(cairn_publish(s, NULL, id, &options, &result, &err));
    memcpy(gen, result.gen, sizeof(result.gen));
    cairn_close(s);
}

void stage_fork(struct world *w, const char *id, const char *new_id, const char *meta, char gen[17])
{
    struct cairn_store *s = world_store(w);
    ck_ok(cairn_fork(s, NULL, id, new_id, meta, strlen(meta), gen, &err));
    cairn_close(s);
}

void stage_delete(struct world *w, const char *id)
{
    struct cairn_store *s = world_store(w);
    ck_ok(cairn_delete(s, NULL, id, &err));
    cairn_close(s);
}

const char *stage_shown(const struct world *w, size_t node, const char *id, const char *gen,
                        const char *path)
{
    char rest[4096];
    snprintf(rest, sizeof(rest), "%s/export-%s%s%s", id, gen, path ? "/" : "", path ? path : "");
    return world_path(w, node, rest);
}

#define UNIT ((off_t)65536)

/* Data that a has may not be a hole of b. */
static void same_data(int a, int b, off_t size)
{
    for (off_t at = 0; at < size;) {
        off_t data = lseek(a, at, SEEK_DATA);
        if (data < 0)
            break;
        off_t end = ck_sys(lseek(a, data, SEEK_HOLE));
        off_t seen = ck_sys(lseek(b, data, SEEK_DATA));
        ck_assert_int_eq(seen, data);
        seen = ck_sys(lseek(b, data, SEEK_HOLE));
        ck_assert_int_ge(seen, end);
        ck_assert_int_lt(seen, end + UNIT);
        at = end;
    }
}

void stage_same(const char *a, const char *b)
{
    CLEANUP_FD int x = ck_sys(open(a, O_RDONLY | O_CLOEXEC));
    CLEANUP_FD int y = ck_sys(open(b, O_RDONLY | O_CLOEXEC));
    struct stat sx, sy;
    ck_sys(fstat(x, &sx));
    ck_sys(fstat(y, &sy));
    ck_assert_int_eq(sx.st_size, sy.st_size);
    same_data(x, y, sx.st_size);
    static uint8_t p[UNIT * 4], q[UNIT * 4];
    for (off_t at = 0; at < sx.st_size;) {
        off_t data = lseek(x, at, SEEK_DATA), other = lseek(y, at, SEEK_DATA);
        /* Both are holes from here on. */
        if (data < 0 && other < 0)
            break;
        at = data < 0 || (other >= 0 && other < data) ? other : data;
        at = at / UNIT * UNIT;
        ssize_t n = util_pread_full(x, p, sizeof(p), (uint64_t)at);
        ck_assert_int_eq(util_pread_full(y, q, sizeof(q), (uint64_t)at), n);
        ck_assert_msg(memcmp(p, q, (size_t)n) == 0, "%s differs at %lld", b, (long long)at);
        at += n;
    }
}
