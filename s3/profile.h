/* The shared configuration files of the AWS tools: INI text with a section a profile. Thread-safe:
 * no shared state. */
#ifndef CAIRN_S3_PROFILE_H
#define CAIRN_S3_PROFILE_H

#include "base/error.h"

#include <stdbool.h>

/* What a section says; NULL where it does not. Owned; the release wipes it. */
struct s3_profile {
    bool found;
    char *access_key, *secret, *token, *region;
};

#define PROFILE_FILE_MAX ((size_t)1024 * 1024)

/* Add what section of the file says to *out (members already set are kept). An absent file is no
 * error. Errors: permanent and others by errno, with the path; invalid: too large; internal. */
CAIRN_MUST_CHECK int s3_profile_load(const char *path, const char *section, struct s3_profile *out,
                                     struct cairn_error *err);
void s3_profile_release(struct s3_profile *p);

/* free() after the bytes were wiped. NULL is allowed. */
void s3_wipe(char *text);

#endif
