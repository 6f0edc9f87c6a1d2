#include "fuse/turns.h"

#include "fuse/caller.h"
#include "tests/lib/testing.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define ID    "ck_00000000000000aa"
#define OTHER "ck_00000000000000bb"

static struct turns *turns;
static struct cairn_error err;
static atomic_int inside, most, done;

static void *take_and_give(void *arg)
{
    const char *id = arg;
    struct cairn_error own;
    for (int i = 0; i < 200; i++) {
        struct turn turn;
        if (turns_take(turns, NULL, id, &turn, &own))
            return NULL;
        int n = atomic_fetch_add(&inside, 1) + 1;
        if (n > atomic_load(&most))
            atomic_store(&most, n);
        sched_yield();
        atomic_fetch_sub(&inside, 1);
        turns_give(turns, &turn);
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

START_TEST(test_turns__one_at_a_time_has_the_turn_of_an_id)
{
    pthread_t threads[4];
    ck_ok(turns_new(&turns, &err));
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_give, (void *)ID), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&most), 1);
    ck_assert_int_eq(atomic_load(&done), 4 * 200);
    turns_free(turns);
}
END_TEST

START_TEST(test_turns__who_waits_does_not_wait_longer_than_it_may)
{
    struct turn first, second, third;
    struct cairn_op op;
    ck_ok(turns_new(&turns, &err));
    ck_ok(turns_take(turns, NULL, ID, &first, &err));
    ck_ok(turns_take(turns, NULL, OTHER, &second, &err));
    cairn_op_init(&op, 0.05, NULL);
    ck_assert_int_eq(turns_take(turns, &op, ID, &third, &err), CAIRN_TIMEOUT);
    struct cairn_cancel *cancel;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    cairn_op_init(&op, -1, cancel);
    ck_assert_int_eq(turns_take(turns, &op, ID, &third, &err), CAIRN_CANCELLED);
    turns_give(turns, &first);
    ck_ok(turns_take(turns, NULL, ID, &third, &err));
    turns_give(turns, &second);
    turns_give(turns, &third);
    turns_free(turns);
    cairn_cancel_free(cancel);
}
END_TEST

START_TEST(test_caller__what_has_no_number_is_not_seen)
{
    ck_assert(caller_can_be_seen());
    ck_assert_int_eq(caller_look(gettid()), CALLER_ALIVE);
    ck_assert_int_eq(caller_look(0), CALLER_UNSEEN);
    ck_assert_int_eq(caller_look(INT32_MAX), CALLER_UNSEEN);
}
END_TEST

TESTING_MAIN(turns, test_turns__one_at_a_time_has_the_turn_of_an_id,
             test_turns__who_waits_does_not_wait_longer_than_it_may,
             test_caller__what_has_no_number_is_not_seen)
