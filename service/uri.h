/* Percent-encoding and the parts of a request's target (RFC 3986). Pure functions. */
#ifndef CAIRN_SERVICE_URI_H
#define CAIRN_SERVICE_URI_H

#include <stdbool.h>
#include <stddef.h>

/* Decode len bytes of text into out (len + 1 bytes of room; terminated). plus: '+' is a space.
 * False: a '%' without two hex digits, or a NUL. */
bool uri_decode(const char *text, size_t len, bool plus, char *out);

/* Cut the target (terminated) in two: *query is what follows the first '?', or NULL. */
void uri_split(char *target, char **query);

/* The next "name=value" of a query; *at moves on, and both are decoded in place and terminated.
 * 1: there is one; 0: the end; -1: it cannot be decoded. A name without '=' has the value "". */
int uri_next_parameter(char **at, char **name, char **value);

#endif
