#include "tests/lib/s3_fault_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX 65536

struct conn {
    struct loop *loop;
    struct bufferevent *bev;
    struct event *timer;
    struct conn *next, **link;
    struct request req;
    bool has_head, ending; /* ending: freed once everything is sent */
    bool deaf;             /* stalls for ever: what comes is thrown away or left */
    bool hangup;
    struct rule
        *rule; /* of this request; borrowed from the script, which is not freed before stop */
    struct answer answer;
};

struct loop {
    struct s3fs *fs;
    struct event_base *base;
    struct evconnlistener *listener;
    SSL_CTX *tls;
    pthread_t thread;
    struct conn *conns; /* of the loop's thread only */
    struct event *wake;
    int wake_fds[2];
};

static void request_clear(struct request *r)
{
    free(r->raw_path);
    free(r->raw_query);
    free(r->path);
    for (size_t i = 0; i < r->n_headers; i++) {
        free(r->headers[i].name);
        free(r->headers[i].value);
    }
    *r = (struct request){0};
}

static void conn_free(struct conn *c)
{
    struct s3fs *fs = c->loop->fs;
    pthread_mutex_lock(&fs->lock);
    fs->stats.open--;
    pthread_mutex_unlock(&fs->lock);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    if (c->timer)
        event_free(c->timer);
    request_clear(&c->req);
    text_free(&c->answer.headers);
    text_free(&c->answer.body);
    bufferevent_free(c->bev);
    free(c);
}

static void reset(struct conn *c)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    setsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    conn_free(c);
}

/* ---- Reading a request ----------------------------------------------------------------------- */

static void take_target(struct s3fs *fs, struct request *r, char *target)
{
    char slash[] = "/", *q = strchr(target, '?');
    if (q)
        *q++ = 0;
    /* A proxy's client sends the whole URL. */
    if (strncmp(target, "http://", 7) == 0) {
        target = strchr(target + 7, '/');
        if (!target)
            target = slash;
    }
    r->raw_path = strdup(target);
    r->raw_query = strdup(q ? q : "");
    char *path = strdup(target);
    if (!r->raw_path || !r->raw_query || !path)
        abort();
    path[unescape(target, strlen(target), false, path)] = 0;
    const char *host = header_of(r, "host");
    size_t n = strlen(fs->bucket);
    const char *key = NULL;
    if (host && strncmp(host, fs->bucket, n) == 0 && host[n] == '.')
        key = path + 1;
    else if (strncmp(path + 1, fs->bucket, n) == 0 && (path[n + 1] == '/' || !path[n + 1]))
        key = path + 1 + n + (path[n + 1] == '/');
    r->in_bucket = key != NULL;
    r->path = strdup(key ? key : path);
    free(path);
    if (!r->path)
        abort();
}

static bool parse_head(struct s3fs *fs, struct request *r, char *head)
{
    char *save = NULL, *line = strtok_r(head, "\r\n", &save), *target = NULL;
    char *space = line ? strchr(line, ' ') : NULL;
    if (!space || (size_t)(space - line) >= sizeof(r->method))
        return false;
    *space = 0;
    snprintf(r->method, sizeof(r->method), "%s", line);
    target = space + 1;
    space = strchr(target, ' ');
    if (!space)
        return false;
    *space = 0;
    while ((line = strtok_r(NULL, "\r\n", &save)) && r->n_headers < HEADERS_MAX) {
        char *colon = strchr(line, ':');
        if (!colon)
            return false;
        *colon++ = 0;
        for (char *p = line; *p; p++)
            if (*p >= 'A' && *p <= 'Z')
                *p = (char)(*p + 32);
        colon += strspn(colon, " ");
        r->headers[r->n_headers].name = strdup(line);
        r->headers[r->n_headers++].value = strdup(colon);
    }
    const char *length = header_of(r, "content-length");
    r->content_length = length ? strtoull(length, NULL, 10) : 0;
    take_target(fs, r, target);
    return true;
}

static void count(struct s3fs *fs, const struct request *r)
{
    struct s3fs_stats *s = &fs->stats;
    s->requests++;
    if (strcmp(r->method, "GET") == 0 && r->in_bucket && !*r->path)
        s->list++;
    else if (strcmp(r->method, "GET") == 0)
        s->get++;
    else if (strcmp(r->method, "PUT") == 0)
        s->put++;
    else if (strcmp(r->method, "HEAD") == 0)
        s->head++;
    else if (strcmp(r->method, "POST") == 0)
        s->post++;
    else
        s->delete_++;
}

static void log_request(const struct s3fs *fs, const struct request *r)
{
    char prefix[2048];
    const char *range = header_of(r, "range");
    bool list = strcmp(r->method, "GET") == 0 && r->in_bucket && !*r->path;
    if (!fs->log)
        return;
    if (!list || !query_param(r, "prefix", prefix, sizeof(prefix)))
        snprintf(prefix, sizeof(prefix), "%s", r->path);
    fprintf(fs->log, "%s %s%s%s\n", list ? "LIST" : r->method, prefix, range ? " " : "",
            range ? range : "");
    fflush(fs->log);
}

/* ---- Answering ------------------------------------------------------------------------------- */

static const char *reason(int status)
{
    return status < 300 ? "OK" : status < 400 ? "Moved" : status < 500 ? "Refused" : "Failed";
}

static void http_date(time_t t, char out[64])
{
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 64, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

static void rule_error(const struct s3fs *fs, const struct rule *rule, const struct request *r,
                       struct answer *a)
{
    char xml[400] = "";
    if (*rule->region)
        snprintf(xml, sizeof(xml), "<Region>%s</Region>", rule->region);
    if (*rule->endpoint)
        snprintf(xml + strlen(xml), sizeof(xml) - strlen(xml), "<Endpoint>%s</Endpoint>",
                 rule->endpoint);
    error_answer(a, rule->status, *rule->code ? rule->code : "Told",
                 *rule->message ? rule->message : "As the script says", xml);
    if (rule->bare) {
        text_free(&a->body);
        text_free(&a->headers);
    }
    if (*rule->region)
        text_addf(&a->headers, "x-amz-bucket-region: %s\r\n", rule->region);
    if (*rule->location)
        text_addf(&a->headers, "Location: %s\r\n", rule->location);
    if (rule->retry_after)
        text_addf(&a->headers, "Retry-After: %d\r\n", rule->retry_after);
    if (rule->retry_date) {
        char date[64];
        http_date((time_t)server_now(fs) + rule->retry_date, date);
        text_addf(&a->headers, "Retry-After: %s\r\n", date);
    }
    a->no_body = strcmp(r->method, "HEAD") == 0;
}

/* What the script changes about an answer that is otherwise right. */
static void spoil(const struct rule *rule, struct answer *a)
{
    if (rule->cut >= 0 && (size_t)rule->cut < a->body.len)
        a->body.len = (size_t)rule->cut;
    if (rule->flip >= 0 && (size_t)rule->flip < a->body.len)
        a->body.p[rule->flip] ^= 4;
    a->claim = rule->claim;
    if (rule->extra) {
        for (int64_t i = 0; i < rule->extra; i++)
            text_add(&a->body, "x", 1);
        a->claim -= rule->extra;
        a->ending = END_CLOSE;
    }
    if (rule->claim)
        a->ending = END_CLOSE;
    if (rule->stall >= 0) {
        a->send = rule->stall;
        a->ending = END_STALL;
    }
    if (rule->close >= 0) {
        a->send = rule->close;
        a->ending = END_CLOSE;
    }
    if (rule->hole) {
        a->no_head = true;
        a->ending = END_STALL;
    }
    if (rule->nothing || rule->reset) {
        a->no_head = true;
        a->ending = rule->reset ? END_RESET : END_CLOSE;
    }
    a->delay_ms = rule->delay_ms;
}

/* Called with the lock held. */
static void decide_locked(struct conn *c)
{
    struct s3fs *fs = c->loop->fs;
    const struct rule *rule = c->rule;
    struct answer *a = &c->answer;
    int status = 403;
    *a = (struct answer){.send = -1};
    if (rule && rule->raw) {
        a->status = 200;
        text_addf(&a->body, "%s", rule->raw);
        spoil(rule, a);
        return;
    }
    bool spoils_all =
        rule && (rule->status || *rule->inner || rule->nothing || rule->reset || rule->hole);
    if (spoils_all && !rule->stored) {
        if (rule->status)
            rule_error(fs, rule, &c->req, a);
        else
            error_answer(a, 200, *rule->inner ? rule->inner : "None", "Inside a 200", "");
        spoil(rule, a);
        return;
    }
    const char *why = check_signature(fs, &c->req, &status);
    if (why) {
        char xml[100] = "";
        if (strcmp(why, "AuthorizationHeaderMalformed") == 0)
            snprintf(xml, sizeof(xml), "<Region>%s</Region>", fs->region);
        fs->stats.refused++;
        error_answer(a, status, why, "Refused by the test server", xml);
        a->no_body = strcmp(c->req.method, "HEAD") == 0;
        return;
    }
    serve(fs, &c->req, rule, a);
    if (rule && rule->status) {
        rule_error(fs, rule, &c->req, a);
    }
    if (rule)
        spoil(rule, a);
}

static void send_answer(struct conn *c)
{
    struct answer *a = &c->answer;
    struct evbuffer *out = bufferevent_get_output(c->bev);
    struct s3fs *fs = c->loop->fs;
    char date[64];
    pthread_mutex_lock(&fs->lock);
    http_date((time_t)server_now(fs), date);
    size_t n = a->no_body ? 0 : a->body.len;
    if (a->send >= 0 && (size_t)a->send < n)
        n = (size_t)a->send;
    if (!a->no_head)
        fs->stats.body_out += n;
    pthread_mutex_unlock(&fs->lock);
    enum ending ending = a->ending;
    if (!a->no_head) {
        evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", a->status, reason(a->status),
                            date);
        if (a->headers.len)
            evbuffer_add(out, a->headers.p, a->headers.len);
        if (a->status != 204)
            evbuffer_add_printf(out, "Content-Length: %lld\r\n",
                                (long long)a->body.len + (long long)a->claim);
        evbuffer_add(out, "\r\n", 2);
        if (n)
            evbuffer_add(out, a->body.p, n);
    }
    text_free(&a->headers);
    text_free(&a->body);
    request_clear(&c->req);
    c->has_head = false;
    if (ending == END_STALL) {
        c->deaf = true;
        return;
    }
    if (ending == END_RESET) {
        reset(c);
        return;
    }
    if (ending == END_CLOSE || c->hangup)
        c->ending = true;
    if (c->ending && evbuffer_get_length(out) == 0)
        conn_free(c);
}

static void on_read(struct bufferevent *bev, void *user);

static void on_timer(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    struct conn *c = user;
    event_free(c->timer);
    c->timer = NULL;
    struct bufferevent *bev = c->bev;
    bool keep = c->answer.ending == END_KEEP && !c->hangup;
    send_answer(c);
    if (keep)
        on_read(bev, c); /* what came meanwhile */
}

/* The whole request is here. False: the connection is gone, or answers later. */
static bool answer(struct conn *c)
{
    struct s3fs *fs = c->loop->fs;
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t len = (size_t)c->req.content_length;
    bool early = c->rule && c->rule->early;
    if (!early) {
        c->req.body = len ? evbuffer_pullup(in, (ev_ssize_t)len) : (const unsigned char *)"";
        c->req.body_len = len;
    }
    pthread_mutex_lock(&fs->lock);
    fs->stats.body_in += c->req.body_len;
    decide_locked(c);
    pthread_mutex_unlock(&fs->lock);
    c->hangup = c->rule && c->rule->hangup;
    if (early)
        c->answer.ending = END_CLOSE;
    evbuffer_drain(in, early ? evbuffer_get_length(in) : len);
    if (c->answer.delay_ms) {
        struct timeval tv = {.tv_sec = c->answer.delay_ms / 1000,
                             .tv_usec = (c->answer.delay_ms % 1000) * 1000};
        c->timer = event_new(c->loop->base, -1, EV_TIMEOUT, on_timer, c);
        event_add(c->timer, &tv);
        return false;
    }
    bool goes_on = c->answer.ending == END_KEEP && !c->hangup;
    send_answer(c);
    return goes_on;
}

static void on_read(struct bufferevent *bev, void *user)
{
    struct conn *c = user;
    struct s3fs *fs = c->loop->fs;
    struct evbuffer *in = bufferevent_get_input(bev);
    for (;;) {
        if (c->deaf || c->ending) {
            evbuffer_drain(in, evbuffer_get_length(in));
            return;
        }
        if (c->timer)
            return;
        if (!c->has_head) {
            unsigned char first = 'G';
            evbuffer_copyout(in, &first, 1);
            if (first < 'A' || first > 'Z') { /* a TLS handshake, say */
                conn_free(c);
                return;
            }
            struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
            if (end.pos < 0) {
                if (evbuffer_get_length(in) > HEAD_MAX)
                    conn_free(c);
                return;
            }
            char *head = malloc((size_t)end.pos + 5);
            if (!head)
                abort();
            evbuffer_remove(in, head, (size_t)end.pos + 4);
            head[end.pos + 4] = 0;
            pthread_mutex_lock(&fs->lock);
            bool ok = parse_head(fs, &c->req, head);
            if (ok) {
                count(fs, &c->req);
                log_request(fs, &c->req);
                c->rule = rule_for(fs, &c->req);
            }
            pthread_mutex_unlock(&fs->lock);
            free(head);
            if (!ok) {
                conn_free(c);
                return;
            }
            c->has_head = true;
            if (c->rule && c->rule->deaf) {
                bufferevent_disable(bev, EV_READ);
                c->deaf = true;
                return;
            }
            const char *expect = header_of(&c->req, "expect");
            if (expect && !(c->rule && c->rule->early))
                evbuffer_add_printf(bufferevent_get_output(bev), "HTTP/1.1 100 Continue\r\n\r\n");
        }
        bool early = c->rule && c->rule->early;
        if (!early && evbuffer_get_length(in) < c->req.content_length)
            return;
        if (!answer(c))
            return;
    }
}

static void on_write(struct bufferevent *bev, void *user)
{
    struct conn *c = user;
    if (c->ending && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        conn_free(c);
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    (void)bev;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        conn_free(user);
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *addr, int len,
                      void *user)
{
    (void)l, (void)addr, (void)len;
    struct loop *loop = user;
    struct conn *c = calloc(1, sizeof(*c));
    int one = 1;
    if (!c)
        abort();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->loop = loop;
    if (loop->tls)
        c->bev = bufferevent_openssl_socket_new(loop->base, fd, SSL_new(loop->tls),
                                                BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    else
        c->bev = bufferevent_socket_new(loop->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev)
        abort();
    c->next = loop->conns;
    if (c->next)
        c->next->link = &c->next;
    c->link = &loop->conns;
    loop->conns = c;
    pthread_mutex_lock(&loop->fs->lock);
    loop->fs->stats.connections++;
    loop->fs->stats.open++;
    pthread_mutex_unlock(&loop->fs->lock);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

/* ---- Starting and stopping ------------------------------------------------------------------- */

static void on_wake(evutil_socket_t fd, short what, void *user)
{
    (void)fd, (void)what;
    struct loop *loop = user;
    event_base_loopbreak(loop->base);
}

static void *run(void *user)
{
    struct loop *loop = user;
    /* OpenSSL writes to sockets that the client has closed. Only for this thread: a client under
     * test that raises SIGPIPE is to be seen. */
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, NULL);
    event_base_dispatch(loop->base);
    while (loop->conns)
        conn_free(loop->conns);
    return NULL;
}

static bool start_tls(struct loop *loop, const struct s3fs_config *config)
{
    if (!config || !config->cert_file)
        return true;
    loop->tls = SSL_CTX_new(TLS_server_method());
    return loop->tls && SSL_CTX_use_certificate_chain_file(loop->tls, config->cert_file) == 1 &&
           SSL_CTX_use_PrivateKey_file(loop->tls, config->key_file, SSL_FILETYPE_PEM) == 1;
}

static bool listen_on(struct loop *loop, uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    socklen_t len = sizeof(a);
    loop->listener = evconnlistener_new_bind(loop->base, on_accept, loop,
                                             LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, 128,
                                             (struct sockaddr *)&a, sizeof(a));
    if (!loop->listener ||
        getsockname(evconnlistener_get_fd(loop->listener), (struct sockaddr *)&a, &len))
        return false;
    loop->fs->port = ntohs(a.sin_port);
    snprintf(loop->fs->endpoint, sizeof(loop->fs->endpoint), "%s://127.0.0.1:%u",
             loop->tls ? "https" : "http", loop->fs->port);
    return true;
}

static const char *or_else(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

struct s3fs *s3fs_start(const struct s3fs_config *config)
{
    static const struct s3fs_config none;
    const struct s3fs_config *k = config ? config : &none;
    struct s3fs *fs = calloc(1, sizeof(*fs));
    struct loop *loop = calloc(1, sizeof(*loop));
    if (!fs || !loop)
        abort();
    pthread_mutex_init(&fs->lock, NULL);
    snprintf(fs->bucket, sizeof(fs->bucket), "%s", or_else(k->bucket, "bucket"));
    snprintf(fs->access_key, sizeof(fs->access_key), "%s", or_else(k->access_key, "key"));
    snprintf(fs->secret, sizeof(fs->secret), "%s", or_else(k->secret, "secret"));
    snprintf(fs->region, sizeof(fs->region), "%s", or_else(k->region, "us-east-1"));
    fs->page = 1000;
    fs->random = 42;
    fs->loop = loop;
    loop->fs = fs;
    loop->base = event_base_new();
    if (!loop->base || pipe(loop->wake_fds) || !start_tls(loop, config) ||
        !listen_on(loop, k->port))
        return NULL; /* the test ends here */
    loop->wake = event_new(loop->base, loop->wake_fds[0], EV_READ, on_wake, loop);
    event_add(loop->wake, NULL);
    if (pthread_create(&loop->thread, NULL, run, loop))
        return NULL;
    return fs;
}

void s3fs_stop(struct s3fs *fs)
{
    struct loop *loop = fs->loop;
    (void)!write(loop->wake_fds[1], "x", 1);
    pthread_join(loop->thread, NULL);
    event_free(loop->wake);
    evconnlistener_free(loop->listener);
    event_base_free(loop->base);
    if (loop->tls)
        SSL_CTX_free(loop->tls);
    close(loop->wake_fds[0]);
    close(loop->wake_fds[1]);
    free(loop);
    for (struct rule *r = fs->rules, *next; r; r = next) {
        next = r->next;
        rule_free(r);
    }
    objects_free(fs);
    if (fs->log)
        fclose(fs->log);
    pthread_mutex_destroy(&fs->lock);
    free(fs);
}

/* ---- Control --------------------------------------------------------------------------------- */

const char *s3fs_endpoint(const struct s3fs *fs)
{
    return fs->endpoint;
}

uint16_t s3fs_port(const struct s3fs *fs)
{
    return fs->port;
}

bool s3fs_rule(struct s3fs *fs, const char *line)
{
    struct rule *r = rule_parse(line);
    if (!r)
        return false;
    pthread_mutex_lock(&fs->lock);
    struct rule **p = &fs->rules;
    while (*p)
        p = &(*p)->next;
    *p = r;
    pthread_mutex_unlock(&fs->lock);
    return true;
}

void s3fs_clear(struct s3fs *fs)
{
    pthread_mutex_lock(&fs->lock);
    for (struct rule *r = fs->rules; r; r = r->next)
        r->times = 0; /* a request on its way may still hold it */
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_stats(struct s3fs *fs, struct s3fs_stats *out)
{
    pthread_mutex_lock(&fs->lock);
    *out = fs->stats;
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_reset_stats(struct s3fs *fs)
{
    pthread_mutex_lock(&fs->lock);
    fs->stats = (struct s3fs_stats){.open = fs->stats.open};
    pthread_mutex_unlock(&fs->lock);
}

bool s3fs_log(struct s3fs *fs, const char *path)
{
    FILE *f = fopen(path, "ae");
    if (!f)
        return false;
    pthread_mutex_lock(&fs->lock);
    FILE *was = fs->log;
    fs->log = f;
    pthread_mutex_unlock(&fs->lock);
    if (was)
        fclose(was);
    return true;
}

void s3fs_page_size(struct s3fs *fs, unsigned n)
{
    pthread_mutex_lock(&fs->lock);
    fs->page = n;
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_skew(struct s3fs *fs, int64_t seconds)
{
    pthread_mutex_lock(&fs->lock);
    fs->skew = seconds;
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_rotate(struct s3fs *fs, const char *access_key, const char *secret, const char *token)
{
    pthread_mutex_lock(&fs->lock);
    if (fs->n_old < 8)
        memcpy(fs->old_keys[fs->n_old++], fs->access_key, sizeof(fs->access_key));
    snprintf(fs->access_key, sizeof(fs->access_key), "%s", access_key);
    snprintf(fs->secret, sizeof(fs->secret), "%s", secret);
    snprintf(fs->token, sizeof(fs->token), "%s", token);
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_region(struct s3fs *fs, const char *region)
{
    pthread_mutex_lock(&fs->lock);
    snprintf(fs->region, sizeof(fs->region), "%s", region);
    pthread_mutex_unlock(&fs->lock);
}

void s3fs_store(struct s3fs *fs, const char *key, const void *data, uint64_t len)
{
    pthread_mutex_lock(&fs->lock);
    object_put(fs, key, data, (size_t)len);
    pthread_mutex_unlock(&fs->lock);
}

bool s3fs_has(struct s3fs *fs, const char *key)
{
    bool found;
    pthread_mutex_lock(&fs->lock);
    object_find(fs, key, &found);
    pthread_mutex_unlock(&fs->lock);
    return found;
}

uint64_t s3fs_count(struct s3fs *fs)
{
    pthread_mutex_lock(&fs->lock);
    uint64_t n = fs->n;
    pthread_mutex_unlock(&fs->lock);
    return n;
}
