/* Record ids, generation names and pack names: the words that keys are made of. Pure functions. */
#ifndef CAIRN_STORE_IDS_H
#define CAIRN_STORE_IDS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define ID_MAX      35 /* "tp_" + 32 hex digits, without the NUL */
#define GEN_LEN     8
#define GEN_TEXT    (2 * GEN_LEN + 1)
#define PACK_ID_LEN 16
#define PACK_TEXT   (2 * PACK_ID_LEN + 1)
#define META_MAX    (1024 * 1024)

/* ^ck_[0-9a-f]{16}$ or ^tp_[0-9a-f]{32}$ */
bool id_is_valid(const char *id);
/* Invalid, with the id in the message (cut and with odd bytes escaped), if it is none. */
CAIRN_MUST_CHECK int id_check(const char *id, struct cairn_error *err);
/* A template may be published again; a checkpoint is published once. id is valid. */
bool id_is_template(const char *id);

/* 16 lower-case hex digits. */
bool gen_is_valid(const char *gen);
/* The name of the generation that has this meta: the first 8 bytes of its SHA-256 in hex. Invalid
 * for more than META_MAX bytes. */
CAIRN_MUST_CHECK int gen_of_meta(const void *meta, size_t len, char out[GEN_TEXT],
                                 struct cairn_error *err);

#endif
