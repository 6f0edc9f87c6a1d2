#include "s3/profile.h"

#include "base/buf.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

void s3_wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void s3_profile_release(struct s3_profile *p)
{
    s3_wipe(p->access_key);
    s3_wipe(p->secret);
    s3_wipe(p->token);
    free(p->region);
    *p = (struct s3_profile){0};
}

static int read_file(const char *path, struct buf *out, struct cairn_error *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return CAIRN_OK;
    if (fd < 0)
        return error_sys(err, errno, "opening %s", path);
    for (;;) {
        int rc = buf_reserve(out, 4096, err);
        if (rc)
            return error_wrap(err, "reading %s", path);
        ssize_t n = read(fd, out->data + out->len, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, errno, "reading %s", path);
        if (n == 0)
            return CAIRN_OK;
        out->len += (size_t)n;
    }
}

static char *trim(char *s)
{
    s += strspn(s, " \t\r");
    size_t n = strlen(s);
    while (n && strchr(" \t\r", s[n - 1]))
        s[--n] = 0;
    return s;
}

/* Whether "[…]" names the section, with any spaces between its words. */
static bool names_section(char *line, const char *section)
{
    char *end = strchr(line, ']');
    if (!end)
        return false;
    *end = 0;
    char *name = trim(line + 1);
    while (*name && *section) {
        if (*name == ' ' || *name == '\t') {
            if (*section != ' ')
                return false;
            name += strspn(name, " \t");
            section++;
        } else if (*name++ != *section++) {
            return false;
        }
    }
    return !*name && !*section;
}

static int take(struct s3_profile *p, const char *name, const char *value, struct cairn_error *err)
{
    char **to = strcmp(name, "aws_access_key_id") == 0       ? &p->access_key
                : strcmp(name, "aws_secret_access_key") == 0 ? &p->secret
                : strcmp(name, "aws_session_token") == 0     ? &p->token
                : strcmp(name, "region") == 0                ? &p->region
                                                             : NULL;
    if (!to || *to || !*value)
        return CAIRN_OK;
    *to = strdup(value);
    return *to ? CAIRN_OK : error_oom(err, "profile");
}

static int parse(char *text, const char *section, struct s3_profile *out, struct cairn_error *err)
{
    bool inside = false;
    int rc = CAIRN_OK;
    for (char *line = text, *next; line && !rc; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        /* An indented line continues the one above (a nested setting): none of ours is one. */
        if (*line == ' ' || *line == '\t')
            continue;
        line = trim(line);
        if (*line == '[') {
            inside = names_section(line, section);
            out->found |= inside;
            continue;
        }
        char *eq = strchr(line, '=');
        if (!inside || !eq || *line == '#' || *line == ';')
            continue;
        *eq = 0;
        rc = take(out, trim(line), trim(eq + 1), err);
    }
    return rc;
}

int s3_profile_load(const char *path, const char *section, struct s3_profile *out,
                    struct cairn_error *err)
{
    struct buf text = BUF_INIT(PROFILE_FILE_MAX);
    int rc = read_file(path, &text, err);
    if (!rc)
        rc = buf_add(&text, "", 1, err);
    if (!rc)
        rc = parse((char *)text.data, section, out, err);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_release(&text);
    return rc;
}
