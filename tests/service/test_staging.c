#include "base/util.h"
#include "service/staging.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct staging_area *area;
static char base[200], root[300], token[TOKEN_TEXT];
#define OTHER 12345

static void setup(void)
{
    snprintf(base, sizeof(base), "%s", testing_tmpdir());
    snprintf(root, sizeof(root), "%s/staging", base);
    ck_ok(staging_area_open(root, &area, &err));
    ck_ok(ticket_token(token, &err));
}

/* A folder, a file or a link below the area. */
static const char *at(const char *rest)
{
    static char text[4][1024];
    static int n;
    n = (n + 1) % 4;
    snprintf(text[n], sizeof(text[n]), "%s/%s%s", root, token, rest);
    return text[n];
}

static void put(const char *path, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    char *text = calloc(1, len + 1);
    memset(text, 'm', len);
    ck_assert_int_eq(util_pwrite_full(fd, text, len, 0), (ssize_t)len);
    free(text);
    close(fd);
}

static void make(uid_t uid)
{
    CLEANUP_FREE char *path = NULL;
    ck_ok(staging_make(area, token, uid, uid, &path, &err));
    ck_assert_str_eq(path, at(""));
}

START_TEST(test_staging__modes_are_fixed_whatever_the_umask)
{
    umask(0);
    setup();
    make(geteuid());
    struct stat st;
    ck_assert_int_eq(stat(root, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0711);
    ck_assert_int_eq(stat(at(""), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    umask(0777);
    ck_ok(ticket_token(token, &err));
    make(geteuid());
    umask(022);
    ck_assert_int_eq(stat(at(""), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    staging_area_close(area);
}
END_TEST

START_TEST(test_staging__only_its_user_and_root_may_publish_it)
{
    setup();
    struct staging_open o;
    if (geteuid() != 0) { /* a folder cannot be given away */
        CLEANUP_FREE char *path = NULL;
        ck_fails(staging_make(area, token, OTHER, OTHER, &path, &err), CAIRN_PERMANENT);
        ck_assert_int_eq(access(at(""), F_OK), -1);
        staging_area_close(area);
        return;
    }
    ck_assert_int_eq(chmod(base, 0711), 0);
    make(OTHER);
    struct stat st;
    ck_assert_int_eq(stat(at(""), &st), 0);
    ck_assert_uint_eq(st.st_uid, OTHER);
    ck_assert_uint_eq(st.st_gid, OTHER);
    ck_assert_int_eq(mkdir(at("/export"), 0700), 0);
    ck_fails(staging_open_for(area, token, OTHER + 1, &o, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EACCES);
    ck_ok(staging_open_for(area, token, OTHER, &o, &err));
    staging_open_release(&o);
    ck_ok(staging_open_for(area, token, 0, &o, &err));
    staging_open_release(&o);
    /* By its path it is the same. */
    ck_fails(staging_open_for(NULL, at(""), OTHER + 1, &o, &err), CAIRN_PERMANENT);
    ck_ok(staging_open_for(NULL, at(""), OTHER, &o, &err));
    /* A meta.json that somebody else put there is not theirs to publish. */
    CLEANUP_BUF struct buf b = BUF_INIT(META_MAX + 1);
    put(at("/meta.json"), 10);
    ck_fails(staging_meta(&o, OTHER, &b, &err), CAIRN_PERMANENT);
    ck_ok(staging_meta(&o, 0, &b, &err));
    ck_assert_uint_eq(b.len, 10);
    staging_open_release(&o);
    /* Who could not reach it is told so, and of what is in the way. */
    ck_assert_int_eq(chmod(base, 0700), 0);
    CLEANUP_FREE char *path = NULL;
    ck_ok(ticket_token(token, &err));
    ck_fails(staging_make(area, token, OTHER, OTHER, &path, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, base));
    ck_assert_ptr_null(strstr(err.message, "/staging "));
    ck_assert_int_eq(access(at(""), F_OK), -1);
    staging_area_close(area);
}
END_TEST

START_TEST(test_staging__links_and_other_things_are_never_followed)
{
    setup();
    make(geteuid());
    struct staging_open o;
    CLEANUP_BUF struct buf b = BUF_INIT(META_MAX + 1);
    char outside[300];
    snprintf(outside, sizeof(outside), "%s/outside", base);
    ck_assert_int_eq(mkdir(outside, 0700), 0);
    ck_fails(staging_open_for(area, token, geteuid(), &o, &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "export/"));
    ck_assert_int_eq(symlink(outside, at("/export")), 0);
    ck_fails(staging_open_for(area, token, geteuid(), &o, &err), CAIRN_INVALID);
    ck_assert_int_eq(unlink(at("/export")), 0);
    put(at("/export"), 1);
    ck_fails(staging_open_for(area, token, geteuid(), &o, &err), CAIRN_INVALID);
    ck_assert_int_eq(unlink(at("/export")), 0);
    ck_assert_int_eq(mkdir(at("/export"), 0700), 0);
    /* The last name of a path, too. */
    char link[300];
    snprintf(link, sizeof(link), "%s/link", base);
    ck_assert_int_eq(symlink(at(""), link), 0);
    ck_fails(staging_open_for(NULL, link, geteuid(), &o, &err), CAIRN_INVALID);
    ck_fails(staging_open_for(NULL, "relative", geteuid(), &o, &err), CAIRN_INVALID);
    ck_fails(staging_open_for(NULL, "", geteuid(), &o, &err), CAIRN_INVALID);
    ck_ok(staging_open_for(area, token, geteuid(), &o, &err));
    ck_fails(staging_meta(&o, geteuid(), &b, &err), CAIRN_NOT_FOUND);
    ck_assert_int_eq(symlink("/etc/hostname", at("/meta.json")), 0);
    ck_fails(staging_meta(&o, geteuid(), &b, &err), CAIRN_INVALID);
    ck_assert_int_eq(unlink(at("/meta.json")), 0);
    ck_assert_int_eq(mkfifo(at("/meta.json"), 0600), 0); /* does not hang */
    ck_fails(staging_meta(&o, geteuid(), &b, &err), CAIRN_INVALID);
    ck_assert_int_eq(unlink(at("/meta.json")), 0);
    put(at("/meta.json"), META_MAX + 1);
    ck_fails(staging_meta(&o, geteuid(), &b, &err), CAIRN_INVALID);
    put(at("/meta.json"), META_MAX);
    ck_ok(staging_meta(&o, geteuid(), &b, &err));
    ck_assert_uint_eq(b.len, META_MAX);
    /* What was opened stays what it is, whatever is put in its place. */
    put(at("/export/mine"), 1);
    ck_assert_int_eq(rename(at("/export"), at("/moved")), 0);
    ck_assert_int_eq(symlink("/etc", at("/export")), 0);
    char file[100];
    snprintf(file, sizeof(file), "%s/mine", o.from);
    ck_assert_int_eq(access(file, F_OK), 0);
    staging_open_release(&o);
    ck_ok(staging_remove(area, token, &err));
    ck_assert_int_eq(access(at(""), F_OK), -1);
    ck_assert_int_eq(access(outside, F_OK), 0);
    ck_assert_int_eq(staging_touched(area, token), 0);
    ck_ok(staging_remove(area, token, &err));
    staging_area_close(area);
}
END_TEST

TESTING_MAIN(staging, test_staging__modes_are_fixed_whatever_the_umask,
             test_staging__only_its_user_and_root_may_publish_it,
             test_staging__links_and_other_things_are_never_followed)
