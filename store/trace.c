#include "store/trace.h"

#include "base/jsonw.h"
#include "base/jval.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void trace_release(struct trace *t)
{
    free(t->runs);
    *t = (struct trace){0};
}

int trace_add(struct trace *t, const struct trace_run *run, struct cairn_error *err)
{
    struct trace_run *last = t->n ? &t->runs[t->n - 1] : NULL;
    uint32_t room = TRACE_CHUNKS_MAX - t->chunks;
    uint32_t count = run->count < room ? run->count : room;
    if (!count)
        return CAIRN_OK;
    if (last && last->file == run->file && last->first + last->count == run->first) {
        last->count += count;
    } else {
        if (t->n == t->cap) {
            size_t cap = t->cap ? 2 * t->cap : 64;
            struct trace_run *more = reallocarray(t->runs, cap, sizeof(*more));
            if (!more)
                return error_oom(err, "trace");
            t->runs = more;
            t->cap = cap;
        }
        t->runs[t->n++] = (struct trace_run){run->first, run->file, count};
    }
    t->chunks += count;
    return CAIRN_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int no_trace(struct cairn_error *err, const char *why)
{
    return error_set(err, CAIRN_CORRUPT, EIO, "no trace: %s", why);
}

/* Where m has each of the files, -1 for those it has not; *out is the caller's. */
static int find_files(const struct jval *files, const struct manifest *m, int64_t **out,
                      struct cairn_error *err)
{
    size_t n = jval_len(files);
    if (!jval_is_array(files) || n > TRACE_FILES_MAX)
        return no_trace(err, "its files are no list, or too many");
    CLEANUP_FREE int64_t *found = calloc(n + 1, sizeof(*found));
    if (!found)
        return error_oom(err, "trace");
    for (size_t i = 0; i < n; i++) {
        const char *path = jval_str(jval_at(files, i));
        if (!path || !manifest_path_is_valid(path, strlen(path)))
            return no_trace(err, "a file has no path");
        found[i] = m ? manifest_find(m, path, strlen(path)) : -1;
    }
    *out = util_steal(&found);
    return CAIRN_OK;
}

/* As much of [first, first + count) as the file has. */
static int add_fitting(struct trace *t, const struct manifest *m, int64_t file, uint64_t first,
                       uint32_t count, struct cairn_error *err)
{
    struct manifest_file f;
    manifest_file(m, (uint32_t)file, &f);
    uint32_t cs = manifest_info(m)->chunk_size;
    uint64_t chunks = f.size / cs + (f.size % cs != 0);
    if (first >= chunks)
        return CAIRN_OK;
    if (count > chunks - first)
        count = (uint32_t)(chunks - first);
    return trace_add(t, &(struct trace_run){first, (uint32_t)file, count}, err);
}

static int parse(const struct jval *v, const struct manifest *m, struct trace *out,
                 struct cairn_error *err)
{
    const struct jval *files = jval_get(v, "files"), *touched = jval_get(v, "touched");
    CLEANUP_FREE int64_t *found = NULL;
    int rc = find_files(files, m, &found, err);
    if (rc)
        return rc;
    int64_t n_files = (int64_t)jval_len(files), total = 0;
    if (!jval_is_array(touched) || jval_len(touched) > TRACE_CHUNKS_MAX)
        return no_trace(err, "what was touched is no list, or too long");
    for (size_t i = 0; !rc && i < jval_len(touched); i++) {
        const struct jval *run = jval_at(touched, i);
        int64_t file, first, count;
        if (jval_len(run) != 3 || !jval_int(jval_at(run, 0), &file) || file < 0 ||
            file >= n_files || !jval_int(jval_at(run, 1), &first) || first < 0 ||
            !jval_int(jval_at(run, 2), &count) || count < 1 || count > TRACE_CHUNKS_MAX)
            return no_trace(err, "what was touched is not a file, a chunk and a count");
        total += count;
        if (total > TRACE_CHUNKS_MAX)
            return no_trace(err, "it names too many chunks");
        if (found[file] >= 0)
            rc = add_fitting(out, m, found[file], (uint64_t)first, (uint32_t)count, err);
    }
    return rc;
}

/* Nothing is left in out by a failure. */
static int take(const struct jval *v, const struct manifest *m, struct trace *out,
                struct cairn_error *err)
{
    int rc = parse(v, m, out, err);
    if (rc)
        trace_release(out);
    return rc;
}

int trace_decode(const void *text, size_t len, const struct manifest *m, struct trace *out,
                 struct cairn_error *err)
{
    *out = (struct trace){0};
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = jval_parse(text, len, &v, err);
    if (rc == CAIRN_INVALID)
        rc = no_trace(err, "no JSON");
    return rc ? rc : take(v, m, out, err);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Number the files in the order in which they come: the list of their paths; names[file] is the
 * number plus 1, 0: none. */
static void write_files(struct jsonw *w, const struct trace *t, const struct manifest *m,
                        uint32_t *names)
{
    uint32_t n = 0;
    jsonw_array(w, "files");
    for (size_t i = 0; i < t->n; i++) {
        struct manifest_file f;
        if (names[t->runs[i].file] || n == TRACE_FILES_MAX)
            continue;
        manifest_file(m, t->runs[i].file, &f);
        if (!util_is_utf8(f.path, f.path_len))
            continue;
        names[t->runs[i].file] = ++n;
        jsonw_strn(w, NULL, f.path, f.path_len);
    }
    jsonw_array_end(w);
}

int trace_encode(const struct trace *t, const struct manifest *m, struct buf *out,
                 struct cairn_error *err)
{
    CLEANUP_FREE uint32_t *names = calloc((size_t)manifest_info(m)->n_files + 1, sizeof(*names));
    if (!names)
        return error_oom(err, "trace");
    struct jsonw w = JSONW_INIT(out, err);
    jsonw_object(&w, NULL);
    write_files(&w, t, m, names);
    jsonw_array(&w, "touched");
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_run *run = &t->runs[i];
        if (!names[run->file])
            continue;
        jsonw_array(&w, NULL);
        jsonw_u64(&w, NULL, names[run->file] - 1);
        jsonw_u64(&w, NULL, run->first);
        jsonw_u64(&w, NULL, run->count);
        jsonw_array_end(&w);
    }
    jsonw_array_end(&w);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

/* ---- The object ------------------------------------------------------------------------------ */

int trace_get(struct cairn_store *s, const struct cairn_op *op, const char *id, const char *gen,
              const struct manifest *m, struct trace *out, struct cairn_error *err)
{
    char key[KEY_MAX];
    CLEANUP_JVAL struct jval *v = NULL;
    *out = (struct trace){0};
    layout_trace(id, gen, key);
    int rc = store_get_json(s, op, key, TRACE_MAX, &v, NULL, err);
    if (rc)
        return rc;
    rc = take(v, m, out, err);
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}

int trace_put(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
              const struct trace *t, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    char key[KEY_MAX];
    CLEANUP_BUF struct buf text = BUF_INIT(TRACE_MAX);
    layout_trace(info->id, info->gen, key);
    int rc = store_check_writer(s, err);
    if (!rc)
        rc = trace_encode(t, m, &text, err);
    if (!rc)
        rc = s->backend->ops->put(s->backend, op, key, text.data, text.len, err);
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}
