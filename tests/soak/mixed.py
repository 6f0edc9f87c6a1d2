"""64 connections ask for lists, records, warm fetches, files and forks at once: no wrong answer, and the service is
as small afterwards as before.

    mixed.py BUILD [SECONDS]      (default 3; from 30 on it is waited until idle threads have ended)
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../service"))
import kit  # noqa: E402

SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
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


def load(seconds):
    done = subprocess.run([LOAD, s.socket, "64", f"{seconds}s"], input=REQUESTS, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    kit.equal(done.returncode, 0, done.stdout)
    return done.stdout


def is_swept():
    exports = sum(name.startswith("export-") for _, _, names in os.walk(s.store + "/records") for name in names)
    return exports <= 110 and not s.get("/v1/gc").json()["running"]


def used():
    kit.eventually("leases end", lambda: s.metric("cairn_leases") == 0)
    kit.eventually("sweeps make an end of what was superseded", is_swept, 600)
    # Until free memory was given back, which is done every fourth part of staging_keep_seconds.
    time.sleep(12 if SECONDS >= 30 else 3)
    with open(f"/proc/{s.process.pid}/status", encoding="utf-8") as f:
        status = dict(line.split(":", 1) for line in f)
    return kit.descriptors(s.process.pid), int(status["VmRSS"].split()[0])


@kit.test
def it_is_as_small_afterwards():
    load(max(SECONDS // 4, 1))
    before = used()
    print(load(SECONDS).strip())
    after = used()
    print(f"descriptors, KiB: {before} then {after}")
    assert after[0] <= before[0] + 16, "descriptors"
    if not kit.SANITIZED:
        assert after[1] <= before[1] * (1.1 if SECONDS >= 30 else 1.25) + 4096, "memory"
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


kit.finish()
