#include "store/layout.h"

#include "base/util.h"

#include <stdio.h>
#include <string.h>

void layout_meta(const char *id, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "records/%s/meta.json", id);
}

void layout_export(const char *id, const char *gen, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "records/%s/export-%s", id, gen);
}

void layout_staged(const char *id, const char *gen, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "records/%s/meta-%s.staged", id, gen);
}

void layout_trace(const char *id, const char *gen, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "records/%s/trace-%s", id, gen);
}

void layout_record(const char *id, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "records/%s/", id);
}

void layout_hold(const char *id, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, LAYOUT_HOLDS "%s", id);
}

void layout_tomb(const char *id, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, LAYOUT_TOMB "%s", id);
}

static void with_pack(const char *prefix, const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX])
{
    char hex[PACK_TEXT];
    util_hex(pack, PACK_ID_LEN, hex);
    snprintf(key, KEY_MAX, "%s%s", prefix, hex);
}

void layout_pack(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX])
{
    char prefix[16];
    snprintf(prefix, sizeof(prefix), LAYOUT_PACKS "%02x/", pack[0]);
    with_pack(prefix, pack, key);
}

void layout_closed(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX])
{
    with_pack(LAYOUT_CLOSED, pack, key);
}

void layout_dead(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX])
{
    with_pack(LAYOUT_DEAD, pack, key);
}

void layout_pin(const char *node, const char *nonce, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, LAYOUT_PINS "%s/%s", node, nonce);
}

void layout_intent(const char *id, const char *gen, const char *node, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, LAYOUT_INTENT "%s/%s/%s", id, gen, node);
}

/* The rest of key behind prefix, or NULL. */
static const char *behind(const char *key, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 ? key + n : NULL;
}

static void parse_record(const char *rest, struct layout_key *out)
{
    const char *slash = strchr(rest, '/');
    if (!slash || (size_t)(slash - rest) >= sizeof(out->id))
        return;
    char id[sizeof(out->id)] = "";
    memcpy(id, rest, (size_t)(slash - rest));
    if (!id_is_valid(id))
        return;
    const char *name = slash + 1, *gen = behind(name, "export-"), *trace = behind(name, "trace-");
    if (strcmp(name, "meta.json") == 0) {
        out->kind = LAYOUT_KIND_META;
    } else if (gen && gen_is_valid(gen)) {
        out->kind = LAYOUT_KIND_EXPORT;
        memcpy(out->gen, gen, GEN_TEXT);
    } else if (trace && gen_is_valid(trace)) {
        out->kind = LAYOUT_KIND_TRACE;
        memcpy(out->gen, trace, GEN_TEXT);
    } else if ((gen = behind(name, "meta-")) && strlen(gen) == 2 * GEN_LEN + 7 &&
               strcmp(gen + 2 * (size_t)GEN_LEN, ".staged") == 0) {
        char text[GEN_TEXT] = "";
        memcpy(text, gen, 2 * (size_t)GEN_LEN);
        if (!gen_is_valid(text))
            return;
        out->kind = LAYOUT_KIND_STAGED;
        memcpy(out->gen, text, GEN_TEXT);
    } else {
        return;
    }
    memcpy(out->id, id, sizeof(id));
}

/* <id>/<gen>/<node> */
static void parse_intent(const char *rest, struct layout_key *out)
{
    const char *gen = strchr(rest, '/'), *node = gen ? strchr(gen + 1, '/') : NULL;
    if (!node || !node[1] || strchr(node + 1, '/') || gen - rest > ID_MAX || node - gen != GEN_TEXT)
        return;
    char id[ID_MAX + 1] = "", name[GEN_TEXT] = "";
    memcpy(id, rest, (size_t)(gen - rest));
    memcpy(name, gen + 1, GEN_TEXT - 1);
    if (!id_is_valid(id) || !gen_is_valid(name))
        return;
    out->kind = LAYOUT_KIND_INTENT;
    memcpy(out->id, id, sizeof(id));
    memcpy(out->gen, name, sizeof(name));
}

void layout_parse(const char *key, struct layout_key *out)
{
    *out = (struct layout_key){.kind = LAYOUT_KIND_UNKNOWN};
    const char *rest;
    if (strcmp(key, LAYOUT_FORMAT) == 0) {
        out->kind = LAYOUT_KIND_FORMAT;
    } else if ((rest = behind(key, LAYOUT_RECORDS))) {
        parse_record(rest, out);
    } else if ((rest = behind(key, LAYOUT_PACKS))) {
        if (strlen(rest) == 3 + 2 * PACK_ID_LEN && rest[2] == '/' &&
            strncmp(rest, rest + 3, 2) == 0 && util_unhex(rest + 3, out->pack, PACK_ID_LEN))
            out->kind = LAYOUT_KIND_PACK;
    } else if ((rest = behind(key, LAYOUT_CLOSED))) {
        if (util_unhex(rest, out->pack, PACK_ID_LEN))
            out->kind = LAYOUT_KIND_CLOSED;
    } else if ((rest = behind(key, LAYOUT_DEAD))) {
        if (util_unhex(rest, out->pack, PACK_ID_LEN))
            out->kind = LAYOUT_KIND_DEAD;
    } else if ((rest = behind(key, LAYOUT_TOMB)) || (rest = behind(key, LAYOUT_HOLDS))) {
        if (id_is_valid(rest)) {
            out->kind = rest - key == sizeof(LAYOUT_TOMB) - 1 ? LAYOUT_KIND_TOMB : LAYOUT_KIND_HOLD;
            memcpy(out->id, rest, strlen(rest) + 1);
        }
    } else if (strcmp(key, LAYOUT_CLOCK) == 0) {
        out->kind = LAYOUT_KIND_CLOCK;
    } else if ((rest = behind(key, LAYOUT_INTENT))) {
        parse_intent(rest, out);
    } else if ((rest = behind(key, LAYOUT_PINS))) {
        const char *slash = strchr(rest, '/');
        if (slash && slash > rest && slash[1] && !strchr(slash + 1, '/'))
            out->kind = LAYOUT_KIND_PIN;
    } else if ((rest = behind(key, LAYOUT_TMP))) {
        if (*rest && !strchr(rest, '/'))
            out->kind = LAYOUT_KIND_TMP;
    }
}
