/* How an error class is told in HTTP, and which HTTP status is called what. */
#ifndef CAIRN_SERVICE_STATUS_H
#define CAIRN_SERVICE_STATUS_H

/* not_found 404, busy 409, invalid 400, cancelled 499, timeout 504, transient 503, no_space 507,
 * corrupt and permanent 502, internal 500. */
int status_of_class(int error_class);
/* "Not Found"; "Status" for one that is not used here. */
const char *status_reason(int status);
/* The class that fits a status which no store gave: 404, 405, 413 and the like. */
int status_class(int status);

#endif
