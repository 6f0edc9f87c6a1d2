/* One object in the store of store.h, and reading of it. */
#ifndef CAIRN_TESTS_S3_OBJECT_H
#define CAIRN_TESTS_S3_OBJECT_H

#include "tests/s3/store.h"

#define BODY_LEN 100000
extern uint8_t body[BODY_LEN], got[BODY_LEN];

/* "obj" with the bytes of body, which are made. */
void plant(void);
/* Of it, into got. */
int read_range(const struct cairn_op *op, uint64_t off, size_t len, struct cairn_error *err);

#endif
