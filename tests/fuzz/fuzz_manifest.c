#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk_manifest(data, size);
    return 0;
}
