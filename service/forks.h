/* Fork, hold and release, over HTTP. A fork is a branch under a new id: one call, no chunk read. */
#ifndef CAIRN_SERVICE_FORKS_H
#define CAIRN_SERVICE_FORKS_H

#include "service/core.h"
#include "service/request.h"

/* Counts them. */
extern const struct part forks_part;

int forks_fork(struct request *r, struct response *out, struct cairn_error *err);
int forks_hold(struct request *r, struct response *out, struct cairn_error *err);
int forks_release(struct request *r, struct response *out, struct cairn_error *err);

#endif
