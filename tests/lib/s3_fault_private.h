/* The inside of the fault server, shared by its files. Everything is guarded by fs->lock. */
#ifndef CAIRN_TESTS_S3_FAULT_PRIVATE_H
#define CAIRN_TESTS_S3_FAULT_PRIVATE_H

#include "tests/lib/s3_fault_server.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

/* ---- Text ------------------------------------------------------------------------------------ */

struct text {
    char *p;
    size_t len, cap;
};
void text_add(struct text *t, const void *data, size_t len);
void text_addf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *t);

/* %XX and, in a query, '+' to bytes; returns the length. out may be text. */
size_t unescape(const char *text, size_t len, bool plus, char *out);
/* RFC 3986: all but the unreserved. */
void escape(struct text *out, const char *data, size_t len, bool keep_slash);
void xml_escape(struct text *out, const char *data);

/* ---- One request and its answer -------------------------------------------------------------- */

#define HEADERS_MAX 40

struct request {
    char method[12];
    char *raw_path, *raw_query; /* as sent; raw_query "" if none */
    char *path;                 /* decoded, without the bucket: the key, "" for the bucket */
    bool in_bucket;
    struct {
        char *name, *value; /* name in lower case */
    } headers[HEADERS_MAX];
    size_t n_headers;
    uint64_t content_length;
    const unsigned char *body;
    size_t body_len;
};
const char *header_of(const struct request *r, const char *name); /* NULL: none */
/* Decoded value of a query parameter; false: not there. "" without a value. */
bool query_param(const struct request *r, const char *name, char *out, size_t size);

enum ending { END_KEEP, END_CLOSE, END_STALL, END_RESET };

struct answer {
    int status;
    struct text headers; /* lines with CRLF, without Content-Length and Date */
    struct text body;
    bool no_body;  /* HEAD: Content-Length is that of the body, which is not sent */
    int64_t claim; /* added to Content-Length */
    int64_t send;  /* bytes of the body to send; -1 all */
    unsigned delay_ms;
    enum ending ending;
    bool no_head; /* nothing is sent at all */
};

/* ---- Rules ----------------------------------------------------------------------------------- */

struct rule {
    char match[12]; /* "ANY", a method, or "LIST" */
    char *key;
    unsigned skip, times, pct; /* times UINT_MAX: for ever */
    int status, retry_after, retry_date;
    char code[64], message[100], region[64], endpoint[200], location[600];
    char inner[64], keep[200], omit[200];
    bool bare, early, hole, deaf, reset, nothing, norange, empty, repeat, reverse, stored, hangup,
        shift;
    int64_t stall, close, cut, flip; /* -1: not asked for */
    int64_t extra, claim;
    unsigned delay_ms;
    char *raw;
    struct rule *next;
};
struct rule *rule_parse(const char *line);
void rule_free(struct rule *r);

/* ---- The server ------------------------------------------------------------------------------ */

struct object {
    char *key;
    unsigned char *data;
    size_t len;
    int64_t mtime; /* seconds, server's clock */
    char etag[33];
};

struct s3fs {
    pthread_mutex_t lock;
    char bucket[64], access_key[128], secret[128], token[256], region[64];
    char old_keys[8][128]; /* valid once */
    unsigned n_old;
    int64_t skew;
    unsigned page;
    uint64_t random;
    struct rule *rules;
    struct s3fs_stats stats;
    struct object *objects; /* by key's bytes */
    size_t n, cap;
    struct loop *loop;
    FILE *log; /* NULL: none */
    char endpoint[64];
    uint16_t port;
};

int64_t server_now(const struct s3fs *fs);
/* The rule for this request, counted as used; NULL: none. */
struct rule *rule_for(struct s3fs *fs, const struct request *r);
/* NULL if the request is signed well, else why not: the S3 code; *status is set. */
const char *check_signature(const struct s3fs *fs, const struct request *r, int *status);
void error_answer(struct answer *a, int status, const char *code, const char *message,
                  const char *extra_xml);
/* What a good server does. rule may be NULL. */
void serve(struct s3fs *fs, const struct request *r, const struct rule *rule, struct answer *a);
size_t object_find(const struct s3fs *fs, const char *key, bool *found);
void object_put(struct s3fs *fs, const char *key, const void *data, size_t len);
void objects_free(struct s3fs *fs);

#endif
