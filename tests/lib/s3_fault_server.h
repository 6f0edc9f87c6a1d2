/* The comment is a table. */
/* clang-format off */
/* An S3 server for tests, on loopback, that does what it is told to do wrong.
 *
 * It keeps one bucket in memory, checks every signature (V4 and V2, written apart from s3/sigv4.c),
 * counts requests, connections and bytes, and follows a script of rules. Runs on a thread of its
 * own; every function here may be called from any other.
 *
 * A rule is one line: what it matches, then "do", then what happens. The first rule that matches
 * and is not used up counts.
 *
 *   match   GET PUT HEAD POST DELETE LIST ANY   (POST is DeleteObjects)
 *           key=TEXT     the path holds TEXT     skip=N   not the first N that match
 *           times=N      at most N requests      pct=N    each with N % chance (seeded)
 *   do      status=N     an error in place of the answer: [code=C] [message=M] [region=R]
 *                        [endpoint=E] [location=L] [retry-after=SECONDS] [retry-date=SECONDS]
 *                        [bare], without a document
 *           inner=C      200 with an <Error> of code C in place of the answer
 *           early        with status: answer before the request's body is read, then close
 *           stall=N      N bytes of the answer's body, then silence for ever
 *           hole         read and never answer   deaf     not even read
 *           close=N      N bytes of the body, then close
 *           reset        RST in place of an answer
 *           nothing      close in place of one   delay=MS before the answer
 *           extra=N      N bytes more than Content-Length says
 *           claim=N      Content-Length is N more (less, if negative) than the body
 *           cut=N        the body is its first N bytes, and Content-Length agrees
 *           flip=N       a bit of byte N is turned
 *           norange      Range is passed over
 *           shift        the Range one byte further on, and Content-Range says so
 *           empty        LIST: no keys, but more to come
 *           repeat       LIST: the first page again
 *           reverse      LIST: keys backwards
 *           keep=TEXT    POST: a key that holds TEXT is not deleted: InternalError, or code=C
 *           omit=TEXT    POST: a key that holds TEXT is not in the answer (nor deleted)
 *           stored       with status, reset or nothing: the request is carried out all the same
 *           hangup       close the connection after a good answer that promised to keep it
 *           raw BODY     200 with the rest of the line, whoever asks (for metadata endpoints) */
/* clang-format on */
#ifndef CAIRN_TESTS_S3_FAULT_SERVER_H
#define CAIRN_TESTS_S3_FAULT_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct s3fs;

struct s3fs_config {
    const char *bucket, *access_key, *secret,
        *region;                      /* NULL: "bucket", "key", "secret", us-east-1 */
    const char *cert_file, *key_file; /* TLS, if both are given */
    uint16_t port;                    /* 0: any */
};

struct s3fs_stats {
    uint64_t requests; /* whose head was read, any outcome */
    uint64_t get, put, head, post, delete_, list;
    uint64_t refused;           /* signature, clock, region or credentials */
    uint64_t connections, open; /* ever, now */
    uint64_t body_in, body_out;
};

/* NULL with errno if it cannot start. config may be NULL. */
struct s3fs *s3fs_start(const struct s3fs_config *config);
void s3fs_stop(struct s3fs *fs);

const char *s3fs_endpoint(const struct s3fs *fs); /* "http://127.0.0.1:PORT" */
uint16_t s3fs_port(const struct s3fs *fs);

/* Add a rule; false if it cannot be read. */
bool s3fs_rule(struct s3fs *fs, const char *rule);
void s3fs_clear(struct s3fs *fs); /* rules */
void s3fs_stats(struct s3fs *fs, struct s3fs_stats *out);
void s3fs_reset_stats(struct s3fs *fs);

/* Keys a page, at most (1,000 at first). */
void s3fs_page_size(struct s3fs *fs, unsigned n);
/* The server's clock is this far ahead; a request dated more than 900 s from it is refused. */
void s3fs_skew(struct s3fs *fs, int64_t seconds);
/* From now on only these; what was valid before is answered with ExpiredToken. token "": none. */
void s3fs_rotate(struct s3fs *fs, const char *access_key, const char *secret, const char *token);
/* Requests must be signed for this region, else AuthorizationHeaderMalformed names it. */
void s3fs_region(struct s3fs *fs, const char *region);

/* Append a line for each request from now on: its method (LIST for a listing), the key or the
 * listed prefix, and its range. false with errno: the file cannot be opened. */
bool s3fs_log(struct s3fs *fs, const char *path);

/* Look at and change what is stored, behind the protocol. */
void s3fs_store(struct s3fs *fs, const char *key, const void *data, uint64_t len);
bool s3fs_has(struct s3fs *fs, const char *key);
uint64_t s3fs_count(struct s3fs *fs);

#endif
