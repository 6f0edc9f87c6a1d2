#include "s3/shared_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static void fail(struct shared_lib *lib, int sys_errno)
{
    const char *why = dlerror();
    lib->rc = error_set(lib->err, CAIRN_PERMANENT, sys_errno,
                        "a store in a bucket needs the library %s: %s", lib->file,
                        why ? why : "no reason given");
}

struct shared_lib shared_lib_open(const char *file, struct cairn_error *err)
{
    struct shared_lib lib = {
        .file = file, .handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), .err = err};
    if (!lib.handle)
        fail(&lib, ELIBACC);
    return lib;
}

void shared_lib_find(struct shared_lib *lib, const char *name, void *slot)
{
    void *found = lib->rc ? NULL : dlsym(lib->handle, name);
    if (!found && !lib->rc)
        fail(lib, ELIBBAD);
    /* POSIX hands out functions as pointers to data. */
    if (found)
        memcpy(slot, &found, sizeof(found));
}
