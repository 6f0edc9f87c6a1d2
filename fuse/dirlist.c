#define FUSE_USE_VERSION 314
#include "fuse/dirlist.h"

#include "base/util.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>

int dirlist_add(struct dirlist *l, const char *name, uint64_t ino, unsigned type,
                struct cairn_error *err)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct dirlist_entry *e = reallocarray(l->entries, cap, sizeof(*e));
        if (!e)
            return error_oom(err, "listing");
        l->entries = e;
        l->cap = cap;
    }
    struct dirlist_entry *e = &l->entries[l->n];
    *e = (struct dirlist_entry){.name = strdup(name), .ino = ino, .type = type};
    if (!e->name)
        return error_oom(err, "listing");
    l->n++;
    l->sorted = false;
    return CAIRN_OK;
}

struct ordered {
    struct dirlist_entry entry;
    size_t no;
};

static int by_name(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    int c = strcmp(x->entry.name, y->entry.name);
    return c ? c : (x->no > y->no) - (x->no < y->no);
}

/* In order, and the first of equal names. Without memory names come as they were added. */
static void sort(struct dirlist *l)
{
    l->sorted = true;
    struct ordered *o = calloc(l->n ? l->n : 1, sizeof(*o));
    if (!o)
        return;
    for (size_t i = 0; i < l->n; i++)
        o[i] = (struct ordered){.entry = l->entries[i], .no = i};
    qsort(o, l->n, sizeof(*o), by_name);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (n && strcmp(l->entries[n - 1].name, o[i].entry.name) == 0)
            free(o[i].entry.name);
        else
            l->entries[n++] = o[i].entry;
    }
    l->n = n;
    free(o);
}

void dirlist_reply(struct dirlist *l, struct fuse_req *req, size_t size, uint64_t off,
                   uint64_t self_ino)
{
    if (!l->sorted)
        sort(l);
    CLEANUP_FREE char *buf = malloc(size ? size : 1);
    if (!buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    size_t used = 0;
    for (uint64_t i = off; i < l->n + 2; i++) {
        bool dot = i < 2;
        const struct dirlist_entry *e = dot ? NULL : &l->entries[i - 2];
        struct stat st = {.st_ino = dot ? self_ino : e->ino, .st_mode = dot ? S_IFDIR : e->type};
        const char *name = i == 0 ? "." : i == 1 ? ".." : e->name;
        size_t n = fuse_add_direntry(req, buf + used, size - used, name, &st, (off_t)(i + 1));
        if (n > size - used)
            break;
        used += n;
    }
    fuse_reply_buf(req, buf, used);
}

void dirlist_release(struct dirlist *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->entries[i].name);
    free(l->entries);
    *l = (struct dirlist){0};
}
