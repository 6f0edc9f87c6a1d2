#include "tests/s3/object.h"

#include <string.h>

uint8_t body[BODY_LEN], got[BODY_LEN];

void plant(void)
{
    testing_fill(body, sizeof(body), 7);
    s3fs_store(fs, "pre/fix/obj", body, sizeof(body));
}

int read_range(const struct cairn_op *op, uint64_t off, size_t len, struct cairn_error *err)
{
    memset(got, 0xee, sizeof(got));
    return store->ops->read(store, op, "obj", off, got, len, err);
}
