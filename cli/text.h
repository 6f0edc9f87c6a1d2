/* Text from and for people: sizes, counts and seconds read from the command line, sizes and times
 * shown, odd bytes made visible. Pure functions. */
#ifndef CAIRN_CLI_TEXT_H
#define CAIRN_CLI_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits and nothing else; false for anything else, and for what does not fit. */
bool text_parse_count(const char *text, uint64_t *out);
/* A count of bytes: decimal digits, then K, M, G or T (powers of 1024, either case), which may be
 * followed by "iB" or "B". */
bool text_parse_size(const char *text, uint64_t *out);
/* Decimal digits with at most one point among or beside them. What is larger than a double can say
 * becomes infinity, which saturates as a deadline. No sign, exponent, "inf" or "nan". */
bool text_parse_seconds(const char *text, double *out);

/* The end of a word that is counted: "" for one, else "s". */
const char *text_s(uint64_t n);

#define TEXT_SIZE_MAX 24

/* "0 B", "512 B", "1.0 KiB", "15.9 EiB" */
void text_size(uint64_t bytes, char out[TEXT_SIZE_MAX]);
/* "2026-11-29T19:09:19Z" */
#define TEXT_TIME_MAX 24
void text_time(int64_t realtime_ns, char out[TEXT_TIME_MAX]);

/* What of a text is shown as it is. Nowhere are control characters (C0, DEL, C1), the characters
 * that turn the direction of writing, and bytes that are no UTF-8: they become \xNN. */
enum text_mode {
    TEXT_NAME,    /* a backslash becomes two, so that no two names look alike */
    TEXT_MESSAGE, /* a backslash stays: names in it were escaped already */
    TEXT_LINES,   /* line feeds, tabs and backslashes stay */
};

CAIRN_MUST_CHECK int text_escape(struct buf *out, const void *text, size_t len, enum text_mode mode,
                                 struct cairn_error *err);
/* The same into a fixed place, cut at a whole character. */
void text_escape_cut(char *out, size_t size, const char *text, enum text_mode mode);

#endif
