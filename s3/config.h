/* What is to be known to reach a store in a bucket, and the pieces of it that need parsing. Pure
 * functions but for s3_config_check. */
#ifndef CAIRN_S3_CONFIG_H
#define CAIRN_S3_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum s3_signature { S3_SIGNATURE_V4 = 0, S3_SIGNATURE_V2 = 1 };

/* All text is borrowed for the call that takes the struct. */
struct s3_config {
    const char *bucket;
    const char *prefix;   /* of every key, any bytes; NULL or "": none. A '/' is put behind it */
    const char *endpoint; /* "https://host[:port]"; NULL: AWS in the region */
    const char *region;   /* NULL: the environment's, the profile's, us-east-1; found out */
    bool force_path_style;
    enum s3_signature signature;
    const char *profile;   /* NULL: AWS_PROFILE, else "default" */
    const char *ca_file;   /* certificates to trust instead of the system's; NULL: AWS_CA_BUNDLE */
    unsigned max_requests; /* in flight in this process; 0: 16 */
    const char *spool_dir; /* where packs wait to be sent; on a disk with room for several */
    /* Nanoseconds; 0: the defaults of http.h and retry.h. */
    int64_t connect_ns, stall_ns, answer_ns, retry_window_ns;
};

#define S3_MAX_REQUESTS   16
#define S3_DEFAULT_REGION "us-east-1"
#define S3_KEY_BYTES_MAX  1024 /* of a key in the bucket, prefix included */
#define S3_PREFIX_MAX     768  /* so that every key of Cairn fits behind it */
#define S3_AUTHORITY_MAX  320
#define S3_REGION_MAX     64

/* "s3://bucket/prefix": nothing is decoded, the prefix is taken as it stands. Both are owned by the
 * caller. Errors: invalid, internal. */
CAIRN_MUST_CHECK int s3_url_parse(const char *url, char **bucket, char **prefix,
                                  struct cairn_error *err);

/* Where requests go. */
struct s3_place {
    bool tls;
    bool virtual_host;                /* the bucket is a part of the host's name */
    char authority[S3_AUTHORITY_MAX]; /* host[:port] without bucket and without a default port */
};

/* "http[s]://host[:port][/]"; without a scheme https. Invalid: anything else (a user, a path). */
CAIRN_MUST_CHECK int s3_place_parse(const char *endpoint, struct s3_place *out,
                                    struct cairn_error *err);
/* The endpoint of AWS for a region. */
void s3_place_aws(const char *region, struct s3_place *out);
/* Whether a bucket may be put in front of the host (a name, not an address; with TLS no dot). */
bool s3_place_fits_virtual(const struct s3_place *place, const char *bucket);

/* Where an answer of `home` sends us: location is the text of a Location header or of <Endpoint>.
 * False where it leads out of home's domain (another host that is neither below home's own nor, at
 * AWS, below amazonaws.com), from TLS to none, or is unreadable: nobody gets a signature there. */
bool s3_place_redirect(const struct s3_place *home, const char *bucket, const char *location,
                       struct s3_place *out);

bool s3_region_is_valid(const char *region);
/* A component "." or "..", which proxies and other clients take out of a path. */
bool s3_key_has_dots(const char *key);

/* A key of an object, as the store has it: not empty, no such component. Invalid otherwise. */
CAIRN_MUST_CHECK int s3_key_check(const char *key, struct cairn_error *err);

/* Everything that can be seen without a request. Errors: invalid, in words. */
CAIRN_MUST_CHECK int s3_config_check(const struct s3_config *config, struct cairn_error *err);

#endif
