#include "store/manifest.h"

#include <string.h>

bool manifest_same_export(const struct manifest *a, const struct manifest *b)
{
    uint32_t n = manifest_info(a)->n_files;
    if (n != manifest_info(b)->n_files)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct manifest_file x, y;
        manifest_file(a, i, &x);
        manifest_file(b, i, &y);
        if (x.size != y.size || x.path_len != y.path_len ||
            memcmp(x.path, y.path, x.path_len) != 0 ||
            memcmp(x.content, y.content, MANIFEST_CONTENT_LEN) != 0)
            return false;
    }
    return true;
}
