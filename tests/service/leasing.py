"""Fetch and leases: against removal, sweeps and kills; bound, renewed, expired, wrongly asked for."""

import contextlib
import os
import random
import time

import kit

GRACE = 1
CONFIG = {"generation_grace_seconds": GRACE, "gc_visibility_seconds": 0, "gc_young_seconds": 0,
          "gc_dead_margin_seconds": 0, "sweep_interval_seconds": 3600}
rng = random.Random(3)


def fetch(s, id, **body):
    a = s.ask("POST", f"/v1/records/{id}/fetch", body)
    kit.equal(a.status, 200, a.body)
    return a.json()


def read(path):
    out = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            with open(full, "rb") as f:
                out[os.path.relpath(full, path)] = f.read()
    return out


def has(s, lease):
    a = s.get(f"/v1/leases/{lease}")
    assert a.status in (200, 404), a.body
    return a.status == 200


def release(s, lease):
    kit.equal(s.ask("DELETE", f"/v1/leases/{lease}").status, 204)


def files(root):
    return [n for _, _, names in os.walk(root) for n in names]


s = kit.Service(config=CONFIG)
A_FILES = {"memory": rng.randbytes(3 << 20), "disks/a": rng.randbytes(1000), "empty": b""}
s.publish(kit.A, A_FILES)
s.publish(kit.B, {"memory": rng.randbytes(2 << 20)})


@kit.test
def a_fetch_gives_files_meta_and_a_lease():
    f = fetch(s, kit.A)
    assert read(f["path"]) == A_FILES
    assert not f["ready"] and not f["bound"] and 3590 < f["lease_seconds"] <= 3600, f
    kit.equal(f["gen"], s.get(f"/v1/records/{kit.A}").json()["gen"])
    kit.equal(f["meta"].encode(), s.get(f"/v1/records/{kit.A}/meta").body)
    g = fetch(s, kit.A)
    assert g["ready"] and g["lease"] != f["lease"]
    kit.equal(g["path"], f["path"])
    leases = s.get("/v1/leases").json()["leases"]
    kit.equal({x["lease"] for x in leases}, {f["lease"], g["lease"]})
    kit.equal(s.metric("cairn_leases"), 2)
    release(s, f["lease"])
    assert not has(s, f["lease"]) and has(s, g["lease"])
    release(s, f["lease"])
    release(s, g["lease"])


@kit.test
def a_lease_ends_when_its_time_is_over_and_renewing_counts_from_now():
    short, long = (fetch(s, kit.A, lease_seconds=x) for x in (1.5, 600))
    a = s.ask("POST", f"/v1/leases/{short['lease']}/renew", {"lease_seconds": 0.2})
    kit.equal(a.status, 200, a.body)
    assert a.json()["lease_seconds"] <= 0.2 and a.json()["path"] == short["path"], a.body
    kit.eventually("it ends", lambda: not has(s, short["lease"]))
    kit.equal(s.ask("POST", f"/v1/leases/{short['lease']}/renew", {}).status, 404)
    a = s.ask("POST", f"/v1/leases/{long['lease']}/renew")
    assert 3590 < a.json()["lease_seconds"] <= 3600, a.body
    a = s.ask("POST", f"/v1/leases/{long['lease']}/renew", {"lease_seconds": 1e300})
    assert a.json()["lease_seconds"] == 30 * 24 * 3600, a.body
    release(s, long["lease"])


@kit.test
def a_bound_lease_ends_with_its_connection():
    bound, other = s.connect(), s.connect()
    leases = []
    for _ in range(3):
        a = bound.ask("POST", f"/v1/records/{kit.A}/fetch", {"bind_connection": True})
        assert a.json()["bound"], a.body
        leases.append(a.json()["lease"])
    free = bound.ask("POST", f"/v1/records/{kit.A}/fetch", {}).json()["lease"]
    elsewhere = other.ask("POST", f"/v1/records/{kit.A}/fetch", {"bind_connection": True}).json()["lease"]
    kit.equal(s.metric("cairn_leases_bound"), 4)
    release(s, leases[0])
    kit.equal(s.metric("cairn_leases_bound"), 3)
    assert has(s, leases[1]) and has(s, leases[2])
    bound.close()
    kit.eventually("they end", lambda: not has(s, leases[1]) and not has(s, leases[2]))
    assert has(s, free) and has(s, elsewhere)
    other.close()
    kit.eventually("it ends", lambda: not has(s, elsewhere))
    kit.equal(s.metric("cairn_leases_bound"), 0)
    release(s, free)


@kit.test
def who_hangs_up_leaves_at_once_and_nothing_stays_behind():
    for _ in range(50):
        with contextlib.closing(s.connect()) as c:
            c.send(kit.request("POST", f"/v1/records/{kit.A}/fetch", {"bind_connection": True}))
    kit.eventually("all leases end", lambda: s.metric("cairn_leases") == 0)
    kit.eventually("all requests end", lambda: s.metric("cairn_http_requests_running") <= 1)


def sweep(s):
    n = s.ask("POST", "/v1/gc", {}).json()["sweep"]

    def over():
        st = s.get("/v1/gc").json()
        return st if st["sweep"] >= n and not st["running"] else None
    st = kit.eventually("the sweep ends", over)
    assert "error" not in st["last"], st


def packs(s):
    return len(files(os.path.join(s.store, "packs")))


@kit.test
def a_leased_generation_survives_removal_and_the_sweeps_of_every_node():
    id = "ck_00000000000000c1"
    data = {"memory": rng.randbytes(2 << 20)}
    other = os.path.join(s.root, "other-node")
    before = packs(s)
    s.publish(id, data)
    f = fetch(s, id)
    # Its pin is written once it is half the grace old.
    kit.eventually("a pin", lambda: files(os.path.join(s.store, "pins")))
    kit.equal(s.ask("DELETE", f"/v1/records/{id}").status, 204)
    kit.equal(s.ask("POST", f"/v1/records/{id}/fetch", {}).status, 404)

    def sweep_all():
        sweep(s)
        s.cairn("--state", other, "--config", s.config, "gc", "--wait")
    end = time.monotonic() + 3 * GRACE
    while time.monotonic() < end:
        sweep_all()
        time.sleep(0.3)
    assert read(f["path"]) == data
    assert packs(s) > before, "the packs of a leased generation are gone"
    release(s, f["lease"])
    kit.eventually("the files go", lambda: not os.path.exists(f["path"]))

    def swept():
        sweep_all()
        return packs(s) == before
    kit.eventually("the packs go", swept)
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


@kit.test
def a_new_generation_leaves_the_leased_one_alone():
    id = "tp_%032x" % 7
    one, two = {"memory": b"one" * 100000}, {"memory": b"two" * 100000}
    s.publish(id, one)
    f = fetch(s, id)
    token = s.ask("POST", f"/v1/records/{id}/stage").json()
    os.mkdir(token["path"] + "/export")
    with open(token["path"] + "/export/memory", "wb") as out:
        out.write(two["memory"])
    a = s.ask("POST", f"/v1/records/{id}/publish", {"token": token["token"], "meta": {"n": 2}})
    kit.equal(a.status, 200, a.body)
    g = fetch(s, id)
    kit.equal(g["gen"], a.json()["gen"])
    assert read(g["path"]) == two and read(f["path"]) == one
    release(s, f["lease"])
    release(s, g["lease"])


@kit.test
def what_is_leased_is_not_evicted():
    small = kit.Service(config=dict(CONFIG, cache_bytes="8M"))
    data = [{"memory": rng.randbytes(3 << 20)} for _ in range(6)]
    ids = ["ck_%016x" % (0xe00 + i) for i in range(6)]
    for id, d in zip(ids, data):
        small.publish(id, d)
    kept = fetch(small, ids[0])
    others = []
    for id, d in zip(ids[1:], data[1:]):
        f = fetch(small, id)
        assert read(f["path"]) == d
        release(small, f["lease"])
        others.append(f["path"])
    kit.eventually("others go", lambda: sum(map(os.path.exists, others)) <= 2)
    assert read(kept["path"]) == data[0]
    # What was evicted is fetched again.
    f = fetch(small, ids[1])
    assert read(f["path"]) == data[1] and not f["ready"], f
    release(small, f["lease"])
    release(small, kept["lease"])
    small.end()


@kit.test
def a_killed_service_keeps_no_lease():
    fetch(s, kit.A)
    b = fetch(s, kit.B)
    s.kill()
    s.start()
    assert not has(s, b["lease"])
    kit.equal(s.get("/v1/leases").json(), {"leases": []})
    f = fetch(s, kit.A)
    assert read(f["path"]) == A_FILES
    release(s, f["lease"])
    # What it pinned is let go: nothing keeps a record from going.
    kit.equal(s.ask("DELETE", f"/v1/records/{kit.B}").status, 204)
    before = packs(s)

    def swept():
        sweep(s)
        return packs(s) < before and not files(os.path.join(s.store, "pins"))
    kit.eventually("its pins expire", swept)


@kit.test
def wrong_requests_are_refused_by_name():
    def refused(path, body, status, text):
        a = s.ask("POST", path, body)
        kit.equal(a.status, status, a.body)
        assert text in a.error()["message"], a.body
    fetching = f"/v1/records/{kit.A}/fetch"
    refused(fetching, {"timeout": 1}, 400, "timeout")
    refused(fetching, {"timeout_seconds": "1"}, 400, "timeout_seconds")
    refused(fetching, {"lease_seconds": True}, 400, "lease_seconds")
    refused(fetching, {"bind_connection": 1}, 400, "bind_connection")
    refused("/v1/records/ck_x/fetch", {}, 400, "ck_x")
    refused("/v1/records/ck_00000000000000ff/fetch", {}, 404, "ck_00000000000000ff")
    a = s.ask("POST", fetching, {"timeout_seconds": 0})
    kit.equal((a.status, a.error()["class"]), (504, "timeout"))
    f = fetch(s, kit.A, lease_seconds=-1, timeout_seconds=-1)
    refused(f"/v1/leases/{f['lease']}/renew", {"seconds": 5}, 400, "seconds")
    for lease in ("x", "0" * 32, f["lease"].upper(), f["lease"] + "0", "%2e%2e"):
        assert s.get(f"/v1/leases/{lease}").status in (400, 404)
        assert s.ask("POST", f"/v1/leases/{lease}/renew").status in (400, 404)
    assert has(s, f["lease"])
    release(s, f["lease"])


kit.finish()
