/* Using what decoded: everything that the accessors promise must hold. */
#ifndef CAIRN_TESTS_FUZZ_WALK_H
#define CAIRN_TESTS_FUZZ_WALK_H

#include "store/format.h"
#include "store/manifest.h"
#include "store/pack.h"

/* Decode a copy of the bytes and walk through it; whether it decoded. */
bool walk_manifest(const uint8_t *data, size_t len);
/* A whole pack object; its own name is taken from its header. */
bool walk_pack(const uint8_t *data, size_t len);
bool walk_format(const uint8_t *data, size_t len);

#endif
