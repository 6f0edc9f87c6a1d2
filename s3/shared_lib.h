/* Shared libraries that are loaded when a bucket is first talked to: libcurl alone brings thirty
 * more with it, whose start takes longer than most commands on a directory. */
#ifndef CAIRN_S3_SHARED_LIB_H
#define CAIRN_S3_SHARED_LIB_H

#include "base/error.h"

struct shared_lib {
    const char *file; /* borrowed */
    void *handle;
    int rc; /* the first thing that went wrong; its message is in *err */
    struct cairn_error *err;
};

/* Load a library, for ever. permanent: it is not installed. */
struct shared_lib shared_lib_open(const char *file, struct cairn_error *err);
/* Look up a function of the library, or of what it needs itself, into *slot, a pointer to such a
 * function. permanent: there is none. Does nothing once something went wrong. */
void shared_lib_find(struct shared_lib *lib, const char *name, void *slot);

#endif
