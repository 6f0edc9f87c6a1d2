#include "store/lock.h"

#include "base/clock.h"
#include "base/util.h"

/* Between two looks: from the first value, doubled up to the second. */
#define PAUSE_MIN_NS 1000000
#define PAUSE_MAX_NS 50000000

/* Between half and all of it, so that those who wait do not keep step. */
static int64_t jittered(int64_t ns)
{
    uint32_t random;
    if (!util_random(&random, sizeof(random)))
        random = 0;
    return ns / 2 + (int64_t)(random % (uint32_t)(ns / 2));
}

int lock_record(struct cairn_store *s, const struct cairn_op *op, const char *id, int *lock,
                struct cairn_error *err)
{
    int64_t until = clock_add(clock_monotonic(), LOCK_WAIT_NS), pause = PAUSE_MIN_NS;
    for (;;) {
        int rc = s->backend->ops->lock(s->backend, op, id, lock, err);
        if (rc != CAIRN_BUSY || clock_monotonic() >= until)
            return rc;
        op_pause(op, jittered(pause));
        pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
        rc = op_check(op, "waiting for another writer of the record", err);
        if (rc)
            return rc;
    }
}
