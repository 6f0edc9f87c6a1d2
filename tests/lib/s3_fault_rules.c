#include "tests/lib/s3_fault_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rule_free(struct rule *r)
{
    if (!r)
        return;
    free(r->key);
    free(r->raw);
    free(r);
}

static bool text_word(const char *word, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    if (strncmp(word, name, n) != 0 || word[n] != '=')
        return false;
    snprintf(out, size, "%s", word + n + 1);
    return true;
}

static bool number_word(const char *word, const char *name, int64_t *out)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(word, name, n) != 0 || word[n] != '=')
        return false;
    *out = strtoll(word + n + 1, &end, 10);
    return *end == 0 && end != word + n + 1;
}

static bool match_word(struct rule *r, const char *w)
{
    int64_t v;
    char key[1024];
    if (text_word(w, "key", key, sizeof(key)))
        return (r->key = strdup(key)) != NULL;
    if (number_word(w, "skip", &v))
        r->skip = (unsigned)v;
    else if (number_word(w, "times", &v))
        r->times = (unsigned)v;
    else if (number_word(w, "pct", &v))
        r->pct = (unsigned)v;
    else if (strlen(w) < sizeof(r->match) && strspn(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(w))
        snprintf(r->match, sizeof(r->match), "%s", w);
    else
        return false;
    return true;
}

static bool flag_word(struct rule *r, const char *w)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        {"bare", &r->bare},       {"early", &r->early},   {"hole", &r->hole},
        {"deaf", &r->deaf},       {"reset", &r->reset},   {"nothing", &r->nothing},
        {"norange", &r->norange}, {"empty", &r->empty},   {"repeat", &r->repeat},
        {"reverse", &r->reverse}, {"stored", &r->stored}, {"hangup", &r->hangup},
        {"shift", &r->shift},
    };
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(w, flags[i].name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    return false;
}

static bool do_word(struct rule *r, const char *w)
{
    int64_t v;
    if (number_word(w, "status", &v))
        r->status = (int)v;
    else if (number_word(w, "retry-after", &v))
        r->retry_after = (int)v;
    else if (number_word(w, "retry-date", &v))
        r->retry_date = (int)v;
    else if (number_word(w, "delay", &v))
        r->delay_ms = (unsigned)v;
    else
        return number_word(w, "stall", &r->stall) || number_word(w, "close", &r->close) ||
               number_word(w, "cut", &r->cut) || number_word(w, "flip", &r->flip) ||
               number_word(w, "extra", &r->extra) || number_word(w, "claim", &r->claim) ||
               text_word(w, "code", r->code, sizeof(r->code)) ||
               text_word(w, "message", r->message, sizeof(r->message)) ||
               text_word(w, "region", r->region, sizeof(r->region)) ||
               text_word(w, "endpoint", r->endpoint, sizeof(r->endpoint)) ||
               text_word(w, "location", r->location, sizeof(r->location)) ||
               text_word(w, "inner", r->inner, sizeof(r->inner)) ||
               text_word(w, "keep", r->keep, sizeof(r->keep)) ||
               text_word(w, "omit", r->omit, sizeof(r->omit)) || flag_word(r, w);
    return true;
}

struct rule *rule_parse(const char *line)
{
    struct rule *r = calloc(1, sizeof(*r));
    char *copy = strdup(line), *save = NULL;
    bool ok = r && copy, acting = false;
    if (r) {
        r->times = UINT_MAX;
        r->pct = 100;
        r->stall = r->close = r->cut = r->flip = -1;
        snprintf(r->match, sizeof(r->match), "ANY");
    }
    for (char *w = ok ? strtok_r(copy, " ", &save) : NULL; w && ok;
         w = strtok_r(NULL, " ", &save)) {
        if (!acting && strcmp(w, "do") == 0) {
            acting = true;
        } else if (acting && strcmp(w, "raw") == 0) {
            r->raw = strdup(save ? save : "");
            ok = r->raw != NULL;
            break;
        } else {
            ok = acting ? do_word(r, w) : match_word(r, w);
        }
    }
    free(copy);
    if (ok && acting)
        return r;
    rule_free(r);
    return NULL;
}

static bool matches(const struct rule *r, const struct request *q)
{
    bool is_list = strcmp(q->method, "GET") == 0 && q->in_bucket && !*q->path;
    const char *kind = is_list ? "LIST" : q->method;
    if (strcmp(r->match, "ANY") != 0 && strcmp(r->match, kind) != 0)
        return false;
    if (!r->key)
        return true;
    char prefix[2048];
    if (is_list && query_param(q, "prefix", prefix, sizeof(prefix)) && strstr(prefix, r->key))
        return true;
    return strstr(q->path, r->key) || strstr(q->raw_path, r->key);
}

struct rule *rule_for(struct s3fs *fs, const struct request *q)
{
    for (struct rule *r = fs->rules; r; r = r->next) {
        if (!r->times || !matches(r, q))
            continue;
        if (r->skip) {
            r->skip--;
            continue;
        }
        fs->random = fs->random * 6364136223846793005u + 1442695040888963407u;
        if ((fs->random >> 33) % 100 >= r->pct)
            continue;
        if (r->times != UINT_MAX)
            r->times--;
        return r;
    }
    return NULL;
}
