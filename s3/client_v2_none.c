/* In place of client_v2.c where Cairn is built without libs3 (-Dlibs3=false). */
#include "s3/client.h"

#include <errno.h>

int client_v2_new(const struct s3_config *config, struct s3_client **out, struct cairn_error *err)
{
    (void)config;
    *out = NULL;
    return error_set(err, CAIRN_INVALID, ENOTSUP,
                     "signature v2 is not built in: this program was made without libs3");
}
