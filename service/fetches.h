/* Fetch and leases, over HTTP: cairn_fetch_shared behind its routes.
 *
 * A lease belongs to whoever knows its name. One that was asked for with "bind_connection" is
 * released when its connection closes, and one whose answer did not reach the client at once. */
#ifndef CAIRN_SERVICE_FETCHES_H
#define CAIRN_SERVICE_FETCHES_H

#include "service/core.h"
#include "service/request.h"

extern const struct part fetches_part;

int fetches_fetch(struct request *r, struct response *out, struct cairn_error *err);
int fetches_leases(struct request *r, struct response *out, struct cairn_error *err);
int fetches_look(struct request *r, struct response *out, struct cairn_error *err);
int fetches_renew(struct request *r, struct response *out, struct cairn_error *err);
int fetches_release(struct request *r, struct response *out, struct cairn_error *err);

#endif
