/* What a backend holds. A failure ends the test. */
#ifndef CAIRN_TESTS_OBJECTS_H
#define CAIRN_TESTS_OBJECTS_H

#include "store/backend.h"

/* bytes (may be NULL): of all of them. */
size_t objects_count(struct backend *b, const char *prefix, uint64_t *bytes);
/* False: there are no more than i. */
bool objects_nth(struct backend *b, const char *prefix, size_t i, char key[KEY_MAX]);
/* The keys greater than after, with blanks between them: a static text. */
const char *objects_keys(struct backend *b, const char *prefix, const char *after);
/* A small object, as a static text; NULL: not there. */
const char *objects_text(struct backend *b, const char *key);

#endif
