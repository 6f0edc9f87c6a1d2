"""SIGKILL at any moment under load: what was answered as committed is there, and the service starts.

CAIRN_KILLS=N for another number of kills than is quick.
"""

import contextlib
import os
import random
import threading
import time

from kit import A, Cut, Service, equal, finish, test

KILLS = int(os.environ.get("CAIRN_KILLS", "10"))
rng = random.Random(int(os.environ.get("CAIRN_SEED", str(os.getpid()))))
s = Service(start=False)
s.publish(A, {"memory": os.urandom(2_000_000), "config.json": b"{}"})
lock, committed, deleted, faults = threading.Lock(), set(), set(), []


class Load(threading.Thread):
    """Forks, publishes, fetches, deletes and reads, until the service is gone."""

    def __init__(self):
        super().__init__()
        self.rng = random.Random(rng.random())

    def id(self):
        return "ck_%016x" % self.rng.getrandbits(64)

    def run(self):
        try:
            with contextlib.closing(s.connect()) as self.c:
                while True:
                    self.rng.choice((self.fork, self.fork, self.publish, self.fetch, self.read,
                                     self.delete))()
        except (OSError, Cut):
            pass  # it was killed; what came whole before counts
        except Exception as e:
            faults.append(e)

    def ask(self, *args):
        answer = self.c.ask(*args)
        if not answer:
            raise Cut("no answer")
        return answer

    def fork(self):
        id = self.id()
        if self.ask("POST", f"/v1/records/{A}/fork", {"new_id": id, "meta": id}).status == 200:
            with lock:
                committed.add(id)

    def publish(self):
        id = self.id()
        staged = self.ask("POST", f"/v1/records/{id}/stage").json()
        os.makedirs(os.path.join(staged["path"], "export"), exist_ok=True)
        with open(os.path.join(staged["path"], "export", "f"), "wb") as f:
            f.write(self.rng.randbytes(self.rng.randrange(200_000)))
        a = self.ask("POST", f"/v1/records/{id}/publish", {"token": staged["token"], "meta": id})
        if a.status == 200:
            with lock:
                committed.add(id)

    def fetch(self):
        self.ask("POST", f"/v1/records/{A}/fetch", {"lease_seconds": 60})

    def read(self):
        a = self.ask("GET", f"/v1/records/{A}/files/memory")
        assert a.status == 200 and len(a.body) == 2_000_000
        self.ask("GET", "/v1/records?limit=50")

    def delete(self):
        with lock:
            id = committed.pop() if len(committed) > 50 else None
        if id:
            with lock:
                deleted.add(id)
            self.ask("DELETE", f"/v1/records/{id}")


@test
def killed_at_any_moment():
    for i in range(KILLS):
        s.start()
        threads = [Load() for _ in range(6)]
        for t in threads:
            t.start()
        time.sleep(rng.random() ** 2 * 0.8)
        s.kill()
        for t in threads:
            t.join()
    s.start()
    assert not faults, faults[0]
    assert committed, "nothing was ever committed"
    with contextlib.closing(s.connect()) as c:
        for id in committed:
            equal(c.ask("GET", f"/v1/records/{id}").status, 200, f"{id}, answered as committed")
        page = c.ask("GET", "/v1/records?limit=10000").json()["records"]
    # One whose removal was cut off in the middle is listed and reads as not found.
    bad = [r for r in page if "error" in r and r["id"] not in deleted]
    equal(bad, [])
    print(f"{KILLS} kills, {len(committed)} records committed")


@test
def everything_verifies():
    for id in deleted:
        equal(s.ask("DELETE", f"/v1/records/{id}").status, 204, "a removal is finished by the next")
    equal(s.ask("POST", f"/v1/records/{A}/fetch", {}).status, 200)
    s.end()
    s.cairn("verify")
    equal(s.cairn("gc").returncode, 0)


finish()
