/* Writers wait for whoever has the record's lock for moments, and not for others. */
#include "base/clock.h"
#include "store/lock.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

static struct kit k;
static struct cairn_error err;

/* Another process that locks records: told which by one byte, it answers when it has the lock, and
 * lets go some time later, as a sweep does. */
static struct {
    pid_t pid;
    int to, from;
} holder;

static const char *const ids[] = {CK_A, CK_B, TP_A};

static void hold_on_demand(int in, int out)
{
    struct cairn_store *s = kit_open(&k);
    uint8_t which;
    while (read(in, &which, 1) == 1) {
        int lock;
        if (s->backend->ops->lock(s->backend, NULL, ids[which], &lock, &err))
            _exit(1);
        (void)!write(out, &which, 1);
        op_pause(NULL, 150 * 1000000LL);
        s->backend->ops->unlock(s->backend, ids[which], lock);
    }
    cairn_close(s);
    _exit(0);
}

static void start(void)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    cairn_close(k.s); /* no threads at the fork */
    int to[2], from[2];
    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    holder.pid = fork();
    ck_assert_int_ge(holder.pid, 0);
    if (holder.pid == 0) {
        close(to[1]);
        close(from[0]);
        hold_on_demand(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    holder.to = to[1];
    holder.from = from[0];
    k.s = kit_open(&k);
}

static void stop(void)
{
    int status;
    close(holder.to);
    close(holder.from);
    ck_assert_int_eq(waitpid(holder.pid, &status, 0), holder.pid);
    ck_assert_int_eq(status, 0);
    kit_stop(&k);
}

/* The other process has the record from now on, for some time. */
static void taken(uint8_t which)
{
    ck_assert_int_eq(write(holder.to, &which, 1), 1);
    ck_assert_int_eq(read(holder.from, &which, 1), 1);
}

START_TEST(test_lock__a_short_holder_is_waited_for)
{
    start();
    taken(0);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    taken(2);
    ck_ok(kit_publish(&k, TP_A, "one", NULL, NULL, &err));
    taken(1);
    ck_ok(kit_fork(&k, CK_A, CK_B, NULL, &err));
    taken(0);
    ck_ok(cairn_hold(k.s, NULL, CK_A, &err));
    taken(1);
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
    kit_same(&k, CK_A, "one");
    kit_same(&k, TP_A, "one");
    ck_assert_int_eq(kit_opens(&k, CK_B), CAIRN_NOT_FOUND);
    stop();
}
END_TEST

START_TEST(test_lock__a_long_holder_makes_it_busy)
{
    kit_start(&k, NULL);
    struct backend *b = k.s->backend;
    int mine, lock;
    ck_ok(b->ops->lock(b, NULL, CK_A, &mine, &err));
    int64_t before = clock_monotonic();
    ck_fails(lock_record(k.s, NULL, CK_A, &lock, &err), CAIRN_BUSY);
    ck_assert_ptr_nonnull(strstr(err.message, CK_A));
    ck_assert_int_ge(clock_monotonic() - before, LOCK_WAIT_NS);
    b->ops->unlock(b, CK_A, mine);
    ck_ok(lock_record(k.s, NULL, CK_A, &lock, &err));
    b->ops->unlock(b, CK_A, lock);
    kit_stop(&k);
}
END_TEST

static void *fire(void *cancel)
{
    op_pause(NULL, 20 * 1000000LL);
    cairn_cancel_fire(cancel);
    return NULL;
}

START_TEST(test_lock__the_wait_ends_with_the_op)
{
    kit_start(&k, NULL);
    struct backend *b = k.s->backend;
    struct cairn_cancel *cancel = NULL;
    struct cairn_op op;
    pthread_t thread;
    int mine, lock;
    ck_ok(b->ops->lock(b, NULL, CK_A, &mine, &err));
    cairn_op_init(&op, 0.02, NULL);
    ck_fails(lock_record(k.s, &op, CK_A, &lock, &err), CAIRN_TIMEOUT);
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_op_init(&op, -1, cancel);
    ck_assert_int_eq(pthread_create(&thread, NULL, fire, cancel), 0);
    ck_fails(cairn_delete(k.s, &op, CK_A, &err), CAIRN_CANCELLED);
    pthread_join(thread, NULL);
    ck_fails(lock_record(k.s, &op, CK_A, &lock, &err), CAIRN_CANCELLED);
    cairn_cancel_free(cancel);
    b->ops->unlock(b, CK_A, mine);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(lock, test_lock__a_short_holder_is_waited_for, test_lock__a_long_holder_makes_it_busy,
             test_lock__the_wait_ends_with_the_op)
