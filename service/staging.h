/* Staging folders: <area>/<token>/, each for one client to put an export/ and a meta.json into.
 *
 * A staging belongs to its client (uid, gid) and nobody else may look into it (0700); the area
 * itself can be passed through (0711) but not listed. Thread-safe: every call is a few system calls
 * on the local disk. What is read here is read beneath descriptors, never through links. */
#ifndef CAIRN_SERVICE_STAGING_H
#define CAIRN_SERVICE_STAGING_H

#include "base/buf.h"
#include "service/ticket.h"

#include <sys/types.h>

struct staging_area;

/* path: absolute; made if absent. The caller owns *out. Errors: as the system says. */
CAIRN_MUST_CHECK int staging_area_open(const char *path, struct staging_area **out,
                                       struct cairn_error *err);
void staging_area_close(struct staging_area *a); /* NULL is allowed */

/* Make the staging of a token. *path is owned by the caller. permanent, EPERM: this process may not
 * give a folder to that user; EACCES: that user could not reach it, with the folder in the way. */
CAIRN_MUST_CHECK int staging_make(struct staging_area *a, const char *token, uid_t uid, gid_t gid,
                                  char **path, struct cairn_error *err);
/* Absent is success. */
CAIRN_MUST_CHECK int staging_remove(struct staging_area *a, const char *token,
                                    struct cairn_error *err);
/* When something was last made or taken away in it or its export/, CLOCK_REALTIME; 0: it is gone.
 */
int64_t staging_touched(struct staging_area *a, const char *token);
/* Call fn for each name in the area, until it returns non-zero. */
CAIRN_MUST_CHECK int staging_each(struct staging_area *a,
                                  int (*fn)(void *ctx, const char *name, struct cairn_error *err),
                                  void *ctx, struct cairn_error *err);

/* A staging that is about to be published. */
struct staging_open {
    int dir;        /* O_PATH of the folder, owned; -1: none */
    char from[64];  /* "/proc/self/fd/N" of its export/, which stays what it is while dir is open */
    int export_dir; /* owned */
};
#define STAGING_OPEN_INIT ((struct staging_open){.dir = -1, .export_dir = -1})
void staging_open_release(struct staging_open *o);

/* Open the folder for the user uid, who must be root or own it: that of a token (a is given), or
 * any folder by an absolute path (a is NULL) whose last name is no link.
 *
 * not_found: no such folder, or no export/ in it. permanent, EACCES: it is somebody else's.
 * invalid: no absolute path; something other than folders. */
CAIRN_MUST_CHECK int staging_open_for(struct staging_area *a, const char *token_or_path, uid_t uid,
                                      struct staging_open *out, struct cairn_error *err);
/* Append the bytes of its meta.json. not_found: it has none. permanent, EACCES: it is not the
 * user's (any is root's). invalid: larger than META_MAX, or no regular file. */
CAIRN_MUST_CHECK int staging_meta(const struct staging_open *o, uid_t uid, struct buf *out,
                                  struct cairn_error *err);

#endif
