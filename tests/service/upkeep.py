"""What the service does by the clock: sweeps, retention, clearing away stagings; also while the store fails."""

import os
import re
import time

import kit

SOON = {"sweep_interval_seconds": 1, "gc_young_seconds": 0, "gc_dead_margin_seconds": 0,
        "generation_grace_seconds": 1}


def lines(s, pattern):
    return [x for x in s.log().splitlines() if re.search(pattern, x)]


def sweeps(s, result):
    return s.metric('cairn_sweeps_total{result="%s"}' % result)


@kit.test
def sweeps_come_by_themselves_and_collect():
    s = kit.Service(config=SOON)
    s.publish(kit.A, {"memory": os.urandom(1 << 20)})
    s.publish(kit.B, {"memory": os.urandom(1 << 20)})
    kit.eventually("some sweeps", lambda: sweeps(s, "good") >= 2)
    kit.equal(s.ask("DELETE", f"/v1/records/{kit.A}").status, 204)

    def packs():
        return sum(len(n) for _, _, n in os.walk(s.store + "/packs"))
    kit.eventually("what nobody needs goes", lambda: packs() == 1)
    kit.equal(s.get(f"/v1/records/{kit.B}").status, 200)
    assert s.get("/v1/gc").json()["last_good"]
    s.end()


@kit.test
def records_end_when_their_time_is_over():
    s = kit.Service(config={"checkpoint_ttl_hours": 1}, start=False)
    for id in (kit.A, kit.B, kit.C):
        s.publish(id, {"memory": id.encode()})
    s.cairn("hold", kit.B)
    old = time.time() - 2 * 3600
    for id in (kit.A, kit.B):
        for name in os.listdir(f"{s.store}/records/{id}"):
            os.utime(f"{s.store}/records/{id}/{name}", (old, old))
    # The interval is an hour, and the first sweep comes within a minute: one is asked for.
    s.start()
    s.ask("POST", "/v1/gc")
    kit.eventually("the old one goes", lambda: s.get(f"/v1/records/{kit.A}").status == 404)
    kit.equal([s.get(f"/v1/records/{id}").status for id in (kit.B, kit.C)], [200, 200])
    kit.eventually("the sweep ends", lambda: not s.get("/v1/gc").json()["running"])
    kit.equal(s.get("/v1/gc").json()["last"]["records_expired"], 1)
    s.end()


@kit.test
def a_store_that_fails_is_logged_once_and_the_service_carries_on():
    s = kit.Service(config=SOON, start=False)
    s.publish(kit.A, {"memory": b"x" * 100000})
    away = s.store + "/records.away"
    os.rename(s.store + "/records", away)
    with open(s.store + "/records", "w", encoding="utf-8"):
        pass
    s.start()
    kit.eventually("some sweeps fail", lambda: sweeps(s, "failed") >= 3)
    warnings = lines(s, r"^<4>.*(sweep|records)")
    kit.equal(len(warnings), 1, warnings)
    kit.equal(s.get("/healthz").status, 200)
    assert s.get("/v1/gc").json()["last"]["error"]["message"]
    os.unlink(s.store + "/records")
    os.rename(away, s.store + "/records")
    kit.eventually("sweeps work again", lambda: lines(s, "sweeps succeed again"))
    kit.equal(len(lines(s, "sweeps succeed again")), 1)
    kit.equal(s.get(f"/v1/records/{kit.A}").status, 200)
    s.end()


@kit.test
def a_sweep_that_hangs_piles_nothing_up_and_goes_on_when_let_go():
    bucket = kit.Bucket()
    s = kit.Service(store=bucket.store, config=dict(bucket.config, **SOON, gc_visibility_seconds=0),
                    env=bucket.env, start=False)
    s.publish(kit.A, {"memory": b"x" * 100000})
    bucket.rule("LIST do hole")
    s.start()
    kit.eventually("a sweep hangs", lambda: s.get("/v1/gc").json()["running"])
    n = s.get("/v1/gc").json()["sweep"]
    threads = len(os.listdir(f"/proc/{s.process.pid}/task"))
    before = bucket.stats()["list"]
    time.sleep(2.5)
    more = bucket.stats()["list"] - before
    now = s.get("/v1/gc").json()
    kit.equal((now["sweep"], now["running"]), (n, True))
    # The one that hangs may be tried again; there is not one more for each interval.
    assert more <= 1, more
    assert len(os.listdir(f"/proc/{s.process.pid}/task")) <= threads + 2
    kit.equal(s.get("/healthz").status, 200)
    bucket.clear()
    s.end()
    bucket.stop()


@kit.test
def stagings_nobody_uses_and_old_outcomes_are_cleared_away():
    s = kit.Service(config={"staging_keep_seconds": 2})
    old = s.ask("POST", f"/v1/records/{kit.A}/stage").json()
    kit.equal(old["keep_seconds"], 2)
    done = s.ask("POST", f"/v1/records/{kit.B}/stage").json()
    os.mkdir(done["path"] + "/export")
    kit.equal(s.ask("POST", f"/v1/records/{kit.B}/publish", {"token": done["token"]}).status, 200)
    assert os.path.exists(old["path"])
    kit.equal(s.get(f"/v1/publishes/{old['token']}").json()["state"], "staged")
    kit.eventually("the staging goes", lambda: not os.path.exists(old["path"]))
    for x in (old, done):
        kit.eventually("its token goes", lambda x=x: s.get(f"/v1/publishes/{x['token']}").status == 404)
    kit.equal(s.get(f"/v1/records/{kit.B}").status, 200)
    # By age also at the start; what is in use is not.
    s.end()
    s.configure({})
    s.start()
    old, used = (s.ask("POST", f"/v1/records/{kit.A}/stage").json() for _ in range(2))
    s.end()
    ago = time.time() - 25 * 3600
    for x in (old, used):
        os.mkdir(x["path"] + "/export")
        os.utime(x["path"] + "/export", (ago, ago))
        os.utime(x["path"], (ago, ago))
        ticket = f"{s.state}/publishes/{x['token']}.json"
        with open(ticket, encoding="utf-8") as f:
            text = f.read()
        with open(ticket, "w", encoding="utf-8") as f:
            f.write(re.sub(r'"updated_ns":\d+', f'"updated_ns":{int(ago * 1e9)}', text))
    os.mkdir(used["path"] + "/export/memory")
    s.start()
    kit.eventually("the old one goes", lambda: not os.path.exists(old["path"]))
    assert os.path.exists(used["path"])
    s.end()


kit.finish()
