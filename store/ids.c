#include "store/ids.h"

#include "base/hash.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
    return s[n] == 0;
}

bool id_is_valid(const char *id)
{
    return (strncmp(id, "ck_", 3) == 0 && is_hex(id + 3, 16)) ||
           (strncmp(id, "tp_", 3) == 0 && is_hex(id + 3, 32));
}

int id_check(const char *id, struct cairn_error *err)
{
    if (id_is_valid(id))
        return CAIRN_OK;
    char shown[4 * 48 + 4], *out = shown;
    size_t i;
    for (i = 0; id[i] && i < 48; i++) {
        unsigned char c = (unsigned char)id[i];
        out += snprintf(out, 5, c >= 0x20 && c < 0x7f ? "%c" : "\\x%02x", c);
    }
    snprintf(out, 4, "%s", id[i] ? "..." : "");
    return error_set(err, CAIRN_INVALID, EINVAL,
                     "bad id \"%s\": ids are ck_ and 16, or tp_ and 32, lower-case hex digits",
                     shown);
}

bool id_is_template(const char *id)
{
    return id[0] == 't';
}

bool gen_is_valid(const char *gen)
{
    return is_hex(gen, 2 * GEN_LEN);
}

int gen_of_meta(const void *meta, size_t len, char out[GEN_TEXT], struct cairn_error *err)
{
    if (len > META_MAX)
        return error_set(err, CAIRN_INVALID, EFBIG, "meta.json of %zu bytes: at most %d are kept",
                         len, META_MAX);
    uint8_t sha[SHA256_LEN];
    int rc = hash_sha256(meta, len, sha, err);
    if (!rc)
        util_hex(sha, GEN_LEN, out);
    return rc;
}
