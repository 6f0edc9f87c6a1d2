/* One mount in a process of its own, for tests that kill it:
 *
 *   mount-serve STORE STATE DIR [never|second|always [no-trace]]
 *
 * Says "ready" when the mount answers; SIGTERM ends it. */
#include "base/log.h"
#include "fuse/mount.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    fprintf(stderr, "mount-serve: <%d> %s\n", (int)level, line);
}

static int fail(const char *what, const struct cairn_error *err)
{
    fprintf(stderr, "mount-serve: %s: %s\n", what, err->message);
    return 1;
}

static enum mount_materialise materialise_of(const char *text)
{
    if (text && strcmp(text, "always") == 0)
        return MOUNT_MATERIALISE_ALWAYS;
    return text && strcmp(text, "second") == 0 ? MOUNT_MATERIALISE_SECOND : MOUNT_MATERIALISE_NEVER;
}

static int64_t test_ns(const char *variable)
{
    const char *ms = getenv(variable);
    return ms ? atoll(ms) * 1000000 : 0;
}

static void ended(void *ctx)
{
    (void)ctx;
    kill(getpid(), SIGTERM);
}

int main(int argc, char **argv)
{
    struct cairn_error err;
    struct cairn_store *store;
    struct mount *m;
    struct cairn_op op;
    sigset_t end;
    int signo;
    if (argc < 4)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    umask(077); /* is not to show in anything that the mount's users make */
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    sigprocmask(SIG_BLOCK, &end, NULL);
    log_set_sink(say, NULL, LOG_LEVEL_WARNING);
    const char *endpoint = getenv("CAIRN_TEST_ENDPOINT");
    struct cairn_s3_config s3 = {
        .endpoint = endpoint, .region = "us-east-1", .force_path_style = true};
    struct cairn_config config = {
        .store = argv[1], .state = argv[2], .workers = 2, .s3 = endpoint ? &s3 : NULL};
    if (cairn_open(&config, NULL, &store, &err))
        return fail("open", &err);
    struct mount_config mc = {.dir = argv[3],
                              .unseen_timeout_ns = test_ns("CAIRN_TEST_UNSEEN_MS"),
                              .publish_timeout_ns = test_ns("CAIRN_TEST_PUBLISH_MS"),
                              .materialise = materialise_of(argc > 4 ? argv[4] : NULL),
                              .no_trace = argc > 5,
                              .ended = ended};
    if (mount_start(store, &mc, NULL, &m, &err)) {
        cairn_close(store);
        return fail("mount", &err);
    }
    puts("ready");
    fflush(stdout);
    sigwait(&end, &signo);
    cairn_op_init(&op, 20, NULL);
    int rc = mount_stop(m, &op, &err);
    if (rc)
        fail("stop", &err);
    cairn_close(store);
    return rc ? 3 : 0;
}
