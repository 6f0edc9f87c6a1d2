#define FUSE_USE_VERSION 314
#include "fuse/passthrough.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define LIBFUSE_DOES_IT (FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17))

/* Of the kernel's ABI, under names of our own: older headers lack them, newer ones have them. */
#define ABI_BACKING_OPEN  _IOW(229, 1, struct abi_backing_map)
#define ABI_BACKING_CLOSE _IOW(229, 2, uint32_t)
#define ABI_STACK_DEPTH   1

struct abi_backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};

static int32_t backing_open(const struct mount *m, int fd)
{
    struct abi_backing_map map = {.fd = fd};
    int id = ioctl(m->device, ABI_BACKING_OPEN, &map);
    return id > 0 ? id : 0;
}

static void backing_close(const struct mount *m, int32_t backing)
{
    uint32_t id = (uint32_t)backing;
    (void)ioctl(m->device, ABI_BACKING_CLOSE, &id);
}

#if LIBFUSE_DOES_IT

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
    (void)userdata;
    return read(fd, buf, len);
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    return writev(fd, iov, count);
}

void passthrough_init(struct mount *m, struct fuse_conn_info *conn)
{
    if (m->uid != 0)
        return; /* the kernel refuses it then, file by file */
    m->init_offered = fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
    conn->max_backing_stack_depth = ABI_STACK_DEPTH - 1; /* libfuse counts the layer below us */
}

int32_t passthrough_open(struct mount *m, struct fuse_req *req, int fd)
{
    return req ? fuse_passthrough_open(req, fd) : backing_open(m, fd);
}

void passthrough_close(struct mount *m, struct fuse_req *req, int32_t backing)
{
    if (req)
        (void)fuse_passthrough_close(req, backing);
    else
        backing_close(m, backing);
}

int passthrough_reply(struct fuse_req *req, struct fuse_file_info *fi, int32_t backing)
{
    fi->backing_id = backing;
    fi->keep_cache = 0;
    return fuse_reply_open(req, fi);
}

#else

#define ABI_INIT_EXT          (1u << 30)
#define ABI_PASSTHROUGH_FLAG2 (1u << (37 - 32))
#define ABI_FOPEN_PASSTHROUGH (1u << 7)
#define ABI_INIT_OUT_LEN      64

#define ABI_INIT 26

struct abi_in_header {
    uint32_t len, opcode;
    uint64_t unique, nodeid;
    uint32_t uid, gid, pid, padding;
};

struct abi_out_header {
    uint32_t len;
    int32_t error;
    uint64_t unique;
};

/* struct fuse_init_out up to what we set in it; the rest is unused. */
struct abi_init_out {
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion_threshold;
    uint32_t max_write, time_gran;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, max_stack_depth;
    uint16_t request_timeout, unused[11];
};
_Static_assert(sizeof(struct abi_init_out) == ABI_INIT_OUT_LEN, "as the kernel has it");

struct abi_open_out {
    uint64_t fh;
    uint32_t open_flags;
    int32_t backing_id;
};

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
    struct mount *m = userdata;
    ssize_t n = read(fd, buf, len);
    if (m->init_done)
        return n;
    const struct abi_in_header *h = buf;
    if (n >= (ssize_t)(sizeof(*h) + 64) && h->opcode == ABI_INIT) {
        /* struct fuse_init_in: major, minor, max_readahead, flags, flags2 */
        uint32_t in[5];
        memcpy(in, h + 1, sizeof(in));
        m->init_unique = h->unique;
        m->init_offered = (in[3] & ABI_INIT_EXT) && (in[4] & ABI_PASSTHROUGH_FLAG2);
    }
    return n;
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
    struct mount *m = userdata;
    const struct abi_out_header *h = iov[0].iov_base;
    if (m->init_done || !m->init_unique || h->unique != m->init_unique)
        return writev(fd, iov, count);
    m->init_done = true;
    if (!m->init_offered || h->error || count != 2 || iov[1].iov_len > ABI_INIT_OUT_LEN)
        return writev(fd, iov, count);
    struct abi_init_out out = {0};
    memcpy(&out, iov[1].iov_base, iov[1].iov_len);
    out.flags |= ABI_INIT_EXT;
    out.flags2 |= ABI_PASSTHROUGH_FLAG2;
    out.max_stack_depth = ABI_STACK_DEPTH;
    struct abi_out_header longer = *h;
    longer.len = sizeof(longer) + sizeof(out);
    struct iovec v[2] = {{&longer, sizeof(longer)}, {&out, sizeof(out)}};
    ssize_t n = writev(fd, v, 2);
    /* libfuse looks for the length that it gave. */
    return n < 0 ? n : (ssize_t)(iov[0].iov_len + iov[1].iov_len);
}

void passthrough_init(struct mount *m, struct fuse_conn_info *conn)
{
    (void)m;
    (void)conn;
}

int32_t passthrough_open(struct mount *m, struct fuse_req *req, int fd)
{
    (void)req;
    return backing_open(m, fd);
}

void passthrough_close(struct mount *m, struct fuse_req *req, int32_t backing)
{
    (void)req;
    backing_close(m, backing);
}

int passthrough_reply(struct fuse_req *req, struct fuse_file_info *fi, int32_t backing)
{
    struct abi_open_out out = {
        .fh = fi->fh, .open_flags = ABI_FOPEN_PASSTHROUGH, .backing_id = backing};
    struct iovec v = {&out, sizeof(out)};
    return fuse_reply_iov(req, &v, 1);
}

#endif

int passthrough_attach(struct mount *m, int device, struct cairn_error *err)
{
    static const struct fuse_custom_io io = {.read = io_read, .writev = io_writev};
    int e = fuse_session_custom_io(m->session, &io, device);
    return e ? error_sys(err, e < 0 ? -e : EINVAL, "custom I/O of libfuse") : CAIRN_OK;
}

bool passthrough_works(struct mount *m, int fd)
{
    if (!m->init_offered)
        return false;
    int32_t backing = passthrough_open(m, NULL, fd);
    if (!backing)
        return false;
    passthrough_close(m, NULL, backing);
    return true;
}
