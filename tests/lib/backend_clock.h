/* A wrapper around a backend whose own clock cannot be moved: objects have the stamps of a clock
 * that stands still until it is told to move. The stamps that the backend gives by itself are
 * looked at, and must be those of now. Thread-safe. */
#ifndef CAIRN_TESTS_BACKEND_CLOCK_H
#define CAIRN_TESTS_BACKEND_CLOCK_H

#include "store/backend.h"

/* inner is transferred, unless this fails, and holds no object yet. The caller owns *out until
 * backend_free. */
CAIRN_MUST_CHECK int backend_clock_new(struct backend *inner, struct backend **out,
                                       struct cairn_error *err);

/* ns may be negative. */
void backend_clock_advance(struct backend *b, int64_t ns);

/* Change one stored byte as rot would: xored with mask, under the stamp that the object has. */
CAIRN_MUST_CHECK int backend_clock_damage(struct backend *b, const char *key, uint64_t off,
                                          uint8_t mask, struct cairn_error *err);

#endif
