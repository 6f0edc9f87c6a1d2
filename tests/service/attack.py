"""What a hostile or broken client may send: the service answers in words or closes, and goes on."""

import contextlib
import json
import os
import random
import resource
import socket
import time

from kit import A, SANITIZED, Service, descriptors, equal, eventually, finish, request, test

s = Service(start=False)
s.publish(A, {"f": b"content", "big": os.urandom(8_000_000)})
s.start()


def alive():
    equal(s.get("/healthz").status, 200, "it goes on")


def refused(raw, status, closes=True):
    """One request as bytes; the answer, whose connection ends."""
    with contextlib.closing(s.connect()) as c:
        c.send_what_is_taken(raw)
        a = c.answer()
        assert a, f"no answer to {raw[:80]!r}"
        equal(a.status, status, repr(raw[:80]))
        a.error()
        if closes:
            equal(a.headers.get("connection"), "close")
            assert c.is_closed(), f"left open: {raw[:80]!r}"
        return a


@test
def malformed_heads():
    host = b"Host: x\r\n"
    for raw in (b"GET\r\n\r\n", b"GET /healthz\r\n\r\n", b"GET  /healthz HTTP/1.1\r\n" + host + b"\r\n",
                b"GET /healthz HTTP/1.1 \r\n" + host + b"\r\n", b" GET /healthz HTTP/1.1\r\n\r\n",
                b"GET /healthz HTTP/1.1\n" + host + b"\r\n", b"GET /health\x00z HTTP/1.1\r\n\r\n",
                b"GET /healthz HTTP/1.1\r\nHost: x\rX: y\r\n\r\n", b"GET healthz HTTP/1.1\r\n\r\n",
                b"GET http://x/healthz HTTP/1.1\r\n" + host + b"\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n",
                b"GET /\xff HTTP/1.1\r\n" + host + b"\r\n", b"G@T / HTTP/1.1\r\n" + host + b"\r\n",
                b"GET / HTTP/1.1\r\n" + host + b"X : y\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + b" folded\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + b"no colon\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + b": empty\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + b"X: a\x01b\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + host + host + b"\r\n", b"GET / HTTP/1.1\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        refused(raw, 400 if b"HTTP/2" not in raw else 505 if b" /" in raw else 505)
    refused(b"GET /healthz HTTP/2.0\r\n" + host + b"\r\n", 505)
    alive()


@test
def lengths_and_encodings():
    post = b"POST /v1/gc HTTP/1.1\r\nHost: x\r\n"
    for headers in (b"Content-Length: -1\r\n", b"Content-Length: 1x\r\n", b"Content-Length: \r\n",
                    b"Content-Length: 99999999999999999999999\r\n", b"Content-Length: +5\r\n",
                    b"Content-Length: 5\r\nContent-Length: 5\r\n", b"Content-Length: 5, 5\r\n",
                    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 0x5\r\n"):
        refused(post + headers + b"\r\nhello", 400)
    refused(post + b"Transfer-Encoding: gzip\r\n\r\n", 501)
    refused(post + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501)
    refused(post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501)
    refused(post + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415)
    refused(post + b"Expect: 200-ok\r\n\r\n", 417)
    refused(b"POST /v1/gc HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400)
    alive()


@test
def bodies():
    post = b"POST /v1/gc HTTP/1.1\r\nHost: x\r\n"
    a = refused(post + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415)
    assert "application/json" in a.error()["message"]
    refused(post + b"Content-Length: 1000000000000\r\n\r\n{", 413)
    refused(post + b"Content-Length: 65537\r\n\r\n" + b" " * 65537, 413)
    refused(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 400)
    for chunks in (b"xyz\r\n", b"-1\r\n", b"\r\n", b"5\r\nhelloX", b"1000000000000000\r\n",
                   b"0" * 20 + b"\r\n\r\n", b"5\nhello\r\n", b"0\r\nbad\nline\r\n\r\n"):
        refused(post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, 400)
    big = b"".join(b"4000\r\n" + b" " * 0x4000 + b"\r\n" for _ in range(5))
    refused(post + b"Transfer-Encoding: chunked\r\n\r\n" + big, 413)
    good = b"3;x=y\r\n{\"d\r\n4\r\nry_r\r\nC\r\nun\": true  }\r\n0\r\nTrailer: dropped\r\n\r\n"
    with contextlib.closing(s.connect()) as c:
        for i in range(len(good) + 1):
            c.send(post + b"Transfer-Encoding: chunked\r\n\r\n" + good[:i])
            c.send(good[i:])
            equal(c.answer().status, 202, f"cut at {i}")
    for depth in (33, 5000):
        a = s.ask("POST", "/v1/gc", "[" * depth + "]" * depth)
        equal(a.status, 400)
        assert "deep" in a.error()["message"]
    equal(s.ask("POST", "/v1/gc", b'{"dry_run":"\xff"}').status, 400)
    equal(s.ask("POST", "/v1/gc", b'{"a\x00b":1}').status, 400)
    equal(s.ask("POST", "/v1/gc", '{"dry_run": 1e999}').status, 400)
    alive()


@test
def too_large_heads():
    refused(b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414)
    refused(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431)
    refused(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431)
    # Without an end: neither memory nor time without bound.
    refused(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 3_000_000, 431)
    equal(s.get("/v1/records/" + A + "/files/" + "%61" * 4000).status, 404, "a long name is no fault")
    alive()


@test
def methods():
    for method, path, allow in (("PUT", "/v1/records", "GET, HEAD"), ("DELETE", "/v1/gc", "POST, GET, HEAD"),
                                ("POST", "/healthz", "GET, HEAD"), ("GET", f"/v1/records/{A}/fetch", "POST")):
        a = s.ask(method, path)
        equal((a.status, a.headers["allow"], a.error()["class"]), (405, allow, "invalid"), path)
    for method in ("BREW", "get", "OPTIONS", "TRACE", "CONNECT"):
        equal(s.ask(method, "/healthz").status, 501, method)


@test
def paths():
    for path in ("/", "/v1", "/v1/", "/v1/records/", "/v1/records//meta", f"/v1/records/{A}/", "//healthz",
                 "/healthz/", "/v2/records", f"/v1/records/{A}/files", "/../etc/passwd"):
        equal(s.get(path).status, 404, path)
    for id in ("ck_00000000000000AA", "ck_00000000000000a", "ck_00000000000000aaa", "..", "%2e%2e", "%zz", "%",
               "ck_00000000000000aa%00", "tp_00000000000000aa", "ck_000000000000000g", "a" * 3000, "%2F",
               "ck_00000000000000aa%2F..%2Fck_00000000000000bb"):
        for tail in ("", "/meta", "/files/f"):
            a = s.get(f"/v1/records/{id}{tail}")
            equal((a.status, a.error()["class"]), (400, "invalid"), id + tail)
        equal(s.ask("DELETE", f"/v1/records/{id}").status, 400, id)
    for path in ("../meta.json", "..%2fmeta.json", "a/../f", "./f", "f/", "/f", "f%00", "%2e%2e/f", "a//f", "f/.",
                 "%2ff", "f%2", "%c0%ae%c0%ae/f%00"):
        a = s.get(f"/v1/records/{A}/files/{path}")
        equal((a.status, a.error()["class"]), (400, "invalid"), path)
    equal(s.get(f"/v1/records/{A}/files/%ff%fe").status, 404)
    equal(s.get(f"/v1/records/{A}/files/f?x=1").status, 400)
    equal(s.get("/healthz?").status, 200, "an empty query is none")
    equal(s.get(f"/v1/records/{A}%2Fmeta").status, 400)


@test
def pipelining():
    with contextlib.closing(s.connect()) as c:
        n = 200
        c.send(b"".join(request("GET", ("/healthz", f"/v1/records/{A}", f"/v1/records/{A}/files/f")[i % 3])
                        for i in range(n)))
        for i in range(n):
            a = c.answer()
            equal(a.status, 200)
            if i % 3 == 2:
                equal(a.body, b"content")
        c.send(request("GET", "/healthz", headers=["Connection: close"]) + request("GET", "/v1/info"))
        equal(c.answer().headers["connection"], "close")
        assert c.is_closed()


@test
def pipelining_more_than_is_read():
    """A flood behind a request that is being worked on waits in the socket, not in memory."""
    with contextlib.closing(s.connect()) as c:
        c.s.settimeout(2)
        flood, sent = request("GET", f"/v1/records/{A}/files/big"), 0
        try:
            for _ in range(20000):
                sent += c.s.send(flood)
        except TimeoutError:
            pass
        assert sent < 3_000_000, sent
        alive()
    eventually("the connection goes", lambda: s.metric("cairn_http_connections") == 1)


@test
def byte_by_byte():
    with contextlib.closing(s.connect()) as c:
        for b in request("POST", "/v1/gc", {"dry_run": True}):
            c.send(bytes([b]))
        equal(c.answer().status, 202)
        c.send(b"\r\n" + request("GET", "/healthz"))
        equal(c.answer().status, 200, "an empty line before a request is passed over")


@test
def http_10():
    with contextlib.closing(s.connect()) as c:
        c.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        equal(c.answer().status, 200)
        assert c.is_closed()
    with contextlib.closing(s.connect()) as c:
        c.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
        equal(c.answer().headers["connection"], "keep-alive")
        equal(c.answer().status, 200)


@test
def expect_continue():
    with contextlib.closing(s.connect()) as c:
        body = b'{"dry_run":true}'
        c.send(b"POST /v1/gc HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        line = c.s.recv(100)
        equal(line, b"HTTP/1.1 100 Continue\r\n\r\n")
        c.send(body)
        equal(c.answer().status, 202)
        c.send(b"POST /v1/gc HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
        equal(c.answer().status, 413, "instead of a 100")


@test
def half_closed():
    """A client that says that it sends no more gets all its answers."""
    with contextlib.closing(s.connect()) as c:
        c.send(request("GET", f"/v1/records/{A}/files/big") + request("GET", "/healthz"))
        c.s.shutdown(socket.SHUT_WR)
        equal(len(c.answer().body), 8_000_000)
        equal(c.answer().status, 200)
        assert c.is_closed()


@test
def clients_that_vanish():
    before = descriptors(s.process.pid)
    for i in range(60):
        c = s.connect()
        raw = request("GET", f"/v1/records/{A}/files/big")
        c.send(raw[:random.randrange(len(raw))] if i % 3 == 0 else raw)
        if i % 3 == 2:
            c.s.recv(random.randrange(1, 200000))
        c.close()
    eventually("all is let go", lambda: s.metric("cairn_http_connections") == 1
               and s.metric("cairn_http_requests_running") == 1)
    eventually("descriptors too", lambda: descriptors(s.process.pid) <= before + 2)


@test
def a_reader_that_does_not_read():
    """Back-pressure: what nobody takes is not read ahead."""
    with open(f"/proc/{s.process.pid}/statm") as f:
        before = int(f.read().split()[1])
    readers = [s.connect() for _ in range(20)]
    for c in readers:
        c.send(request("GET", f"/v1/records/{A}/files/big"))
    time.sleep(0.5)
    alive()
    with open(f"/proc/{s.process.pid}/statm") as f:
        grown = (int(f.read().split()[1]) - before) * resource.getpagesize()
    if not SANITIZED:
        assert grown < 20 * 3_000_000, grown
    for c in readers:
        equal(len(c.answer().body), 8_000_000)
        c.close()


@test
def slow_lorises_do_not_keep_others_out():
    slow = []
    for _ in range(300):
        c = s.connect()
        c.send(b"GET /healthz HT")
        slow.append(c)
    alive()
    equal(s.get(f"/v1/records/{A}").status, 200)
    for c in slow:
        c.close()


@test
def noise():
    rng = random.Random(5)
    good = request("POST", "/v1/gc", {"dry_run": True})
    for _ in range(400):
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        with contextlib.closing(s.connect()) as c:
            c.send_what_is_taken(bytes(raw) + b"\r\n\r\n")
            c.s.shutdown(socket.SHUT_WR)
            while True:
                a = c.answer()
                if not a:
                    break
                assert a.status in (202, 200, 400, 404, 405, 413, 414, 415, 417, 431, 501, 505), a.status
                json.loads(a.body)
    alive()


@test
def out_of_descriptors():
    """accept fails: no spinning, and it goes on when there are some again."""
    pid = s.process.pid
    old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + 4, old[1]))
    held = []
    try:
        for _ in range(40):
            held.append(s.connect())

        def cpu():
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        time.sleep(0.3)
        before = cpu()
        time.sleep(1)
        ticks = cpu() - before
        assert ticks < 30, f"{ticks} ticks of a second spent on nothing"
        assert 1 <= s.log().count("accept:") <= 3, "complaints are bounded"
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
        for c in held:
            c.close()
    eventually("it accepts again", lambda: s.get("/healthz").status == 200)


finish()
