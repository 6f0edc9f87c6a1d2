"""64 connections ask for lists, records, warm fetches, files and forks at once: no wrong answer, and the service is
as small afterwards as before.

    mixed.py BUILD [SECONDS]      (default 3; from 30 on idle threads must have ended, too)
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../service"))
import kit  # noqa: E402

SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
LONG = SECONDS >= 30
LOAD = os.path.join(kit.BUILD, "tests/service/load")
s = kit.Service(config={"generation_grace_seconds": 1, "gc_young_seconds": 1, "gc_dead_margin_seconds": 0,
                        "sweep_interval_seconds": 2, "staging_keep_seconds": 8, "log_level": "info"})
s.publish(kit.A, {"memory": os.urandom(4 << 20)})
for i in range(100):
    kit.equal(s.ask("POST", f"/v1/records/{kit.A}/fork", {"new_id": "ck_%016x" % (1000 + i)}).status, 201)
# Forks into templates: each is a new generation, and sweeps take the old ones.
REQUESTS = f"""list 200 GET /v1/records?limit=1000
show 200 GET /v1/records/{kit.A}
fetch 200 POST /v1/records/{kit.A}/fetch {{"lease_seconds": 1}}
health 200 GET /healthz
file 200 GET /v1/records/{kit.A}/files/memory
""" + "".join(f"""fork{i} 201,409 POST /v1/records/{kit.A}/fork {{"new_id": "tp_{i:032x}", "meta": {{"n": "@08"}}}}
meta 200 GET /v1/records/{kit.A}/meta
fetch 200 POST /v1/records/{kit.A}/fetch {{"lease_seconds": 1, "bind_connection": true}}
""" for i in range(1))


def status():
    """Descriptors, threads, and KiB of memory of its own: what is mapped from files comes and goes as the system likes."""
    with open(f"/proc/{s.process.pid}/status", encoding="utf-8") as f:
        lines = dict(line.split(":", 1) for line in f)
    return kit.descriptors(s.process.pid), int(lines["Threads"]), int(lines["RssAnon"].split()[0])


def load(seconds):
    """Its largest memory meanwhile."""
    largest = 0
    with subprocess.Popen([LOAD, s.socket, "64", f"{seconds}s"], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
        p.stdin.write(REQUESTS)
        p.stdin.close()
        while p.poll() is None:
            largest = max(largest, status()[2])
            time.sleep(0.1)
        text = p.stdout.read().strip()
    kit.equal(p.returncode, 0, text)
    print(text)
    return largest


def is_swept():
    exports = sum(name.startswith("export-") for _, _, names in os.walk(s.store + "/records") for name in names)
    return exports <= 110 and not s.get("/v1/gc").json()["running"]


def quiet():
    kit.eventually("leases end", lambda: s.metric("cairn_leases") == 0)
    kit.eventually("sweeps make an end of what was superseded", is_swept, 600)


@kit.test
def it_is_as_small_afterwards():
    load(max(SECONDS // 4, 1))
    quiet()
    # Until free memory was given back (every fourth part of staging_keep_seconds), and idle threads have ended.
    time.sleep(14 if LONG else 3)
    before = status()
    largest = load(SECONDS)
    quiet()
    most = (before[0] + 16, before[1] + 8 if LONG else 1 << 16, 1 << 40 if kit.SANITIZED else before[2] * 1.1 + 6144)
    try:
        kit.eventually("it is as small", lambda: all(is_ <= most_ for is_, most_ in zip(status(), most)))
    finally:
        print(f"descriptors, threads, KiB: {before} then {status()}, up to {largest} KiB meanwhile")
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


kit.finish()
