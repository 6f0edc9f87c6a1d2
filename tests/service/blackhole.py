"""The main loop while the bucket is a black hole: eight fetches hang in it, a sweep in a listing, and
whoever asks for what needs no bucket is answered at once."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

from kit import A, SANITIZED, Bucket, Service, equal, eventually, finish, test

# Best of some rounds: a loaded machine may spoil most of them, a loop that blocks spoils all.
LIMIT, ROUNDS, ASKED = 0.05 if SANITIZED else 0.005, 40, 200

bucket = Bucket()
s = Service(store=bucket.store, config=dict(bucket.config, drain_seconds=1), env=bucket.env, start=False)
ids = [f"ck_{i:016x}" for i in range(1, 9)]
for id in ids:
    s.publish(id, {"memory": os.urandom(300_000)})
s.publish(A, {"memory": b"warm" * 50_000})
s.start()


def p99(ask):
    """Of the best of some rounds."""
    best = 1e9
    for _ in range(ROUNDS):
        times = []
        for _ in range(ASKED):
            begin = time.monotonic()
            ask()
            times.append(time.monotonic() - begin)
        best = min(best, sorted(times)[int(ASKED * 0.99)])
        if best <= LIMIT:
            break
    return best


equal(s.ask("POST", f"/v1/records/{A}/fetch", {}).status, 200, "a first fetch")
bucket.rule("GET key=packs do hole")
bucket.rule("LIST do hole")
hanging = [s.connect() for _ in ids]
for c, id in zip(hanging, ids):
    c.send(f"POST /v1/records/{id}/fetch HTTP/1.1\r\nHost: x\r\n\r\n")
equal(s.ask("POST", "/v1/gc").status, 202)
eventually("the sweep hangs", lambda: s.get("/v1/gc").json()["running"])
eventually("the fetches hang", lambda: s.metric('cairn_lane_running{lane="wait"}') == 8)


@test
def metrics_tell_of_the_bucket():
    text = s.get("/metrics").body.decode()
    for name in ('cairn_s3_requests_total{verb="GET",class="ok"}', "cairn_flights_running",
                 'cairn_cache_lookups_total{outcome="miss"}', "cairn_local_limit_bytes", "cairn_pins"):
        assert "\n" + name + " " in text, name
    assert s.metric("cairn_flights_running") >= 1
    assert s.metric('cairn_sweep_running') == 1
    if shutil.which("promtool"):
        p = subprocess.run(["promtool", "check", "metrics"], input=text.encode(),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        equal((p.returncode, p.stdout), (0, b""), "promtool")


@test
def what_needs_no_bucket_is_quick():
    for path in ("/healthz", "/metrics", "/v1/info", "/v1/gc"):
        with contextlib.closing(s.connect()) as c:
            def ask():
                equal(c.ask("GET", path).status, 200)
            got = p99(ask)
            print(f"{path}: p99 {got * 1000:.2f} ms")
            assert got <= LIMIT, f"{path}: {got}"


@test
def a_warm_fetch_is_quick():
    with contextlib.closing(s.connect()) as c:
        def ask():
            equal(c.ask("POST", f"/v1/records/{A}/fetch", {"lease_seconds": 5}).status, 200)
        got = p99(ask)
        print(f"warm fetch: p99 {got * 1000:.2f} ms")
        assert got <= LIMIT, got


@test
def more_than_the_short_lane_takes():
    """Requests that hang in the bucket fill a lane; what needs none has its own way."""
    bucket.rule("GET do hole")
    more = [s.connect() for _ in range(100)]
    for i, c in enumerate(more):
        c.send(f"GET /v1/records/ck_{i + 100:016x} HTTP/1.1\r\nHost: x\r\n\r\n")
    eventually("the lane is full", lambda: (s.metric('cairn_lane_queued{lane="short"}') or 0) > 0)
    with contextlib.closing(s.connect()) as c:
        def ask():
            equal(c.ask("GET", "/healthz").status, 200)
        got = p99(ask)
        print(f"full lane: p99 {got * 1000:.2f} ms")
        assert got <= LIMIT, got
    for c in more:
        c.close()
    eventually("their clients' leaving ends them",
               lambda: s.metric('cairn_lane_running{lane="short"}') == 0)


@test
def who_hangs_up_leaves_at_once():
    for c in hanging[:4]:
        c.close()
    eventually("they left", lambda: s.metric('cairn_lane_running{lane="wait"}') == 4)
    equal(s.get("/v1/gc").json()["running"], True, "the sweep stays")


@test
def sigterm_ends_all_of_it():
    s.signal(signal.SIGTERM)
    for c in hanging[4:]:
        a = c.answer()
        equal((a.status, a.error()["class"]), (503, "transient"))
        equal(a.headers["retry-after"], "1")
    equal(s.wait(), 0)


bucket.stop()
finish()
