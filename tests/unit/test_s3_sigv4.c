#include "base/util.h"
#include "s3/sigv4.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

#define ITEMS 16

/* One vector of fixtures/aws-sigv4.txt. */
struct vector {
    char name[80], method[16], path[256], payload[80], date[32], region[32], service[32];
    char key[64], secret[64], canonical[80], signature[80];
    char names[ITEMS][128], values[ITEMS][512];
    size_t n_headers;
    char params[ITEMS][2][128];
    size_t n_params;
};

static void decode(const char *text, char *out, size_t size)
{
    size_t o = 0;
    for (; *text && o + 1 < size; text++) {
        unsigned c = (unsigned char)*text;
        if (c == '%') {
            ck_assert_int_eq(sscanf(text + 1, "%2x", &c), 1);
            text += 2;
        }
        out[o++] = (char)c;
    }
    out[o] = 0;
}

static bool word(const char *line, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || line[n] != ' ')
        return false;
    ck_assert_uint_lt(strlen(line + n + 1), size);
    memcpy(out, line + n + 1, strlen(line + n + 1) + 1);
    return true;
}

static void take_line(struct vector *v, const char *line)
{
    char text[1024];
    if (word(line, "vector", v->name, sizeof(v->name)) ||
        word(line, "method", v->method, sizeof(v->method)) ||
        word(line, "payload", v->payload, sizeof(v->payload)) ||
        word(line, "date", v->date, sizeof(v->date)) ||
        word(line, "region", v->region, sizeof(v->region)) ||
        word(line, "service", v->service, sizeof(v->service)) ||
        word(line, "key", v->key, sizeof(v->key)) ||
        word(line, "secret", v->secret, sizeof(v->secret)) ||
        word(line, "canonical", v->canonical, sizeof(v->canonical)) ||
        word(line, "signature", v->signature, sizeof(v->signature)))
        return;
    if (word(line, "path", text, sizeof(text))) {
        decode(text, v->path, sizeof(v->path));
    } else if (word(line, "header", text, sizeof(text))) {
        char *colon = strchr(text, ':');
        ck_assert(colon && v->n_headers < ITEMS);
        *colon = 0;
        snprintf(v->names[v->n_headers], sizeof(v->names[0]), "%.127s", text);
        snprintf(v->values[v->n_headers++], sizeof(v->values[0]), "%.511s", colon + 1);
    } else if (word(line, "param", text, sizeof(text))) {
        char *eq = strchr(text, '=');
        ck_assert(eq && v->n_params < ITEMS);
        *eq = 0;
        decode(text, v->params[v->n_params][0], sizeof(v->params[0][0]));
        decode(eq + 1, v->params[v->n_params++][1], sizeof(v->params[0][1]));
    } else {
        ck_abort_msg("unknown line: %s", line);
    }
}

static void check_vector(const struct vector *v)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf path = BUF_INIT(4096), query = BUF_INIT(4096), auth = BUF_INIT(4096);
    CLEANUP_BUF struct buf canonical = BUF_INIT(8192), names = BUF_INIT(4096);
    struct sigv4_header headers[ITEMS];
    struct sigv4_param params[ITEMS];
    for (size_t i = 0; i < v->n_headers; i++)
        headers[i] = (struct sigv4_header){v->names[i], v->values[i]};
    for (size_t i = 0; i < v->n_params; i++)
        params[i] = (struct sigv4_param){v->params[i][0], v->params[i][1]};
    ck_ok(sigv4_encode(v->path, strlen(v->path), true, &path, &err));
    ck_ok(buf_add(&path, "", 1, &err));
    ck_ok(sigv4_query(params, v->n_params, &query, &err));
    ck_ok(buf_add(&query, "", 1, &err));
    struct sigv4_request r = {.method = v->method,
                              .path = (char *)path.data,
                              .query = (char *)query.data,
                              .headers = headers,
                              .n_headers = v->n_headers,
                              .payload_hash = v->payload,
                              .region = v->region,
                              .service = v->service,
                              .amz_date = v->date,
                              .access_key = v->key,
                              .secret = v->secret};
    uint8_t hash[SHA256_LEN];
    char hex[SIGV4_HASH_TEXT];
    ck_ok(sigv4_canonical(&r, &canonical, &names, &err));
    ck_ok(hash_sha256(canonical.data, canonical.len, hash, &err));
    util_hex(hash, sizeof(hash), hex);
    ck_assert_msg(strcmp(hex, v->canonical) == 0, "%s: canonical request is\n%.*s", v->name,
                  (int)canonical.len, (char *)canonical.data);
    ck_ok(sigv4_authorization(&r, &auth, &err));
    ck_ok(buf_add(&auth, "", 1, &err));
    const char *got = strstr((char *)auth.data, "Signature=");
    ck_assert_ptr_nonnull(got);
    ck_assert_msg(strcmp(got + 10, v->signature) == 0, "%s: %s", v->name, got);
}

START_TEST(test_s3_sigv4__signs_as_the_published_vectors_do)
{
    FILE *f = fopen(FIXTURES "/aws-sigv4.txt", "r");
    ck_assert_ptr_nonnull(f);
    char line[2048];
    struct vector v = {.name = ""};
    unsigned n = 0;
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "vector ", 7) == 0) {
            if (*v.name)
                check_vector(&v);
            v = (struct vector){.name = ""};
            n++;
        }
        if (*line && *line != '#')
            take_line(&v, line);
    }
    check_vector(&v);
    ck_assert_uint_eq(n, 30);
    fclose(f);
}
END_TEST

START_TEST(test_s3_sigv4__encodes_every_byte_once)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(4096);
    const char *in = "dt=2024/a b+c@2x~(1)*\xc3\xa9%2F&\x01\xff";
    ck_ok(sigv4_encode(in, strlen(in), true, &out, &err));
    ck_ok(buf_add(&out, "", 1, &err));
    ck_assert_str_eq((char *)out.data, "dt%3D2024/a%20b%2Bc%402x~%281%29%2A%C3%A9%252F%26%01%FF");
    buf_clear(&out);
    ck_ok(sigv4_encode("a/b", 3, false, &out, &err));
    ck_assert(out.len == 5 && memcmp(out.data, "a%2Fb", 5) == 0);
}
END_TEST

START_TEST(test_s3_sigv4__sorts_by_what_is_sent)
{
    /* '=' sorts behind '-' but "a" before "a-b" whatever follows; '%' before letters. */
    const struct sigv4_param params[] = {
        {"b", "2"}, {"a-b", ""}, {"a", "z"}, {"a", " "}, {"\x7f", "1"}};
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(4096);
    ck_ok(sigv4_query(params, ARRAY_SIZE(params), &out, &err));
    ck_ok(buf_add(&out, "", 1, &err));
    ck_assert_str_eq((char *)out.data, "%7F=1&a=%20&a=z&a-b=&b=2");
}
END_TEST

START_TEST(test_s3_sigv4__refuses_more_than_it_has_room_for)
{
    struct sigv4_param params[17];
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(4096);
    for (int i = 0; i < 17; i++)
        params[i] = (struct sigv4_param){"a", "b"};
    ck_fails(sigv4_query(params, 17, &out, &err), CAIRN_INTERNAL);
    ck_ok(sigv4_query(params, 16, &out, &err));
}
END_TEST

TESTING_MAIN(s3_sigv4, test_s3_sigv4__signs_as_the_published_vectors_do,
             test_s3_sigv4__encodes_every_byte_once, test_s3_sigv4__sorts_by_what_is_sent,
             test_s3_sigv4__refuses_more_than_it_has_room_for)
