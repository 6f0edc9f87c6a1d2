/* The keys of a store, the same in a directory and in a bucket (docs/format.md). Pure functions.
 *
 *   format.json                      records/<id>/meta.json
 *   records/<id>/export-<gen>        records/<id>/meta-<gen>.staged   (directory only)
 *   records/<id>/trace-<gen>
 *   packs/<2 hex>/<32 hex>           pins/<node>/<nonce>
 *   holds/<id>                       gc/closed/<pack>  gc/dead/<pack>  gc/tomb/<id>
 *   gc/clock                         gc/intent/<id>/<gen>/<node>
 *   tmp/<anything>                   (directory only)                                            */
#ifndef CAIRN_STORE_LAYOUT_H
#define CAIRN_STORE_LAYOUT_H

#include "store/ids.h"

/* Room for every key that Cairn makes, with its NUL. Keys found in a store may be longer. */
#define KEY_MAX 160

#define LAYOUT_FORMAT  "format.json"
#define LAYOUT_RECORDS "records/"
#define LAYOUT_PACKS   "packs/"
#define LAYOUT_PINS    "pins/"
#define LAYOUT_HOLDS   "holds/"
#define LAYOUT_GC      "gc/"
#define LAYOUT_CLOSED  "gc/closed/"
#define LAYOUT_DEAD    "gc/dead/"
#define LAYOUT_TOMB    "gc/tomb/"
#define LAYOUT_INTENT  "gc/intent/"
#define LAYOUT_CLOCK   "gc/clock"
#define LAYOUT_TMP     "tmp/"

/* Names of nodes and of what they hold: 128 random bits in hex. */
#define LAYOUT_NODE_TEXT 33

/* id, gen and pack are valid. */
void layout_meta(const char *id, char key[KEY_MAX]);
void layout_export(const char *id, const char *gen, char key[KEY_MAX]);
void layout_staged(const char *id, const char *gen, char key[KEY_MAX]);
void layout_trace(const char *id, const char *gen, char key[KEY_MAX]);
void layout_record(const char *id, char key[KEY_MAX]); /* "records/<id>/", a listing's prefix */
void layout_hold(const char *id, char key[KEY_MAX]);
void layout_tomb(const char *id, char key[KEY_MAX]);
void layout_pack(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX]);
void layout_closed(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX]);
void layout_dead(const uint8_t pack[PACK_ID_LEN], char key[KEY_MAX]);
void layout_pin(const char *node, const char *nonce, char key[KEY_MAX]);
/* node "": the prefix of all nodes' intents on this generation. */
void layout_intent(const char *id, const char *gen, const char *node, char key[KEY_MAX]);

enum layout_kind {
    LAYOUT_KIND_UNKNOWN, /* not ours: ignored, reported by verify, never deleted */
    LAYOUT_KIND_FORMAT,
    LAYOUT_KIND_META,   /* id */
    LAYOUT_KIND_EXPORT, /* id, gen */
    LAYOUT_KIND_STAGED, /* id, gen */
    LAYOUT_KIND_TRACE,  /* id, gen; a hint, which makes no record exist */
    LAYOUT_KIND_PACK,   /* pack */
    LAYOUT_KIND_PIN,
    LAYOUT_KIND_HOLD,   /* id */
    LAYOUT_KIND_CLOSED, /* pack */
    LAYOUT_KIND_DEAD,   /* pack */
    LAYOUT_KIND_TOMB,   /* id */
    LAYOUT_KIND_INTENT, /* id, gen */
    LAYOUT_KIND_CLOCK,
    LAYOUT_KIND_TMP,
};

struct layout_key {
    enum layout_kind kind;
    char id[ID_MAX + 1];
    char gen[GEN_TEXT];
    uint8_t pack[PACK_ID_LEN];
};

/* Never fails: what does not fit is LAYOUT_KIND_UNKNOWN. A pack whose folder is not the first two
 * digits of its name is unknown. */
void layout_parse(const char *key, struct layout_key *out);

#endif
