"""Hundreds of clients wait for a bucket that hangs: who needs not wait is answered, more are sent away, and when the
bucket comes back all that still wait get what they wait for."""

import os
import resource

from kit import A, B, Bucket, Service, descriptors, equal, eventually, finish, test

WAITING_MAX = 768  # service/fetches.c
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))

bucket = Bucket()
s = Service(store=bucket.store, config=bucket.config, env=bucket.env, start=False)
cold = ["ck_%016x" % i for i in range(4)]
for id in cold + [A]:
    s.publish(id, {"memory": os.urandom(100_000)})
s.start()
warm = s.ask("POST", f"/v1/records/{A}/fetch", {}).json()
fds = descriptors(s.process.pid)
bucket.rule("GET key=packs do hole")


def ask(id):
    c = s.connect()
    c.send(f"POST /v1/records/{id}/fetch HTTP/1.1\r\nHost: x\r\n\r\n")
    return c


waiting = [ask(cold[i % len(cold)]) for i in range(WAITING_MAX)]


@test
def others_are_answered_while_hundreds_wait():
    eventually("all wait", lambda: s.metric("cairn_fetches_waiting") == WAITING_MAX)
    for _ in range(20):
        f = s.ask("POST", f"/v1/records/{A}/fetch", {})
        equal((f.status, f.json()["path"]), (200, warm["path"]))
        equal(s.ask("POST", f"/v1/leases/{f.json()['lease']}/renew").status, 200)
        equal(s.ask("DELETE", f"/v1/leases/{f.json()['lease']}").status, 204)
    equal(s.ask("POST", f"/v1/records/{B}/stage").status, 201)
    a = s.ask("POST", f"/v1/records/{cold[0]}/fetch", {})
    equal((a.status, a.error()["class"], a.headers["retry-after"]), (503, "transient", "1"))


@test
def who_leaves_makes_room_at_once():
    for c in waiting[:300]:
        c.close()
    del waiting[:300]
    eventually("they left", lambda: s.metric("cairn_fetches_waiting") == WAITING_MAX - 300)
    waiting.append(ask(cold[1]))
    eventually("another one waits", lambda: s.metric("cairn_fetches_waiting") == WAITING_MAX - 299)


@test
def when_the_bucket_is_back_all_who_wait_get_their_files():
    bucket.clear()
    before = bucket.stats()
    paths = set()
    # Requests that hang are cut after some seconds and tried again.
    for c in waiting:
        a = c.answer()
        equal(a.status, 200, a.body)
        paths.add(a.json()["path"])
        c.close()
    equal(len(paths), len(cold))
    assert bucket.stats()["get"] - before["get"] < 100, "downloads were not shared"
    eventually("nothing waits", lambda: s.metric("cairn_fetches_waiting") == 0)
    eventually("descriptors are given back", lambda: descriptors(s.process.pid) <= fds + 40)


bucket.stop()
finish()
