/* Stage and publish, over HTTP: publish_jobs.h behind its routes. */
#ifndef CAIRN_SERVICE_PUBLISHES_H
#define CAIRN_SERVICE_PUBLISHES_H

#include "service/core.h"
#include "service/request.h"

extern const struct part publishes_part;

int publishes_stage(struct request *r, struct response *out, struct cairn_error *err);
int publishes_publish(struct request *r, struct response *out, struct cairn_error *err);
int publishes_look(struct request *r, struct response *out, struct cairn_error *err);
int publishes_drop(struct request *r, struct response *out, struct cairn_error *err);

/* Upkeep, for a lane. */
CAIRN_MUST_CHECK int publishes_tidy(struct service *s, const struct cairn_op *op,
                                    struct cairn_error *err);

#endif
