/* What a killed mount left in the spool that is nobody's any more. */
#include "base/log.h"
#include "base/util.h"
#include "fuse/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define RECOVER_SECONDS 10.0

/* Call fn for each name in a folder (a descriptor, borrowed). */
static void each_name(int folder, void (*fn)(void *ctx, const char *name), void *ctx)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        util_closep(&fd);
        return;
    }
    for (const struct dirent *d; (d = readdir(dir));)
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            fn(ctx, d->d_name);
}

struct recovery {
    struct mount *m;
    struct spool *s;
    struct cairn_op op;
    int record; /* the folder looked at */
    char id[ID_MAX + 1];
    char gen[GEN_TEXT]; /* committed under it; "": none */
    bool asked;
};

static bool is_committed(struct recovery *r, const char *gen)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    struct cairn_error ignored;
    if (!r->asked && store_get_meta(r->m->store, &r->op, r->id, &meta, r->gen, &ignored))
        r->gen[0] = 0;
    r->asked = true;
    return strcmp(r->gen, gen) == 0;
}

static void look_at_name(void *ctx, const char *name)
{
    struct recovery *r = ctx;
    char gen[GEN_TEXT];
    switch (spool_name_of(name, gen)) {
    case SPOOL_NAME_META: /* of a removal that was not finished */
        (void)unlinkat(r->record, name, 0);
        break;
    case SPOOL_NAME_DIGEST:
        if (is_committed(r, gen))
            (void)unlinkat(r->record, name, 0);
        break;
    case SPOOL_NAME_EXPORT:
        if (is_committed(r, gen) && !spool_discard(r->s, r->record, name))
            log_line(LOG_LEVEL_NOTICE, "mount: %s of %s was committed before the last mount ended",
                     name, r->id);
        break;
    case SPOOL_NAME_OTHER:
        break;
    }
}

static void look_at_record(void *ctx, const char *name)
{
    struct recovery *r = ctx;
    if (!id_is_valid(name))
        return;
    CLEANUP_FD int record = openat(r->s->tree, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (record < 0)
        return;
    memcpy(r->id, name, strlen(name) + 1);
    r->record = record;
    r->asked = false;
    each_name(record, look_at_name, r);
    if (r->asked && r->gen[0])
        (void)unlinkat(r->s->tree, name, AT_REMOVEDIR);
}

void spool_recover(struct mount *m, struct spool *s)
{
    struct recovery r = {.m = m, .s = s};
    cairn_op_init(&r.op, RECOVER_SECONDS, NULL);
    each_name(s->tree, look_at_record, &r);
}
