"""The reading half of the API: records, files, sweeps, and what the service says of itself."""

import contextlib
import os
import re
import shutil
import subprocess
import threading

from kit import A, B, C, Cut, Service, equal, eventually, finish, test

DATA = os.urandom(1_500_000)
s = Service(start=False)
s.publish(A, {"memory": DATA, "disks/cow raw%.img": b"x" * 10, "empty": b"", "config.json": b"{}"})
s.publish(B, {"f": b"b"})
s.publish(C, {"f": b"c"})
s.start()


@test
def health_and_info():
    equal(s.get("/healthz").json(), {"status": "ok"})
    info = s.get("/v1/info").json()
    equal(info["pid"], s.process.pid)
    equal(info["store"]["name"], s.store)
    equal(info["api"], 1)


@test
def list_by_pages():
    seen, after = [], ""
    while True:
        page = s.get(f"/v1/records?limit=2&after={after}").json()
        seen += [r["id"] for r in page["records"]]
        assert len(page["records"]) <= 2
        if page["next"] is None:
            break
        equal(page["next"], seen[-1])
        after = page["next"]
    equal(seen, [A, B, C])
    whole = s.get("/v1/records").json()
    equal([r["id"] for r in whole["records"]], [A, B, C])
    equal(whole["next"], None)
    equal(s.get("/v1/records?limit=3").json()["next"], None, "an exact page")
    equal(s.get("/v1/records?prefix=ck_00000000000000b").json()["records"][0]["id"], B)
    equal(s.get("/v1/records?prefix=tp_").json(), {"records": [], "next": None})
    equal(whole["records"][0]["files"], 4)
    equal(whole["records"][0]["logical_bytes"], len(DATA) + 12)


@test
def list_refuses():
    for query, word in (("limit=0", "limit"), ("limit=-1", "limit"), ("limit=x", "limit"),
                        ("nope=1", "nope"), ("limit=1&limit=2", "twice"), ("after=%zz", "%"),
                        ("after=%00", "NUL"), ("limit=1.5", "limit")):
        a = s.get("/v1/records?" + query)
        equal(a.status, 400, query)
        assert word in a.error()["message"], (query, a.body)
    equal(s.get("/v1/records?limit=99999999999999999999999").status, 200, "saturates")


@test
def show_tells_all():
    a = s.get(f"/v1/records/{A}")
    equal(a.status, 200)
    r = a.json()
    equal(r["id"], A)
    equal(r["meta_json"]["id"], A)
    equal([f["path"] for f in r["files"]], ["config.json", "disks/cow raw%.img", "empty", "memory"])
    equal(a.headers["etag"], f'"{r["gen"]}"')
    shown = s.cairn("show", A, "--json").stdout
    import json
    shown = json.loads(shown)
    for key in shown:
        equal(r[key], shown[key], key)


@test
def meta_is_the_bytes():
    a = s.get(f"/v1/records/{A}/meta")
    equal(a.headers["content-type"], "application/octet-stream")
    with open(f"{s.store}/records/{A}/meta.json", "rb") as f:
        equal(a.body, f.read())
    tag = a.headers["etag"]
    for header in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        b = s.get(f"/v1/records/{A}/meta", [f"If-None-Match: {header}"])
        equal((b.status, b.body), (304, b""), header)
        equal(b.headers["etag"], tag)
    equal(s.get(f"/v1/records/{A}/meta", ['If-None-Match: "other"']).status, 200)


@test
def files_whole_and_in_parts():
    path = f"/v1/records/{A}/files/memory"
    a = s.get(path)
    assert a.body == DATA
    equal(a.headers["accept-ranges"], "bytes")
    size = len(DATA)
    for spec, want in (("0-0", DATA[:1]), ("5-9", DATA[5:10]), ("100-", DATA[100:]),
                       ("-7", DATA[-7:]), (f"0-{size + 5}", DATA), (f"-{size + 5}", DATA),
                       (f"{size - 1}-", DATA[-1:]), ("65530-65545", DATA[65530:65546]),
                       ("0-99999999999999999999999", DATA)):
        b = s.get(path, [f"Range: bytes={spec}"])
        equal(b.status, 206, spec)
        assert b.body == want, spec
        got = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", b.headers["content-range"])
        equal(int(got[2]) - int(got[1]) + 1, len(want), spec)
        equal(int(got[3]), size)
    for spec in (f"{size}-", f"{size + 5}-{size + 6}", "-0"):
        b = s.get(path, [f"Range: bytes={spec}"])
        equal(b.status, 416, spec)
        equal(b.headers["content-range"], f"bytes */{size}")
        equal(b.error()["class"], "invalid")
    for spec in ("5-4", "x", "1-2,4-5", "", "-", "1", "--1", "1-2-3"):
        b = s.get(path, [f"Range: bytes={spec}"])
        equal((b.status, len(b.body)), (200, size), f"{spec}: what is no single range is passed over")
    equal(s.get(path, ["Range: lines=1-2"]).status, 200)
    tag = a.headers["etag"]
    equal(s.get(path, ["Range: bytes=0-1", f"If-Range: {tag}"]).status, 206)
    equal(s.get(path, ["Range: bytes=0-1", 'If-Range: "old"']).status, 200)
    equal(s.get(path, [f"If-None-Match: {tag}"]).status, 304)


@test
def files_by_odd_names():
    base = f"/v1/records/{A}/files/"
    equal(s.get(base + "disks/cow%20raw%25.img").body, b"x" * 10)
    equal(s.get(base + "disks%2Fcow%20raw%25.img").body, b"x" * 10)
    a = s.get(base + "empty")
    equal((a.status, a.body, a.headers["content-length"]), (200, b"", "0"))
    equal(s.get(base + "empty", ["Range: bytes=0-0"]).status, 416)
    equal(s.get(base + "nope").status, 404)
    equal(s.get(base + "disks").status, 404)


@test
def head_is_get_without_a_body():
    for path in (f"/v1/records/{A}/files/memory", f"/v1/records/{A}", "/v1/records", "/healthz",
                 f"/v1/records/{A}/meta", "/nope"):
        with contextlib.closing(s.connect()) as c:
            get, head = c.ask("GET", path), c.ask("HEAD", path)
            equal(head.status, get.status, path)
            equal(head.headers["content-length"], get.headers["content-length"], path)
            equal(c.ask("GET", "/healthz").status, 200, "the connection is still in step")


@test
def absent_records():
    for path in ("", "/meta", "/files/f"):
        a = s.get("/v1/records/ck_00000000000000ff" + path)
        equal((a.status, a.error()["class"]), (404, "not_found"), path)
        assert "ck_00000000000000ff" in a.error()["message"]


@test
def one_bad_record_hides_no_other():
    shutil.copytree(f"{s.store}/records/{B}", f"{s.root}/kept")
    for name in os.listdir(f"{s.store}/records/{B}"):
        if name.startswith("export-"):
            with open(f"{s.store}/records/{B}/{name}", "r+b") as f:
                f.write(b"damaged!")
    page = s.get("/v1/records").json()["records"]
    equal([r["id"] for r in page], [A, B, C])
    equal(page[1]["error"]["class"], "corrupt")
    assert page[1]["error"]["message"]
    a = s.get(f"/v1/records/{B}")
    equal((a.status, a.error()["class"]), (502, "corrupt"))
    shutil.rmtree(f"{s.store}/records/{B}")
    shutil.move(f"{s.root}/kept", f"{s.store}/records/{B}")
    equal(s.get(f"/v1/records/{B}").status, 200)


@test
def a_damaged_chunk_cuts_the_answer():
    """Its head is gone by then: the client must not take what it got for the whole."""
    s.publish("ck_00000000000000dd", {"f": os.urandom(3_000_000)})
    newest = max((os.path.getmtime(p), p) for p in (
        os.path.join(d, f) for d, _, fs in os.walk(f"{s.store}/packs") for f in fs))[1]
    with open(newest, "r+b") as f:
        f.seek(2_000_000)
        f.write(b"\0" * 4096)
    with contextlib.closing(s.connect()) as c:
        try:
            a = c.ask("GET", "/v1/records/ck_00000000000000dd/files/f")
            assert a is None or a.status == 502, a and a.status
        except Cut:
            pass
    assert "class=corrupt" in s.log()
    s.cairn("rm", "ck_00000000000000dd")


@test
def delete_is_idempotent():
    s.publish("ck_00000000000000ee", {"f": b"e"})
    for _ in range(2):
        a = s.ask("DELETE", "/v1/records/ck_00000000000000ee")
        equal((a.status, a.body), (204, b""))
    equal(s.get("/v1/records/ck_00000000000000ee").status, 404)
    s.publish("ck_00000000000000ee", {"f": b"e"})
    s.cairn("hold", "ck_00000000000000ee")
    a = s.ask("DELETE", "/v1/records/ck_00000000000000ee")
    equal((a.status, a.error()["class"]), (409, "busy"))
    s.cairn("release", "ck_00000000000000ee")
    equal(s.ask("DELETE", "/v1/records/ck_00000000000000ee").status, 204)


@test
def sweeps():
    a = s.ask("POST", "/v1/gc", {"dry_run": True})
    equal(a.status, 202)
    n = a.json()["sweep"]

    def over():
        g = s.get("/v1/gc").json()
        return not g["running"] and g["sweep"] >= n and g

    got = eventually("the sweep ends", over)
    equal(got["last"]["records"], 3)
    assert "error" not in got["last"], got
    equal(s.ask("POST", "/v1/gc").status, 202, "a body is not needed")
    for body, word in (({"dry": 1}, "dry"), ({"dry_run": 1}, "dry_run"), ([], "object"),
                       ("{", "JSON"), ('{"dry_run":true,"dry_run":true}', "duplicate")):
        b = s.ask("POST", "/v1/gc", body)
        equal(b.status, 400, body)
        assert word in b.error()["message"], b.body
    eventually("the sweep ends", lambda: s.metric('cairn_sweeps_total{result="good"}') >= 2)


@test
def metrics_are_well_formed():
    a = s.get("/metrics")
    assert a.headers["content-type"].startswith("text/plain; version=0.0.4"), a.headers
    names = set()
    for line in a.body.decode().splitlines():
        if line.startswith("# TYPE "):
            name = line.split(" ")[2]
            assert name not in names, f"{name} twice"
            names.add(name)
        elif not line.startswith("#"):
            assert re.fullmatch(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.e+-]+',
                                line), line
            assert not re.search("ck_[0-9a-f]{16}|tp_[0-9a-f]{32}", line), line
    for name in ("cairn_build_info", "cairn_http_requests_total", "cairn_http_request_seconds",
                 "cairn_lane_running", "cairn_sweeps_total", "process_resident_memory_bytes"):
        assert name in names, name
    before = s.metric('cairn_http_requests_total{route="info",code="2xx"}')
    s.get("/v1/info")
    equal(s.metric('cairn_http_requests_total{route="info",code="2xx"}'), before + 1)
    if shutil.which("promtool"):
        p = subprocess.run(["promtool", "check", "metrics"], input=a.body, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
        equal((p.returncode, p.stdout), (0, b""), "promtool")


@test
def many_at_once():
    errors = []

    def client():
        try:
            with contextlib.closing(s.connect()) as c:
                for i in range(20):
                    equal(c.ask("GET", f"/v1/records/{A}").status, 200)
                    assert c.ask("GET", f"/v1/records/{A}/files/memory",
                                 headers=["Range: bytes=1000-70000"]).body == DATA[1000:70001]
                    equal(c.ask("GET", "/v1/records").status, 200)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=client) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]


finish()
