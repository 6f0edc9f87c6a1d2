/* Windows of the directory backend that only a pause at a named step can hit (base/step.h). */
#include "base/util.h"
#include "store/backend.h"
#include "tests/lib/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define ID "ck_0123456789abcdef"

static const char *root, *control;
static struct cairn_error err;

static struct backend *open_store(void)
{
    struct backend *b = NULL;
    ck_ok(backend_dir_open(root, &b, &err));
    return b;
}

static void path_in(const char *folder, const char *name, char out[512])
{
    ck_assert_int_lt(snprintf(out, 512, "%s/%s", folder, name), 512);
}

static void wait_for(const char *path)
{
    for (int i = 0; i < 3000 && access(path, F_OK) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_int_eq(access(path, F_OK), 0);
}

/* A second writer opens the record's folder while we hold it, and is held up before its flock. We
 * unlock, which removes the folder. The lock it gets on that folder must not count. */
START_TEST(test_backend_steps__a_lock_on_a_removed_folder_is_none)
{
    root = testing_tmpdir();
    control = testing_tmpdir();
    char go[512], reached[512], locked[512], done[512], pause[600];
    path_in(control, "go", go);
    path_in(control, "go.reached", reached);
    path_in(control, "locked", locked);
    path_in(control, "done", done);
    snprintf(pause, sizeof(pause), "backend.lock-folder:1:%s", go);
    struct backend *b = open_store();
    int lock;
    ck_ok(b->ops->lock(b, NULL, ID, &lock, &err));

    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(lock); /* the parent's; a copy would keep it locked */
        setenv("CAIRN_STEP_PAUSE", pause, 1);
        struct backend *mine = open_store();
        int second;
        if (mine->ops->lock(mine, NULL, ID, &second, &err))
            _exit(2);
        CLEANUP_FD int fd = open(locked, O_CREAT | O_WRONLY, 0600);
        for (int i = 0; i < 3000 && access(done, F_OK) != 0; i++)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        mine->ops->unlock(mine, ID, second);
        _exit(fd < 0);
    }
    wait_for(reached);
    b->ops->unlock(b, ID, lock);
    char folder[512];
    path_in(root, "records/" ID, folder);
    ck_assert_int_ne(access(folder, F_OK), 0);
    CLEANUP_FD int fd = open(go, O_CREAT | O_WRONLY, 0600);
    wait_for(locked);
    /* It holds the one that has the name, so that nobody else gets in. */
    ck_assert_int_eq(access(folder, F_OK), 0);
    ck_fails(b->ops->lock(b, NULL, ID, &lock, &err), CAIRN_BUSY);
    CLEANUP_FD int end = open(done, O_CREAT | O_WRONLY, 0600);
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_ok(b->ops->lock(b, NULL, ID, &lock, &err));
    b->ops->unlock(b, ID, lock);
    backend_free(b);
}
END_TEST

/* Killed at each step of a put over an object: the old one or the new one, whole; what is left in
 * tmp/ is unlocked; and the put done again succeeds. */
START_TEST(test_backend_steps__a_killed_put_leaves_the_old_or_the_new)
{
    static const struct {
        const char *step;
        bool replaced;
    } kills[] = {
        {"backend.temp-created:1", false}, {"backend.temp-written:1", false},
        {"backend.temp-synced:1", false},  {"backend.renamed:1", true},
        {"backend.folder-synced:1", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kills); i++) {
        root = testing_tmpdir();
        struct backend *b = open_store();
        ck_ok(b->ops->put(b, NULL, "a/b", "old", 3, &err));
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            setenv("CAIRN_STEP_KILL", kills[i].step, 1);
            _exit(b->ops->put(b, NULL, "a/b", "newer", 5, &err) + 1);
        }
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%s", kills[i].step);
        CLEANUP_BUF struct buf out = BUF_INIT(100);
        ck_ok(b->ops->get(b, NULL, "a/b", 100, &out, NULL, &err));
        ck_assert_uint_eq(out.len, kills[i].replaced ? 5 : 3);
        ck_assert_mem_eq(out.data, kills[i].replaced ? "newer" : "old", out.len);
        ck_ok(b->ops->put(b, NULL, "a/b", "newer", 5, &err));
        backend_free(b);
    }
}
END_TEST

TESTING_MAIN(backend_steps, test_backend_steps__a_lock_on_a_removed_folder_is_none,
             test_backend_steps__a_killed_put_leaves_the_old_or_the_new)
