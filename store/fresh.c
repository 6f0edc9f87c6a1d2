#include "store/fresh.h"

#include "base/clock.h"

#include <pthread.h>
#include <string.h>

#define FRESH_MAX 256

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct {
        uint8_t pack[PACK_ID_LEN];
        int64_t when_ns; /* CLOCK_BOOTTIME; 0: none */
    } at[FRESH_MAX];
    size_t next;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

void fresh_note(const uint8_t pack[PACK_ID_LEN])
{
    pthread_mutex_lock(&made.lock);
    memcpy(made.at[made.next].pack, pack, PACK_ID_LEN);
    made.at[made.next].when_ns = clock_boottime();
    made.next = (made.next + 1) % FRESH_MAX;
    pthread_mutex_unlock(&made.lock);
}

bool fresh_has(const uint8_t pack[PACK_ID_LEN], int64_t since_ns)
{
    bool found = false;
    int64_t now = clock_boottime();
    pthread_mutex_lock(&made.lock);
    for (size_t i = 0; i < FRESH_MAX && !found; i++)
        found = made.at[i].when_ns >= since_ns && made.at[i].when_ns &&
                now - made.at[i].when_ns <= FRESH_MAX_NS &&
                memcmp(made.at[i].pack, pack, PACK_ID_LEN) == 0;
    pthread_mutex_unlock(&made.lock);
    return found;
}
