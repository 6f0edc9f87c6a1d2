/* The parts of the service, in the order in which they are started. */
#include "service/core_private.h"
#include "service/fetches.h"
#include "service/forks.h"
#include "service/publishes.h"
#include "service/upkeep.h"

const struct part *const parts[] = {
    &publishes_part, &forks_part, &fetches_part, &upkeep_part, NULL, /* the end */
};
