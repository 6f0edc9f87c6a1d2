#include "service/ticket.h"

#include "base/clock.h"
#include "base/jval.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TICKET_VERSION  1
#define TICKET_FILE_MAX ((size_t)16 * 1024)
/* "<token>.json", or with ".tmp" behind. */
#define NAME_TEXT (TOKEN_TEXT + 10)

static const char *const state_names[TICKET_STATES_] = {"staged", "queued", "running", "done",
                                                        "failed"};

const char *ticket_state_name(enum ticket_state state)
{
    return state_names[state];
}

int ticket_token(char out[TOKEN_TEXT], struct cairn_error *err)
{
    uint8_t random[(TOKEN_TEXT - 1) / 2];
    if (!util_random(random, sizeof(random))) {
        int e = errno;
        return error_sys(err, e, "random numbers for a token");
    }
    util_hex(random, sizeof(random), out);
    return CAIRN_OK;
}

bool ticket_token_is_valid(const char *token)
{
    uint8_t bytes[(TOKEN_TEXT - 1) / 2];
    return util_unhex(token, bytes, sizeof(bytes));
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Numbers of a publish's result, by their names in JSON. */
static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    {"logical_bytes", offsetof(struct cairn_publish_result, logical_bytes)},
    {"data_bytes", offsetof(struct cairn_publish_result, data_bytes)},
    {"new_bytes", offsetof(struct cairn_publish_result, new_bytes)},
    {"stored_bytes", offsetof(struct cairn_publish_result, stored_bytes)},
    {"chunks", offsetof(struct cairn_publish_result, chunks)},
    {"new_chunks", offsetof(struct cairn_publish_result, new_chunks)},
    {"empty_dirs", offsetof(struct cairn_publish_result, empty_dirs)},
};

static uint64_t *number(struct cairn_publish_result *r, size_t i)
{
    return (uint64_t *)((char *)r + numbers[i].offset);
}

static void write_stats(struct jsonw *w, const struct cairn_publish_result *result)
{
    struct cairn_publish_result r = *result;
    jsonw_object(w, "stats");
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        jsonw_u64(w, numbers[i].name, *number(&r, i));
    jsonw_bool(w, "unchanged", r.unchanged);
    jsonw_real(w, "seconds", r.seconds);
    jsonw_object_end(w);
}

static void write_error(struct jsonw *w, const struct cairn_error *e)
{
    jsonw_object(w, "error");
    jsonw_str(w, "class", cairn_class_name(e->error_class));
    jsonw_str(w, "message", e->message);
    jsonw_i64(w, "errno", e->sys_errno);
    jsonw_object_end(w);
}

static int encode(const struct ticket *t, struct buf *out, struct cairn_error *err)
{
    struct jsonw w = JSONW_INIT(out, err);
    jsonw_object(&w, NULL);
    jsonw_u64(&w, "version", TICKET_VERSION);
    jsonw_str(&w, "token", t->token);
    jsonw_str(&w, "state", state_names[t->state]);
    jsonw_u64(&w, "uid", t->uid);
    jsonw_str(&w, "id", t->id);
    jsonw_bool(&w, "own", t->own);
    jsonw_bool(&w, "keep", t->keep);
    jsonw_str(&w, "gen", t->gen);
    jsonw_str(&w, "request", t->request);
    jsonw_i64(&w, "created_ns", t->created_ns);
    jsonw_i64(&w, "updated_ns", t->updated_ns);
    if (t->state == TICKET_DONE) {
        jsonw_str(&w, "digest", t->result.digest);
        jsonw_bool(&w, "recovered", t->recovered);
        write_stats(&w, &t->result);
    }
    if (t->state == TICKET_FAILED)
        write_error(&w, &t->error);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static bool get_text(const struct jval *v, const char *name, char *out, size_t room)
{
    const char *text = jval_str(jval_get(v, name));
    size_t len = text ? strlen(text) : room;
    if (len >= room)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

static bool get_result(const struct jval *v, struct ticket *t)
{
    struct cairn_publish_result *r = &t->result;
    double seconds = 0;
    memcpy(r->gen, t->gen, GEN_TEXT);
    if (!jval_bool(jval_get(v, "recovered"), &t->recovered) ||
        !get_text(v, "digest", r->digest, sizeof(r->digest)))
        return false;
    v = jval_get(v, "stats");
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        int64_t n;
        if (!jval_int(jval_get(v, numbers[i].name), &n) || n < 0)
            return false;
        *number(r, i) = (uint64_t)n;
    }
    if (!jval_real(jval_get(v, "seconds"), &seconds))
        return false;
    r->seconds = seconds;
    return jval_bool(jval_get(v, "unchanged"), &r->unchanged);
}

static bool get_error(const struct jval *v, struct cairn_error *e)
{
    v = jval_get(v, "error");
    const char *name = jval_str(jval_get(v, "class"));
    const char *message = jval_str(jval_get(v, "message"));
    int64_t sys_errno;
    if (!name || !message || !message[0] || !jval_int(jval_get(v, "errno"), &sys_errno))
        return false;
    for (int c = CAIRN_NOT_FOUND; c <= CAIRN_INTERNAL; c++)
        if (strcmp(name, cairn_class_name(c)) == 0)
            e->error_class = c;
    e->sys_errno = (int)sys_errno;
    snprintf(e->message, sizeof(e->message), "%s", message);
    return e->error_class != CAIRN_OK;
}

static bool get_state(const struct jval *v, enum ticket_state *out)
{
    const char *name = jval_str(jval_get(v, "state"));
    for (int s = 0; name && s < TICKET_STATES_; s++)
        if (strcmp(name, state_names[s]) == 0) {
            *out = (enum ticket_state)s;
            return true;
        }
    return false;
}

static bool decode(const struct jval *v, const char *token, struct ticket *t)
{
    int64_t version, uid;
    *t = (struct ticket){0};
    bool ok = jval_int(jval_get(v, "version"), &version) && version == TICKET_VERSION &&
              get_text(v, "token", t->token, sizeof(t->token)) && strcmp(t->token, token) == 0 &&
              get_state(v, &t->state) && jval_int(jval_get(v, "uid"), &uid) && uid >= 0 &&
              uid <= UINT32_MAX && get_text(v, "id", t->id, sizeof(t->id)) && id_is_valid(t->id) &&
              jval_bool(jval_get(v, "own"), &t->own) && jval_bool(jval_get(v, "keep"), &t->keep) &&
              get_text(v, "gen", t->gen, sizeof(t->gen)) && (!t->gen[0] || gen_is_valid(t->gen)) &&
              get_text(v, "request", t->request, sizeof(t->request)) &&
              jval_int(jval_get(v, "created_ns"), &t->created_ns) &&
              jval_int(jval_get(v, "updated_ns"), &t->updated_ns);
    if (!ok)
        return false;
    t->uid = (uint32_t)uid;
    if (t->state != TICKET_STAGED && !t->gen[0])
        return false;
    return t->state == TICKET_DONE     ? get_result(v, t)
           : t->state == TICKET_FAILED ? get_error(v, &t->error)
                                       : true;
}

static void file_name(const char *token, char out[NAME_TEXT])
{
    snprintf(out, NAME_TEXT, "%s.json", token);
}

static int put(int dir, const char *temp, const char *name, const struct buf *b,
               struct cairn_error *err)
{
    CLEANUP_FD int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || util_pwrite_full(fd, b->data, b->len, 0) != (ssize_t)b->len || fsync(fd) != 0 ||
        renameat(dir, temp, dir, name) != 0 || fsync(dir) != 0) {
        int e = errno;
        unlinkat(dir, temp, 0);
        return error_sys(err, e, "writing the ticket %s", name);
    }
    return CAIRN_OK;
}

int ticket_write(int dir, const struct ticket *t, struct cairn_error *err)
{
    CLEANUP_BUF struct buf b = BUF_INIT(TICKET_FILE_MAX);
    char name[NAME_TEXT], temp[NAME_TEXT];
    file_name(t->token, name);
    snprintf(temp, sizeof(temp), "%s.tmp", t->token);
    int rc = encode(t, &b, err);
    return rc ? rc : put(dir, temp, name, &b, err);
}

int ticket_read(int dir, const char *token, struct ticket *out, struct cairn_error *err)
{
    char name[NAME_TEXT], text[TICKET_FILE_MAX];
    file_name(token, name);
    CLEANUP_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no publish with this token");
    ssize_t n = fd < 0 ? -1 : util_pread_full(fd, text, sizeof(text), 0);
    if (n < 0) {
        int e = errno;
        return error_sys(err, e, "reading the ticket %s", name);
    }
    struct jval *v CLEANUP_JVAL = NULL;
    struct cairn_error e = {0};
    int rc = jval_parse(text, (size_t)n, &v, &e);
    if (rc == CAIRN_INTERNAL)
        return error_oom(err, "ticket");
    if (rc || !decode(v, token, out))
        return error_set(err, CAIRN_CORRUPT, EIO, "the ticket %s is damaged%s%s", name,
                         rc ? ": " : "", e.message);
    return CAIRN_OK;
}

int ticket_remove(int dir, const char *token, struct cairn_error *err)
{
    char name[NAME_TEXT];
    file_name(token, name);
    if (unlinkat(dir, name, 0) != 0 && errno != ENOENT) {
        int e = errno;
        return error_sys(err, e, "removing the ticket %s", name);
    }
    return CAIRN_OK;
}

/* Call fn for each token with a file of that ending. */
static int each(int dir, const char *ending,
                int (*fn)(void *ctx, const char *token, struct cairn_error *err), void *ctx,
                struct cairn_error *err)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return error_sys(err, e, "listing the tickets");
    }
    int rc = CAIRN_OK;
    const struct dirent *entry;
    for (errno = 0; !rc && (entry = readdir(d)); errno = 0) {
        char token[TOKEN_TEXT];
        if (strlen(entry->d_name) < TOKEN_TEXT)
            continue;
        memcpy(token, entry->d_name, TOKEN_TEXT - 1);
        token[TOKEN_TEXT - 1] = 0;
        if (ticket_token_is_valid(token) && strcmp(entry->d_name + TOKEN_TEXT - 1, ending) == 0)
            rc = fn(ctx, token, err);
    }
    int e = errno;
    return rc ? rc : e ? error_sys(err, e, "listing the tickets") : CAIRN_OK;
}

int ticket_each(int dir, int (*fn)(void *ctx, const char *token, struct cairn_error *err),
                void *ctx, struct cairn_error *err)
{
    return each(dir, ".json", fn, ctx, err);
}

static int remove_temp(void *ctx, const char *token, struct cairn_error *err)
{
    const int *dir = ctx;
    char temp[NAME_TEXT];
    snprintf(temp, sizeof(temp), "%s.tmp", token);
    if (unlinkat(*dir, temp, 0) != 0 && errno != ENOENT) {
        int e = errno;
        return error_sys(err, e, "removing %s", temp);
    }
    return CAIRN_OK;
}

int ticket_clean(int dir, struct cairn_error *err)
{
    return each(dir, ".tmp", remove_temp, &dir, err);
}

/* ---- What a client sees ---------------------------------------------------------------------- */

static void json_time(struct jsonw *w, const char *name, int64_t ns)
{
    char text[CLOCK_RFC3339_MAX];
    clock_rfc3339(ns, text);
    jsonw_str(w, name, text);
}

void ticket_json(struct jsonw *w, const struct ticket *t)
{
    jsonw_str(w, "token", t->token);
    jsonw_str(w, "id", t->id);
    jsonw_str(w, "state", state_names[t->state]);
    if (t->gen[0])
        jsonw_str(w, "gen", t->gen);
    json_time(w, "created", t->created_ns);
    json_time(w, "updated", t->updated_ns);
    if (t->state == TICKET_RUNNING) {
        jsonw_u64(w, "bytes_done", t->bytes_done);
        jsonw_u64(w, "bytes_total", t->bytes_total);
    }
    if (t->state == TICKET_DONE) {
        if (t->result.digest[0])
            jsonw_str(w, "digest", t->result.digest);
        if (t->recovered)
            jsonw_bool(w, "recovered", true);
        else
            write_stats(w, &t->result);
    }
    if (t->state == TICKET_FAILED)
        write_error(w, &t->error);
}
