/* Errors: a class for programs, an errno for the kernel's point of view, a message for people.
 *
 * A function that can fail returns its class (0 = CAIRN_OK) and fills *err only when it fails; the
 * struct lives on the caller's stack. Thread-safe: no shared state. Part of the public API. */
#ifndef CAIRN_BASE_ERROR_H
#define CAIRN_BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_API          __attribute__((visibility("default")))
#define CAIRN_MUST_CHECK   __attribute__((warn_unused_result))
#define CAIRN_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* The numbers are stable: they cross the service's socket by name and a C ABI by value. */
enum cairn_class {
    CAIRN_OK = 0,
    CAIRN_NOT_FOUND = 1, /* the record, generation or file does not exist */
    CAIRN_TRANSIENT = 2, /* may succeed when tried again: throttling, resets, a moved pack */
    CAIRN_PERMANENT = 3, /* will not succeed again: EACCES, EROFS, EIO, 403, NoSuchBucket */
    CAIRN_CORRUPT = 4,   /* stored bytes are not what was stored, or not of a known format */
    CAIRN_BUSY = 5,      /* in conflict with another writer, a hold, or what is already there */
    CAIRN_TIMEOUT = 6,   /* the caller's deadline passed */
    CAIRN_CANCELLED = 7, /* the caller's token was fired */
    CAIRN_INVALID = 8,   /* the request itself is wrong: a bad id, a fifo in the staging */
    CAIRN_NO_SPACE = 9,  /* ENOSPC, EDQUOT */
    CAIRN_INTERNAL = 10, /* memory ran out, or a defect of Cairn */
};

#define CAIRN_ERROR_MESSAGE_MAX 512

struct cairn_error {
    int error_class;                       /* enum cairn_class */
    int sys_errno;                         /* 0 where no errno was involved */
    char message[CAIRN_ERROR_MESSAGE_MAX]; /* never empty after a failure; always terminated */
};

/* Stable lower-case name of a class ("not_found"); "internal" for an unknown number. */
CAIRN_API const char *cairn_class_name(int error_class);

/* The errno that fits a class best where a caller (FUSE) must answer with one: err->sys_errno if it
 * is set, else ENOENT, EAGAIN, EIO, EBUSY, ETIMEDOUT, ECANCELED, EINVAL, ENOSPC. */
CAIRN_API int cairn_error_errno(const struct cairn_error *err);

#ifdef CAIRN_BUILDING /* inside Cairn; what follows is no part of the public API */

/* Set *err (which may be NULL) and return error_class. A message that is cut is cut at the end. */
int error_set(struct cairn_error *err, int error_class, int sys_errno, const char *fmt, ...)
    CAIRN_PRINTF(4, 5);

/* As error_set with the class that errno_class gives and ": <strerror>" behind the message. */
int error_sys(struct cairn_error *err, int sys_errno, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* Put "<context>: " in front of the message; class and errno stay. Returns the class. */
int error_wrap(struct cairn_error *err, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* *err (which may be NULL) becomes *from. Returns the class. */
int error_pass(struct cairn_error *err, const struct cairn_error *from);

/* At the top of a public function: from here on err is not NULL, so that no class is lost. */
#define ERROR_OR_LOCAL(err)                                                                        \
    struct cairn_error err##_local_;                                                               \
    if (!(err))                                                                                    \
    (err) = &err##_local_

/* Memory ran out while doing what. Returns CAIRN_INTERNAL with ENOMEM. */
int error_oom(struct cairn_error *err, const char *what);

/* Class of a failed system call. ENOENT and ENOTDIR: not_found; ENOSPC, EDQUOT: no_space; EAGAIN,
 * EINTR, EMFILE, ENFILE: transient; ETIMEDOUT: timeout; EBUSY, EEXIST: busy; EINVAL and
 * ENAMETOOLONG: invalid; ENOMEM: internal; every other: permanent. */
int errno_class(int sys_errno);

#endif /* CAIRN_BUILDING */

#ifdef __cplusplus
}
#endif

#endif
