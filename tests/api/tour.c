/* A stranger's program: everything libcairn offers, by what is installed alone. Compiled as C11 and
 * as C++. Argument: an empty folder. Prints "N passed, N failed" at the end. */
#include <cairn.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CK1 "ck_0000000000000001"
#define CK2 "ck_0000000000000002"
#define CK3 "ck_0000000000000003"
#define TP  "tp_0123456789abcdef0123456789abcdef"

#define HOLES_SIZE (5LL * 1024 * 1024 * 1024 + 3)
#define DATA_SIZE  (300 * 1024 + 7)

static int passed, failed;
static struct cairn_error err;

/* A name that Cairn has inside: its headers must not take it from a program. */
static int error_set(int line, const char *what)
{
    fprintf(stderr, "tour.c:%d: %s (last error: %s)\n", line, what, err.message);
    return 1;
}

#define EXPECT(what) (void)((what) ? passed++ : (failed += error_set(__LINE__, #what)))
/* Nothing that follows makes sense without it. */
#define NEED(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            error_set(__LINE__, #what);                                                            \
            printf("%d passed, %d failed\n", passed, failed + 1);                                  \
            exit(1);                                                                               \
        }                                                                                          \
        passed++;                                                                                  \
    } while (0)

static char data[DATA_SIZE], back[DATA_SIZE];
static const char stamp[] = "stamp";

static int write_file(const char *path, const void *bytes, size_t len, long long at, long long size)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
    int ok = fd >= 0 && ftruncate(fd, size) == 0 && pwrite(fd, bytes, len, at) == (ssize_t)len;
    if (fd >= 0)
        close(fd);
    return ok;
}

static int same_bytes(const char *path, const void *bytes, size_t len, long long at, long long size)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    int ok = fd >= 0 && fstat(fd, &st) == 0 && st.st_size == size &&
             pread(fd, back, len, at) == (ssize_t)len && memcmp(back, bytes, len) == 0;
    /* A hole stays one: the 5 GiB file takes less than 1 MiB. */
    ok = ok && st.st_blocks * 512LL <= DATA_SIZE + 1024 * 1024;
    if (fd >= 0)
        close(fd);
    return ok;
}

static int count_entry(void *ctx, const struct cairn_list_entry *entry)
{
    *(int *)ctx += entry->error_class == CAIRN_OK && strlen(entry->gen) == 16;
    return 0;
}

static void found(void *ctx, int error_class, const char *object, const char *message)
{
    (void)ctx;
    fprintf(stderr, "verify: %s: %s: %s\n", cairn_class_name(error_class), object, message);
}

static void test_errors(struct cairn_store *store)
{
    struct cairn_record *record = NULL;
    EXPECT(cairn_record_open(store, NULL, "ck_00000000000000ff", &record, &err) == CAIRN_NOT_FOUND);
    EXPECT(err.error_class == CAIRN_NOT_FOUND && err.message[0] != 0);
    EXPECT(cairn_error_errno(&err) == ENOENT);
    EXPECT(strcmp(cairn_class_name(err.error_class), "not_found") == 0);
    EXPECT(cairn_record_open(store, NULL, "../ck_1", &record, &err) == CAIRN_INVALID);
    EXPECT(cairn_record_open(store, NULL, "../ck_1", &record, NULL) == CAIRN_INVALID);

    struct cairn_publish_options options;
    memset(&options, 0, sizeof(options));
    options.from = ".";
    struct cairn_publish_result result;
    struct cairn_op op;
    struct cairn_cancel *cancel = NULL;
    NEED(cairn_cancel_new(&cancel, &err) == CAIRN_OK);
    cairn_op_init(&op, -1, cancel);
    EXPECT(op.deadline_ns == CAIRN_NO_DEADLINE && !cairn_cancel_fired(cancel));
    cairn_cancel_fire(cancel);
    EXPECT(cairn_publish(store, &op, CK3, &options, &result, &err) == CAIRN_CANCELLED);
    cairn_op_init(&op, 0, NULL);
    EXPECT(cairn_publish(store, &op, CK3, &options, &result, &err) == CAIRN_TIMEOUT);
    EXPECT(cairn_record_open(store, NULL, CK3, &record, &err) == CAIRN_NOT_FOUND);
    cairn_cancel_free(cancel);
}

static void test_reading(struct cairn_store *store)
{
    struct cairn_record *record = NULL;
    struct cairn_record_info info;
    NEED(cairn_record_open(store, NULL, CK1, &record, &err) == CAIRN_OK);
    cairn_record_info(record, &info);
    EXPECT(strcmp(info.id, CK1) == 0 && info.files == 2 && info.parent_id[0] == 0);
    EXPECT(info.meta_len == 2 && memcmp(info.meta, "{}", 2) == 0);
    EXPECT(info.logical_bytes == HOLES_SIZE + DATA_SIZE);
    EXPECT(strncmp(info.digest, "sha256:", 7) == 0 && strlen(info.digest) == 71);

    int64_t holes = cairn_record_find(record, "sub/holes"), i = cairn_record_find(record, "data");
    NEED(holes >= 0 && i >= 0);
    EXPECT(cairn_record_find(record, "sub") == -1);
    struct cairn_file file;
    cairn_record_file(record, (uint64_t)holes, &file);
    EXPECT(strcmp(file.path, "sub/holes") == 0 && file.size == HOLES_SIZE);

    size_t got = 0;
    EXPECT(cairn_record_pread(record, NULL, (uint64_t)i, back, DATA_SIZE, 0, &got, &err) ==
           CAIRN_OK);
    EXPECT(got == DATA_SIZE && memcmp(back, data, DATA_SIZE) == 0);
    /* Over the edge of a chunk, and past the end. */
    EXPECT(cairn_record_pread(record, NULL, (uint64_t)i, back, 100, 65536 - 50, &got, &err) ==
           CAIRN_OK);
    EXPECT(got == 100 && memcmp(back, data + 65536 - 50, 100) == 0);
    EXPECT(cairn_record_pread(record, NULL, (uint64_t)i, back, 100, DATA_SIZE - 10, &got, &err) ==
           CAIRN_OK);
    EXPECT(got == 10 && memcmp(back, data + DATA_SIZE - 10, 10) == 0);
    EXPECT(cairn_record_pread(record, NULL, (uint64_t)holes, back, sizeof(stamp), HOLES_SIZE - 100,
                              &got, &err) == CAIRN_OK);
    EXPECT(got == sizeof(stamp) && memcmp(back, stamp, sizeof(stamp)) == 0);

    uint64_t first = cairn_record_seek(record, (uint64_t)holes, 0, false);
    EXPECT(first > HOLES_SIZE - 200 * 1024 && first <= HOLES_SIZE - 100);
    EXPECT(cairn_record_seek(record, (uint64_t)holes, 0, true) == 0);
    EXPECT(cairn_record_seek(record, (uint64_t)i, 0, true) == DATA_SIZE);

    struct cairn_fetch_result fetched;
    EXPECT(cairn_record_fetch(record, NULL, "out", NULL, &fetched, &err) == CAIRN_OK);
    EXPECT(fetched.logical_bytes == HOLES_SIZE + DATA_SIZE);
    EXPECT(same_bytes("out/data", data, DATA_SIZE, 0, DATA_SIZE));
    EXPECT(same_bytes("out/sub/holes", stamp, sizeof(stamp), HOLES_SIZE - 100, HOLES_SIZE));
    EXPECT(cairn_record_fetch(record, NULL, "out", NULL, &fetched, &err) == CAIRN_BUSY);
    cairn_record_close(record);
}

static void test_housekeeping(struct cairn_store *store)
{
    char gen[CAIRN_GEN_TEXT];
    EXPECT(cairn_fork(store, NULL, CK1, TP, NULL, 0, gen, &err) == CAIRN_OK && strlen(gen) == 16);
    int n = 0;
    EXPECT(cairn_list(store, NULL, NULL, count_entry, &n, &err) == CAIRN_OK && n == 3);
    EXPECT(cairn_hold(store, NULL, TP, &err) == CAIRN_OK);
    EXPECT(cairn_delete(store, NULL, TP, &err) == CAIRN_BUSY);
    EXPECT(cairn_release(store, NULL, TP, &err) == CAIRN_OK);
    EXPECT(cairn_delete(store, NULL, TP, &err) == CAIRN_OK);
    EXPECT(cairn_delete(store, NULL, TP, &err) == CAIRN_OK);

    struct cairn_stats stats;
    EXPECT(cairn_stats(store, NULL, &stats, &err) == CAIRN_OK && stats.records == 2);
    struct cairn_verify_options options;
    struct cairn_verify_result result;
    memset(&options, 0, sizeof(options));
    options.found = found;
    EXPECT(cairn_verify(store, NULL, &options, &result, &err) == CAIRN_OK);
    EXPECT(result.errors == 0 && result.unknown_keys == 0 && result.checked_records == 2);
    EXPECT(result.checked_chunks > 0 && result.checked_bytes > 0);
}

int main(int argc, char **argv)
{
    struct cairn_config config;
    struct cairn_store *store = NULL;
    struct cairn_store_info info;
    if (argc != 2 || chdir(argv[1]) != 0)
        return 2;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * i / 7 + i / 251);
    NEED(mkdir("export", 0700) == 0 && mkdir("export/sub", 0700) == 0);
    NEED(write_file("export/data", data, DATA_SIZE, 0, DATA_SIZE));
    NEED(write_file("export/sub/holes", stamp, sizeof(stamp), HOLES_SIZE - 100, HOLES_SIZE));

    memset(&config, 0, sizeof(config));
    config.store = "store";
    config.state = "state";
    EXPECT(cairn_open(&config, NULL, &store, &err) == CAIRN_NOT_FOUND);
    NEED(cairn_init(&config, NULL, NULL, &err) == CAIRN_OK);
    EXPECT(cairn_init(&config, NULL, NULL, &err) == CAIRN_BUSY);
    NEED(cairn_open(&config, NULL, &store, &err) == CAIRN_OK);
    cairn_store_info(store, &info);
    EXPECT(info.chunk_size == 65536 && info.compression == CAIRN_COMPRESSION_ZSTD);

    struct cairn_publish_options options;
    struct cairn_publish_result result;
    memset(&options, 0, sizeof(options));
    options.from = "export";
    options.meta = "{}";
    options.meta_len = 2;
    options.digest = true;
    NEED(cairn_publish(store, NULL, CK1, &options, &result, &err) == CAIRN_OK);
    EXPECT(result.logical_bytes == HOLES_SIZE + DATA_SIZE && result.new_chunks == result.chunks);
    EXPECT(result.new_bytes < 1024 * 1024 && !result.unchanged && result.digest[0] != 0);
    options.meta = "{\"n\":2}";
    options.meta_len = 7;
    options.parent = CK1;
    EXPECT(cairn_publish(store, NULL, CK2, &options, &result, &err) == CAIRN_OK);
    EXPECT(result.new_chunks == 0 && result.new_bytes == 0);

    test_errors(store);
    test_reading(store);
    test_housekeeping(store);
    cairn_close(store);
    printf("%s: %d passed, %d failed\n", cairn_version(), passed, failed);
    return failed != 0;
}
