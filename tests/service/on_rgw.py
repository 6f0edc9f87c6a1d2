"""The service on a real object gateway: a record's whole way, one download for many, an outage, kills.

Run below tests/lib/rgw.sh run, which sets the environment.
"""

import contextlib
import os
import subprocess
import threading
import time

from kit import A, B, C, Service, equal, eventually, finish, test

ENV = {k: os.environ[k] for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
CONFIG = {"checkpoint_store": {"kind": "s3", "s3": {
    "bucket": os.environ["S3_BUCKET"], "prefix": "service", "endpoint": os.environ["S3_ENDPOINT"],
    "region": "us-east-1", "force_path_style": True}}, "drain_seconds": 2}
DATA = os.urandom(3_000_000)
s = Service(store=f"s3://{os.environ['S3_BUCKET']}/service", config=CONFIG, env=ENV)


def publish(id, data, parent=None):
    staged = s.ask("POST", f"/v1/records/{id}/stage").json()
    os.makedirs(os.path.join(staged["path"], "export"), exist_ok=True)
    with open(os.path.join(staged["path"], "export", "memory"), "wb") as f:
        f.write(data)
    body = {"token": staged["token"], "meta": id}
    if parent:
        body["parent"] = parent
    return s.ask("POST", f"/v1/records/{id}/publish", body)


@test
def the_whole_way_of_a_record():
    equal(publish(A, DATA).status, 200)
    equal(publish(B, DATA[:1000] + b"changed" + DATA[1007:], A).status, 200)
    equal(s.ask("POST", f"/v1/records/{B}/fork", {"new_id": C}).status, 201)
    equal([r["id"] for r in s.get("/v1/records").json()["records"]], [A, B, C])
    equal(s.get(f"/v1/records/{A}/files/memory", ["Range: bytes=65530-65545"]).body, DATA[65530:65546])
    with open(os.path.join(s.ask("POST", f"/v1/records/{C}/fetch", {}).json()["path"], "memory"), "rb") as f:
        equal(f.read()[1000:1007], b"changed")
    equal(s.ask("DELETE", f"/v1/records/{B}").status, 204)
    equal(s.get(f"/v1/records/{B}").status, 404)
    equal(s.get(f"/v1/records/{C}/files/memory", ["Range: bytes=1000-1006"]).body, b"changed")


@test
def one_download_for_many():
    s.end()
    subprocess.run(["rm", "-rf", s.state], check=True)
    s.start()
    answers = []

    def fetch():
        answers.append(s.ask("POST", f"/v1/records/{A}/fetch", {}).status)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(answers, [200] * 8)
    equal(s.metric('cairn_flights_total{result="good"}'), 1)


@test
def an_outage():
    """The gateway dies: what needs none goes on, what waits for it ends with its client, and then all
    is as before."""
    subprocess.run([os.environ["RGW_SH"], "stop", os.environ["RGW_DIR"], "KILL"], check=True)
    try:
        equal(s.get("/healthz").status, 200)
        with contextlib.closing(s.connect()) as c:
            c.send(f"GET /v1/records/{C}/files/memory HTTP/1.1\r\nHost: x\r\n\r\n")
            eventually("it waits", lambda: s.metric("cairn_http_requests_running") == 2)
        eventually("it left", lambda: s.metric("cairn_http_requests_running") == 1)
        a = s.ask("POST", f"/v1/records/{A}/fork", {"new_id": B, "timeout_seconds": 1})
        assert a.status in (503, 504), (a.status, a.body)
        assert s.metric('cairn_s3_requests_total{verb="GET",class="transient"}'), "counted"
    finally:
        subprocess.run([os.environ["RGW_SH"], "start", os.environ["RGW_DIR"]], check=True)
    eventually("it works again", lambda: s.get(f"/v1/records/{A}").status == 200)
    equal(len(s.get(f"/v1/records/{A}/files/memory").body), len(DATA))


@test
def killed_while_it_publishes():
    for i in range(5):
        id = f"ck_{i + 1:016x}"
        answers = []

        def ask():
            with contextlib.suppress(OSError, AssertionError, AttributeError):
                answers.append(publish(id, os.urandom(2_000_000)).status)

        t = threading.Thread(target=ask)
        t.start()
        time.sleep(0.02 + 0.06 * i)
        s.kill()
        t.join()
        s.start()
        there = s.get(f"/v1/records/{id}").status
        assert there == 200 or (there == 404 and answers != [200]), (there, answers)
    bad = [r for r in s.get("/v1/records").json()["records"] if "error" in r]
    equal(bad, [])
    s.end()
    s.cairn("verify")


finish()
