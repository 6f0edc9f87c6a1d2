"""A service that dies at each named step of a publish (a build with -Dsteps=true): whatever was done, it is found
out by the next one, and the same request then ends well."""

import os
import random
import signal

import kit

rng = random.Random(6)
s = kit.Service(start=False)
log = os.path.join(s.root, "steps")
n = 0


def begin(env):
    s.env = dict(env)
    s.start()


def stage(id, data):
    t = s.ask("POST", f"/v1/records/{id}/stage").json()
    os.mkdir(t["path"] + "/export")
    with open(t["path"] + "/export/memory", "wb") as f:
        f.write(data)
    return t["token"], t["path"]


def steps():
    begin({"CAIRN_STEP_LOG": log})
    token, _ = stage(kit.A, rng.randbytes(300000))
    open(log, "w", encoding="utf-8").close()
    kit.equal(s.ask("POST", f"/v1/records/{kit.A}/publish", {"token": token, "meta": "x"}).status, 200)
    s.end()
    with open(log, encoding="utf-8") as f:
        names = list(dict.fromkeys(f.read().split()))
    assert {"service.queued", "service.published", "service.noted", "service.ended"} <= set(names), names
    return names


def dies_at(step):
    global n
    n += 1
    id, data = "ck_%016x" % n, rng.randbytes(300000)
    begin({})
    token, path = stage(id, data)
    s.end()
    begin({"CAIRN_STEP_KILL": f"{step}:1"})
    c = s.connect()
    body = {"token": token, "meta": f"meta {n}"}
    c.send(kit.request("POST", f"/v1/records/{id}/publish", body))
    kit.equal(s.process.wait(kit.PATIENCE), -signal.SIGKILL)
    kit.Service.all.remove(s)
    begin({})
    t = s.get(f"/v1/publishes/{token}").json()
    there = s.get(f"/v1/records/{id}").status
    if t["state"] == "done":
        kit.equal(there, 200, t)
    else:
        kit.equal((t["state"], there), ("failed", 404), t)
        assert "interrupted" in t["error"]["message"], t
    a = s.ask("POST", f"/v1/records/{id}/publish", body)
    kit.equal((a.status, a.json()["state"]), (200, "done"), a.body)
    kit.equal(s.get(f"/v1/records/{id}/files/memory").body, data)
    kit.eventually("the staging goes", lambda: not os.path.exists(path))
    s.end()
    return t["state"]


found = {}


@kit.test
def every_step():
    for step in steps():
        found[step] = dies_at(step)
    print(" ".join(f"{step}={state}" for step, state in found.items()))
    kit.equal(found["service.queued"], "failed")
    kit.equal((found["service.published"], found["service.noted"]), ("done", "done"))
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


@kit.test
def a_staging_that_was_not_told_of_goes_by_its_age():
    begin({"CAIRN_STEP_KILL": "service.ticket:1"})
    c = s.connect()
    c.send(kit.request("POST", f"/v1/records/{kit.B}/stage"))
    kit.equal(s.process.wait(kit.PATIENCE), -signal.SIGKILL)
    kit.Service.all.remove(s)
    tickets = s.state + "/publishes"
    assert len(os.listdir(tickets)) > 0
    s.configure({"staging_keep_seconds": 1})
    begin({})
    kit.eventually("it goes", lambda: not os.listdir(tickets))
    s.end()


kit.finish()
