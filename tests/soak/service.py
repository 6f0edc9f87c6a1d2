"""A service under mixed load of clients that repeat themselves, hang up and vanish, with sweeps a second apart.
First for memory, descriptors and threads, which must not grow; then with the service killed now and then. Whatever
a client was told is committed stays whole until it deletes it.

    service.py BUILD [SECONDS [KILLS [SEED]]]      (default 8 seconds of each kind, 3 kills)
"""

import contextlib
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../service"))
import kit  # noqa: E402

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 8
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
WORKERS = 6
OPEN_PACKS = 128  # OPEN_PACKS_MAX of store/pack_files.c
CONFIG = {"generation_grace_seconds": 1, "gc_visibility_seconds": 0, "gc_young_seconds": 1,
          "gc_dead_margin_seconds": 0, "sweep_interval_seconds": 1, "log_level": "info"}
print(f"seed {SEED}, {SECONDS} seconds, {KILLS} kills")

COMMON = random.Random(SEED).randbytes(400_000)
s = kit.Service(config=CONFIG)
stop = threading.Event()
faults, counts, lock = [], {}, threading.Lock()


class Vanished(Exception):
    """The service went away in the middle: nobody knows what became of the request."""


def ask(method, path, body=None):
    try:
        a = s.ask(method, path, body)
    except (OSError, AssertionError) as e:
        raise Vanished(str(e)) from e
    if a is None or a.status == 503:
        raise Vanished("no answer")
    return a


def insist(method, path, body=None):
    """The same request until there is an answer to it."""
    while True:
        try:
            return ask(method, path, body)
        except Vanished:
            time.sleep(0.05)


def expect(a, *statuses):
    assert a.status in statuses, f"{a.status}, not {statuses}: {a.body[:400]}"
    return a


def hang_up(rng, method, path, body):
    with contextlib.suppress(OSError), contextlib.closing(s.connect()) as c:
        c.send(kit.request(method, path, body))
        time.sleep(rng.random() * 0.01)


class Worker(threading.Thread):
    def __init__(self, number):
        super().__init__()
        self.number, self.rng = number, random.Random(SEED * 100 + number)
        self.mine = {}  # id -> what its memory holds
        self.n = 0

    def fresh_id(self):
        self.n += 1
        return "ck_%08x%08x" % (self.number, self.n)

    def publish(self):
        id, data = self.fresh_id(), COMMON + self.rng.randbytes(self.rng.randrange(1, 100_000))
        t = expect(insist("POST", f"/v1/records/{id}/stage"), 201).json()
        os.mkdir(t["path"] + "/export")
        with open(t["path"] + "/export/memory", "wb") as f:
            f.write(data)
        body = {"token": t["token"], "meta": {"id": id}, "digest": self.rng.random() < 0.2}
        if self.mine:
            body["parent"] = self.some()
        path = f"/v1/records/{id}/publish"
        if self.rng.random() < 0.2:
            hang_up(self.rng, "POST", path, body)
        a = expect(insist("POST", path, body), 200)
        kit.equal(a.json()["state"], "done")
        self.mine[id] = data

    def some(self):
        return self.rng.choice(list(self.mine))

    def fork(self):
        id, new = self.some(), self.fresh_id()
        body = {"new_id": new, "meta": {"of": id, "id": new}}
        if self.rng.random() < 0.1:
            hang_up(self.rng, "POST", f"/v1/records/{id}/fork", body)
        expect(insist("POST", f"/v1/records/{id}/fork", body), 201)
        self.mine[new] = self.mine[id]

    def fetch(self):
        id = self.some()
        body = {"lease_seconds": 2}
        with contextlib.suppress(Vanished, FileNotFoundError):
            f = expect(ask("POST", f"/v1/records/{id}/fetch", body), 200).json()
            with open(f["path"] + "/memory", "rb") as memory:
                got = memory.read()
            # Without its lease the files may go at any time.
            if ask("GET", f"/v1/leases/{f['lease']}").status == 200:
                assert got == self.mine[id], f"{id}: a fetched file differs"
            if self.rng.random() < 0.8:
                expect(ask("DELETE", f"/v1/leases/{f['lease']}"), 204)
        if self.rng.random() < 0.3:
            hang_up(self.rng, "POST", f"/v1/records/{id}/fetch", {"bind_connection": True})

    def read(self):
        id = self.some()
        a = expect(insist("GET", f"/v1/records/{id}/files/memory"), 200)
        assert a.body == self.mine[id], f"{id}: a file differs"
        expect(insist("GET", f"/v1/records/{id}"), 200)

    def delete(self):
        id = self.some()
        expect(insist("DELETE", f"/v1/records/{id}"), 204)
        del self.mine[id]
        expect(insist("GET", f"/v1/records/{id}"), 404)

    def about(self):
        page = expect(insist("GET", f"/v1/records?prefix=ck_{self.number:08x}&limit=1000"), 200).json()
        got = {r["id"] for r in page["records"] if "error" not in r}
        assert set(self.mine) <= got, f"not listed: {set(self.mine) - got}"
        insist("GET", "/metrics")
        if self.rng.random() < 0.3:
            insist("POST", "/v1/gc", {"dry_run": self.rng.random() < 0.3})
        if self.rng.random() < 0.3:
            insist("POST", f"/v1/records/{self.fresh_id()}/stage")  # and never used

    def run(self):
        ops = [self.publish] * 2 + [self.fork] * 3 + [self.fetch] * 3 + [self.read] * 2 + [self.about]
        while not stop.is_set():
            op = self.rng.choice(ops) if self.mine else self.publish
            if len(self.mine) > 12:
                op = self.delete
            try:
                op()
            except Exception as e:
                faults.append(f"{op.__name__}: {type(e).__name__}: {e}")
                return
            with lock:
                counts[op.__name__] = counts.get(op.__name__, 0) + 1


def run_workers(workers, seconds, meanwhile=None):
    stop.clear()
    threads = []
    for w in workers:
        t = Worker(w.number)
        t.mine, t.n, t.rng = w.mine, w.n, w.rng
        threads.append(t)
        t.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not faults:
        if meanwhile:
            meanwhile()
        time.sleep(0.05)
    stop.set()
    for t in threads:
        t.join(kit.PATIENCE)
        assert not t.is_alive(), "a client waits for ever"
    assert not faults, faults
    return threads


def used():
    """Descriptors, threads and resident KiB, when nothing runs."""
    kit.eventually("all requests end", lambda: s.metric("cairn_http_requests_running") <= 1)
    kit.eventually("all leases end", lambda: s.metric("cairn_leases") == 0)
    pid = s.process.pid
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        status = dict(line.split(":", 1) for line in f)
    return kit.descriptors(pid), int(status["Threads"]), int(status["VmRSS"].split()[0])


def all_is_there(workers):
    for w in workers:
        for id, data in w.mine.items():
            a = expect(s.get(f"/v1/records/{id}/files/memory"), 200)
            assert a.body == data, f"{id} differs"
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


workers = [Worker(i) for i in range(1, WORKERS + 1)]


@kit.test
def nothing_grows():
    global workers
    part = SECONDS / 2
    workers = run_workers(workers, part / 2)
    first = used()
    workers = run_workers(workers, part)
    last = used()
    print(f"descriptors, threads, KiB: {first} then {last}")
    # The store keeps up to OPEN_PACKS packs open, which a short run may not have filled at first.
    assert last[0] <= max(first[0], OPEN_PACKS + 40) + 16, "descriptors"
    assert last[1] <= first[1] + 16, "threads"
    if not kit.SANITIZED:
        assert last[2] <= first[2] * 1.25 + 8192, "memory"
    all_is_there(workers)


@kit.test
def kills_lose_nothing():
    global workers
    pause = max(SECONDS / 2 / max(KILLS, 1), 0.3)
    rng = random.Random(SEED)
    state = {"next": time.monotonic() + pause, "left": KILLS}

    def kill():
        if not state["left"] or time.monotonic() < state["next"]:
            return
        state["left"] -= 1
        s.kill()
        time.sleep(rng.random() * 0.05)
        s.start()
        state["next"] = time.monotonic() + pause * (0.5 + rng.random())
    end = time.monotonic() + SECONDS / 2
    while (time.monotonic() < end or state["left"]) and not faults:
        workers = run_workers(workers, 2 * pause + 0.1, kill)
    kit.equal(state["left"], 0, "kills that were not made")
    all_is_there(workers)


print(" ".join(f"{k}={v}" for k, v in sorted(counts.items())))
kit.finish()
