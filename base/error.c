#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int sys_errno;
} classes[] = {
    [CAIRN_OK] = {"ok", 0},
    [CAIRN_NOT_FOUND] = {"not_found", ENOENT},
    [CAIRN_TRANSIENT] = {"transient", EAGAIN},
    [CAIRN_PERMANENT] = {"permanent", EIO},
    [CAIRN_CORRUPT] = {"corrupt", EIO},
    [CAIRN_BUSY] = {"busy", EBUSY},
    [CAIRN_TIMEOUT] = {"timeout", ETIMEDOUT},
    [CAIRN_CANCELLED] = {"cancelled", ECANCELED},
    [CAIRN_INVALID] = {"invalid", EINVAL},
    [CAIRN_NO_SPACE] = {"no_space", ENOSPC},
    [CAIRN_INTERNAL] = {"internal", EIO},
};

#define N_CLASSES (sizeof(classes) / sizeof(classes[0]))

const char *cairn_class_name(int error_class)
{
    if (error_class < 0 || (size_t)error_class >= N_CLASSES)
        return "internal";
    return classes[error_class].name;
}

int cairn_error_errno(const struct cairn_error *err)
{
    if (err->sys_errno)
        return err->sys_errno;
    if (err->error_class < 0 || (size_t)err->error_class >= N_CLASSES)
        return EIO;
    return classes[err->error_class].sys_errno;
}

int errno_class(int sys_errno)
{
    switch (sys_errno) {
    case ENOENT:
    case ENOTDIR:
        return CAIRN_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return CAIRN_NO_SPACE;
    case EAGAIN:
    case EINTR:
    case EMFILE:
    case ENFILE:
        return CAIRN_TRANSIENT;
    case ETIMEDOUT:
        return CAIRN_TIMEOUT;
    case EBUSY:
    case EEXIST:
        return CAIRN_BUSY;
    case EINVAL:
    case ENAMETOOLONG:
        return CAIRN_INVALID;
    case ENOMEM:
        return CAIRN_INTERNAL;
    default:
        return CAIRN_PERMANENT;
    }
}

CAIRN_PRINTF(2, 0)
static void set_message(struct cairn_error *err, const char *fmt, va_list ap)
{
    int n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
    if (n <= 0)
        snprintf(err->message, sizeof(err->message), "(no detail)");
}

int error_set(struct cairn_error *err, int error_class, int sys_errno, const char *fmt, ...)
{
    if (!err)
        return error_class;
    va_list ap;
    va_start(ap, fmt);
    set_message(err, fmt, ap);
    va_end(ap);
    err->error_class = error_class;
    err->sys_errno = sys_errno;
    return error_class;
}

int error_sys(struct cairn_error *err, int sys_errno, const char *fmt, ...)
{
    int error_class = errno_class(sys_errno);
    if (!err)
        return error_class;
    va_list ap;
    va_start(ap, fmt);
    set_message(err, fmt, ap);
    va_end(ap);
    err->error_class = error_class;
    err->sys_errno = sys_errno;
    size_t n = strlen(err->message);
    char text[128];
    /* The GNU strerror_r may return a static string instead of filling the buffer. */
    snprintf(err->message + n, sizeof(err->message) - n, ": %s",
             strerror_r(sys_errno, text, sizeof(text)));
    return error_class;
}

int error_pass(struct cairn_error *err, const struct cairn_error *from)
{
    if (err)
        *err = *from;
    return from->error_class;
}

int error_wrap(struct cairn_error *err, const char *fmt, ...)
{
    if (!err)
        return CAIRN_INTERNAL;
    char inner[CAIRN_ERROR_MESSAGE_MAX];
    memcpy(inner, err->message, sizeof(inner));
    va_list ap;
    va_start(ap, fmt);
    set_message(err, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof(err->message) - n, ": %s", inner[0] ? inner : "(no detail)");
    return err->error_class;
}

int error_oom(struct cairn_error *err, const char *what)
{
    return error_set(err, CAIRN_INTERNAL, ENOMEM, "%s: out of memory", what);
}
