/* The fault server as a program, for scripts:
 *
 *   s3-fault-server [--port N] [--bucket B] [--keys ACCESS SECRET] [--region R] [--page N]
 *                   [--log FILE] [RULE...]
 *
 * prints its endpoint, then reads lines: "rule …" adds a rule, "clear" drops them, "stats" prints
 * the counts, "reset" sets them to zero, "skew N", "region R" and "rotate ACCESS SECRET [TOKEN]" as
 * in s3_fault_server.h. Ends with its standard input. */
#include "tests/lib/s3_fault_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_stats(struct s3fs *fs)
{
    struct s3fs_stats s;
    s3fs_stats(fs, &s);
    printf("requests=%" PRIu64 " get=%" PRIu64 " put=%" PRIu64 " head=%" PRIu64 " post=%" PRIu64
           " delete=%" PRIu64 " list=%" PRIu64 " refused=%" PRIu64 " connections=%" PRIu64
           " open=%" PRIu64 " in=%" PRIu64 " out=%" PRIu64 "\n",
           s.requests, s.get, s.put, s.head, s.post, s.delete_, s.list, s.refused, s.connections,
           s.open, s.body_in, s.body_out);
}

static bool command(struct s3fs *fs, char *line)
{
    char a[128] = "", b[128] = "", c[256] = "";
    line[strcspn(line, "\r\n")] = 0;
    if (strncmp(line, "rule ", 5) == 0)
        return s3fs_rule(fs, line + 5);
    if (strcmp(line, "clear") == 0)
        s3fs_clear(fs);
    else if (strcmp(line, "stats") == 0)
        print_stats(fs);
    else if (strcmp(line, "reset") == 0)
        s3fs_reset_stats(fs);
    else if (sscanf(line, "skew %127s", a) == 1)
        s3fs_skew(fs, strtoll(a, NULL, 10));
    else if (sscanf(line, "region %127s", a) == 1)
        s3fs_region(fs, a);
    else if (sscanf(line, "rotate %127s %127s %255s", a, b, c) >= 2)
        s3fs_rotate(fs, a, b, c);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct s3fs_config config = {.bucket = NULL};
    unsigned page = 1000;
    const char *log = NULL;
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--port") == 0)
            config.port = (uint16_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--bucket") == 0)
            config.bucket = argv[i + 1];
        else if (strcmp(argv[i], "--region") == 0)
            config.region = argv[i + 1];
        else if (strcmp(argv[i], "--log") == 0)
            log = argv[i + 1];
        else if (strcmp(argv[i], "--page") == 0)
            page = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--keys") == 0 && i + 2 < argc) {
            config.access_key = argv[i + 1];
            config.secret = argv[++i + 1];
        } else {
            fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]);
            return 2;
        }
    }
    struct s3fs *fs = s3fs_start(&config);
    if (!fs || (log && !s3fs_log(fs, log))) {
        perror("s3-fault-server");
        return 1;
    }
    s3fs_page_size(fs, page);
    for (; i < argc; i++)
        if (!s3fs_rule(fs, argv[i])) {
            fprintf(stderr, "%s: cannot read the rule: %s\n", argv[0], argv[i]);
            return 2;
        }
    printf("%s\n", s3fs_endpoint(fs));
    fflush(stdout);
    char line[4096];
    while (fgets(line, sizeof(line), stdin)) {
        if (!command(fs, line))
            printf("cannot read: %s\n", line);
        fflush(stdout);
    }
    s3fs_stop(fs);
    return 0;
}
