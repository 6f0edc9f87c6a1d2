/* What the tests of the chunk index share. Included by these only. */
#ifndef CAIRN_TESTS_INDEX_KIT_H
#define CAIRN_TESTS_INDEX_KIT_H

#include "base/log.h"
#include "base/util.h"
#include "store/index_private.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KIT static __attribute__((unused))

KIT const char store_a[] = "00112233445566778899aabbccddeeff";
KIT const char store_b[] = "ffeeddccbbaa99887766554433221100";

#define N 1000

KIT char path[300];
KIT unsigned warnings;

KIT void count_warning(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    ck_assert(line[0]);
    __atomic_fetch_add(&warnings, level == LOG_LEVEL_WARNING, __ATOMIC_RELAXED);
}

KIT void new_path(void)
{
    static const char *folder;
    static pid_t pid;
    static unsigned n;
    if (pid != getpid())
        folder = testing_tmpdir();
    pid = getpid();
    snprintf(path, sizeof(path), "%s/index-%u.db", folder, n++);
    log_set_sink(count_warning, NULL, LOG_LEVEL_DEBUG);
    warnings = 0;
}

KIT int ask_nothing(struct index *x, void *arg, struct cairn_error *err)
{
    (void)x, (void)arg, (void)err;
    return CAIRN_OK;
}

/* A new one, opened at once. */
KIT int index_open(const char *at, const char *store, struct index **out, struct cairn_error *err)
{
    struct index *x = NULL;
    int rc = index_new(at, store, &x, err);
    if (!rc)
        rc = index_db_call(x, ask_nothing, NULL, false, err);
    if (!rc)
        *out = x;
    else
        index_close(x);
    return rc;
}

KIT struct index *open_index(const char *store)
{
    struct cairn_error err;
    struct index *x = NULL;
    ck_ok(index_open(path, store, &x, &err));
    return x;
}

KIT void pack_id(uint64_t no, uint8_t out[PACK_ID_LEN])
{
    testing_fill(out, PACK_ID_LEN, no * 2 + 1);
}

/* Chunk i of pack no; every third one is based on the one before. */
KIT void entry(uint64_t no, uint32_t i, struct pack_entry *e)
{
    memset(e, 0, sizeof(*e));
    testing_fill(e->sha, SHA256_LEN, no << 32 | i);
    e->offset = 4096 + i * 5000;
    e->stored_len = 4000 + i;
    e->plain_len = 65536 - i;
    e->encoding = CHUNK_ZSTD;
    if (i % 3 == 2) {
        e->encoding = CHUNK_ZSTD_BASE;
        testing_fill(e->base_sha, SHA256_LEN, no << 32 | (i - 1));
    }
}

KIT struct pack_entry entries[N];

KIT int add(struct index *x, uint64_t no, uint32_t n, struct cairn_error *err)
{
    uint8_t id[PACK_ID_LEN];
    pack_id(no, id);
    for (uint32_t i = 0; i < n; i++)
        entry(no, i, &entries[i]);
    return index_add_pack(x, id, entries, n, err);
}

KIT void add_ok(struct index *x, uint64_t no, uint32_t n)
{
    struct cairn_error err;
    ck_ok(add(x, no, n, &err));
}

KIT int drop(struct index *x, uint64_t no, struct cairn_error *err)
{
    uint8_t id[PACK_ID_LEN];
    pack_id(no, id);
    return index_drop_pack(x, id, err);
}

KIT bool has(struct index *x, uint64_t no)
{
    struct cairn_error err;
    uint8_t id[PACK_ID_LEN];
    bool yes = false;
    pack_id(no, id);
    ck_ok(index_has_pack(x, id, &yes, &err));
    return yes;
}

KIT bool is_loc(const struct chunk_loc *loc, uint64_t no, const struct pack_entry *e)
{
    uint8_t id[PACK_ID_LEN];
    pack_id(no, id);
    return memcmp(loc->pack, id, PACK_ID_LEN) == 0 && loc->offset == e->offset &&
           loc->stored_len == e->stored_len && loc->plain_len == e->plain_len &&
           loc->encoding == e->encoding;
}

/* Chunk i of pack no is known, there, with all it needs; or not known. Anything else fails. */
KIT bool knows(struct index *x, uint64_t no, uint32_t i)
{
    struct cairn_error err = {0};
    struct pack_entry e, base;
    struct chunk c;
    entry(no, i, &e);
    int rc = index_lookup(x, e.sha, &c, &err);
    if (rc) {
        ck_assert_msg(rc == CAIRN_NOT_FOUND, "%s", err.message);
        ck_assert(err.message[0]);
        return false;
    }
    ck_assert_mem_eq(c.sha, e.sha, SHA256_LEN);
    ck_assert(is_loc(&c.loc, no, &e));
    if (e.encoding == CHUNK_ZSTD_BASE) {
        entry(no, i - 1, &base);
        ck_assert_mem_eq(c.base_sha, base.sha, SHA256_LEN);
        ck_assert(is_loc(&c.base, no, &base));
    }
    return true;
}

/* The same of all of a pack, asked at once. */
KIT unsigned count_known_at_once(struct index *x, uint64_t no)
{
    struct cairn_error err;
    struct pack_entry e, base;
    unsigned n = 0;
    static struct index_query q[N];
    memset(q, 0xee, sizeof(q));
    for (uint32_t i = 0; i < N; i++) {
        entry(no, i, &e);
        memcpy(q[i].chunk.sha, e.sha, SHA256_LEN);
        q[i].found = true;
    }
    ck_ok(index_lookup_many(x, q, N, &err));
    for (uint32_t i = 0; i < N; i++) {
        if (!q[i].found)
            continue;
        n++;
        entry(no, i, &e);
        ck_assert_mem_eq(q[i].chunk.sha, e.sha, SHA256_LEN);
        ck_assert(is_loc(&q[i].chunk.loc, no, &e));
        if (e.encoding == CHUNK_ZSTD_BASE) {
            entry(no, i - 1, &base);
            ck_assert(is_loc(&q[i].chunk.base, no, &base));
        }
    }
    return n;
}

KIT unsigned count_known(struct index *x, uint64_t no)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < N; i++)
        n += knows(x, no, i);
    return n;
}

KIT void expect_stats(struct index *x, uint64_t packs, uint64_t chunks)
{
    struct cairn_error err;
    struct index_stats s;
    ck_ok(index_stats(x, &s, &err));
    ck_assert_uint_eq(s.packs, packs);
    ck_assert_uint_eq(s.chunks, chunks);
    ck_assert_uint_gt(s.bytes, 0);
}

KIT void write_file(const char *name, const void *data, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(util_pwrite_full(fd, data, len, 0), (ssize_t)len);
    close(fd);
}

KIT uint64_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
}

KIT void make_full(void)
{
    struct cairn_error err;
    new_path();
    struct index *x = open_index(store_a);
    add_ok(x, 1, N);
    ck_ok(index_set_built(x, &err));
    index_close(x);
    ck_assert_uint_gt(size_of(path), 65536);
}

/* What is at path is no use: the index is made anew, says so, and works. */
KIT void expect_replaced(void)
{
    warnings = 0;
    struct index *x = open_index(store_a);
    ck_assert(index_is_new(x));
    ck_assert_uint_eq(warnings, 1);
    ck_assert_uint_eq(count_known(x, 1), 0);
    add_ok(x, 2, N);
    ck_assert_uint_eq(count_known(x, 2), N);
    index_close(x);
    x = open_index(store_a);
    ck_assert_uint_eq(count_known(x, 2), N);
    ck_assert_uint_eq(warnings, 1);
    index_close(x);
}

#endif
