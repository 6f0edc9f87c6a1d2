#include "base/util.h"
#include "service/ticket.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static int dir;

static void setup(void)
{
    dir = open(testing_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir, 0);
}

static struct ticket sample(enum ticket_state state)
{
    struct ticket t = {.state = state, .uid = 4294967295U, .own = true, .keep = state % 2};
    ck_ok(ticket_token(t.token, &err));
    snprintf(t.id, sizeof(t.id), "tp_%032x", 0xabcU);
    if (state != TICKET_STAGED) {
        snprintf(t.gen, sizeof(t.gen), "0123456789abcdef");
        memset(t.request, 'a', 64);
    }
    t.created_ns = 1;
    t.updated_ns = 1764455555123456789;
    if (state == TICKET_DONE) {
        snprintf(t.result.gen, sizeof(t.result.gen), "%s", t.gen);
        snprintf(t.result.digest, sizeof(t.result.digest), "sha256:%064x", 1);
        t.result.logical_bytes = 1ULL << 62;
        t.result.chunks = 7;
        t.result.unchanged = true;
        t.result.seconds = 0.25;
    }
    if (state == TICKET_FAILED)
        error_set(&t.error, CAIRN_NO_SPACE, ENOSPC, "no room: \"%s\" \x01", "quoted");
    return t;
}

START_TEST(test_ticket__every_state_comes_back_as_it_was)
{
    setup();
    for (int s = TICKET_STAGED; s < TICKET_STATES_; s++) {
        struct ticket t = sample((enum ticket_state)s), u;
        ck_ok(ticket_write(dir, &t, &err));
        ck_ok(ticket_read(dir, t.token, &u, &err));
        ck_assert_int_eq(u.state, s);
        ck_assert_str_eq(u.id, t.id);
        ck_assert_str_eq(u.gen, t.gen);
        ck_assert_str_eq(u.request, t.request);
        ck_assert_uint_eq(u.uid, t.uid);
        ck_assert_int_eq(u.own, t.own);
        ck_assert_int_eq(u.keep, t.keep);
        ck_assert_int_eq(u.updated_ns, t.updated_ns);
        ck_assert_str_eq(u.result.gen, t.result.gen);
        ck_assert_str_eq(u.result.digest, t.result.digest);
        ck_assert_uint_eq(u.result.logical_bytes, t.result.logical_bytes);
        ck_assert_uint_eq(u.result.chunks, t.result.chunks);
        ck_assert_int_eq(u.result.unchanged, t.result.unchanged);
        ck_assert_int_eq(u.error.error_class, t.error.error_class);
        ck_assert_int_eq(u.error.sys_errno, t.error.sys_errno);
        ck_assert_str_eq(u.error.message, t.error.message);
    }
}
END_TEST

START_TEST(test_ticket__it_is_private_whatever_the_umask)
{
    setup();
    umask(0);
    struct ticket t = sample(TICKET_STAGED);
    ck_ok(ticket_write(dir, &t, &err));
    char name[64];
    struct stat st;
    snprintf(name, sizeof(name), "%s.json", t.token);
    ck_assert_int_eq(fstatat(dir, name, &st, 0), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
}
END_TEST

static void put(const char *token, const char *text)
{
    char name[64];
    snprintf(name, sizeof(name), "%s.json", token);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(util_pwrite_full(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(test_ticket__damage_is_never_taken_for_a_state)
{
    setup();
    struct ticket t = sample(TICKET_DONE), u;
    char text[4096] = "", name[64];
    snprintf(name, sizeof(name), "%s.json", t.token);
    ck_ok(ticket_write(dir, &t, &err));
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = util_pread_full(fd, text, sizeof(text) - 1, 0);
    close(fd);
    ck_assert_int_gt(n, 100);
    /* Cut anywhere. */
    for (ssize_t i = n - 1; i >= 0; i--) {
        text[i] = 0;
        put(t.token, text);
        ck_fails(ticket_read(dir, t.token, &u, &err), CAIRN_CORRUPT);
    }
    static const char *const bad[] = {
        "[]", "{}", "{\"version\":1}",
        /* Another token, another version, a state that is none. */
        "{\"version\":1,\"token\":\"00000000000000000000000000000000\",\"state\":\"staged\"}",
        "{\"version\":2,\"state\":\"staged\"}", "{\"version\":1,\"state\":\"finished\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        put(t.token, bad[i]);
        ck_fails(ticket_read(dir, t.token, &u, &err), CAIRN_CORRUPT);
    }
    /* A ticket is read only under its own name. */
    struct ticket other = sample(TICKET_DONE);
    ck_ok(ticket_write(dir, &t, &err));
    char to[64];
    snprintf(to, sizeof(to), "%s.json", other.token);
    ck_assert_int_eq(renameat(dir, name, dir, to), 0);
    ck_fails(ticket_read(dir, other.token, &u, &err), CAIRN_CORRUPT);
    ck_fails(ticket_read(dir, t.token, &u, &err), CAIRN_NOT_FOUND);
    ck_ok(ticket_remove(dir, t.token, &err));
}
END_TEST

static int count(void *ctx, const char *token, struct cairn_error *e)
{
    (void)e;
    ck_assert(ticket_token_is_valid(token));
    return ++*(int *)ctx == 3 ? error_set(e, CAIRN_BUSY, 0, "enough") : CAIRN_OK;
}

START_TEST(test_ticket__each_sees_tickets_only_and_clean_removes_what_was_half_written)
{
    setup();
    int n = 0;
    struct ticket t = sample(TICKET_STAGED), u = sample(TICKET_QUEUED);
    ck_ok(ticket_write(dir, &t, &err));
    ck_ok(ticket_write(dir, &u, &err));
    put("readme", "x");
    char temp[64];
    snprintf(temp, sizeof(temp), "%s.tmp", t.token);
    close(openat(dir, temp, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ck_ok(ticket_each(dir, count, &n, &err));
    ck_assert_int_eq(n, 2);
    ck_assert_int_eq(faccessat(dir, temp, F_OK, 0), 0);
    ck_ok(ticket_clean(dir, &err));
    ck_assert_int_ne(faccessat(dir, temp, F_OK, 0), 0);
    ck_ok(ticket_read(dir, t.token, &u, &err));
    ck_fails(ticket_each(dir, count, &n, &err), CAIRN_BUSY);
}
END_TEST

START_TEST(test_ticket__tokens_are_of_one_form)
{
    char a[TOKEN_TEXT], b[TOKEN_TEXT];
    ck_ok(ticket_token(a, &err));
    ck_ok(ticket_token(b, &err));
    ck_assert_str_ne(a, b);
    ck_assert(ticket_token_is_valid(a));
    static const char *const bad[] = {"",
                                      "..",
                                      "../../etc/passwd",
                                      "0123456789abcdef0123456789abcde",
                                      "0123456789abcdef0123456789abcdef0",
                                      "0123456789ABCDEF0123456789abcdef",
                                      "0123456789abcdef/123456789abcdef"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert(!ticket_token_is_valid(bad[i]));
}
END_TEST

TESTING_MAIN(ticket, test_ticket__every_state_comes_back_as_it_was,
             test_ticket__it_is_private_whatever_the_umask,
             test_ticket__damage_is_never_taken_for_a_state,
             test_ticket__each_sees_tickets_only_and_clean_removes_what_was_half_written,
             test_ticket__tokens_are_of_one_form)
