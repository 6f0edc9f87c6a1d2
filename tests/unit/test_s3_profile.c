#include "base/util.h"
#include "s3/profile.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *file(const char *text)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/f", testing_tmpdir());
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    fclose(f);
    return path;
}

START_TEST(test_s3_profile__reads_the_section_it_is_asked_for)
{
    struct cairn_error err;
    struct s3_profile p = {0};
    const char *path =
        file("# comment\n[default]\naws_access_key_id = D\n"
             "aws_secret_access_key=S=with/equals+\r\n\n"
             "[ profile   other ]\n; comment\naws_access_key_id=O\nregion = eu-west-1\n"
             "s3 =\n  region = nested\naws_session_token = T\n[last]\nregion=x");
    ck_ok(s3_profile_load(path, "default", &p, &err));
    ck_assert(p.found);
    ck_assert_str_eq(p.access_key, "D");
    ck_assert_str_eq(p.secret, "S=with/equals+");
    ck_assert(!p.token && !p.region);
    s3_profile_release(&p);
    ck_ok(s3_profile_load(path, "profile other", &p, &err));
    ck_assert_str_eq(p.access_key, "O");
    ck_assert_str_eq(p.region, "eu-west-1");
    ck_assert_str_eq(p.token, "T");
    /* What is there is kept: the credentials file comes before the config file. */
    ck_ok(s3_profile_load(path, "last", &p, &err));
    ck_assert_str_eq(p.region, "eu-west-1");
    s3_profile_release(&p);
    ck_ok(s3_profile_load(path, "absent", &p, &err));
    ck_assert(!p.found && !p.access_key);
}
END_TEST

START_TEST(test_s3_profile__an_absent_file_is_no_error_an_unreadable_one_is)
{
    struct cairn_error err;
    struct s3_profile p = {0};
    ck_ok(s3_profile_load("/nonexistent/file", "default", &p, &err));
    ck_assert(!p.found);
    ck_fails(s3_profile_load("/", "default", &p, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EISDIR);
}
END_TEST

TESTING_MAIN(s3_profile, test_s3_profile__reads_the_section_it_is_asked_for,
             test_s3_profile__an_absent_file_is_no_error_an_unreadable_one_is)
