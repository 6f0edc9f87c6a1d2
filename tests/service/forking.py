"""Forks, a thousand at once; hold and release."""

import os
import random
import subprocess
import threading

import kit

MANY = 1000
LOAD = os.path.join(kit.BUILD, "tests/service/load")
rng = random.Random(4)
s = kit.Service()
s.publish(kit.A, {"memory": rng.randbytes(3 << 20), "disk": bytes(1 << 20)})


def packs():
    return {os.path.join(d, n): os.stat(os.path.join(d, n)).st_size
            for d, _, names in os.walk(os.path.join(s.store, "packs")) for n in names}


def nth(i):
    return "ck_000f0000%08x" % i


def fork(id, new_id, **more):
    return s.ask("POST", f"/v1/records/{id}/fork", dict({"new_id": new_id}, **more))


def refused(a, status, text):
    kit.equal(a.status, status, a.body)
    assert text in a.error()["message"], a.body


@kit.test
def a_fork_is_a_record_of_its_own():
    a = fork(kit.A, kit.B, meta={"branch": 1})
    kit.equal(a.status, 201, a.body)
    kit.equal(a.json()["parent"], kit.A)
    show = s.get(f"/v1/records/{kit.B}").json()
    kit.equal((show["gen"], show["meta"], show["parent"]["id"]), (a.json()["gen"], '{"branch":1}', kit.A))
    memory = s.get(f"/v1/records/{kit.A}/files/memory").body
    kit.equal(s.get(f"/v1/records/{kit.B}/files/memory").body, memory)
    # The same again is the same fork; another meta is another record, and the id is taken.
    kit.equal(fork(kit.A, kit.B, meta={"branch": 1}).json(), a.json())
    refused(fork(kit.A, kit.B, meta={"branch": 2}), 409, kit.B)
    # A fork of a fork, and one that outlives what it came from.
    kit.equal(fork(kit.B, kit.C, meta="x").status, 201)
    for id in (kit.A, kit.B):
        kit.equal(s.ask("DELETE", f"/v1/records/{id}").status, 204)
    kit.equal(s.get(f"/v1/records/{kit.C}/files/memory").body, memory)
    refused(fork(kit.A, kit.B), 404, kit.A)
    kit.equal(fork(kit.C, kit.A).status, 201)


@kit.test
def a_thousand_at_once_all_succeed_and_store_only_manifests():
    before, fds = packs(), kit.descriptors(s.process.pid)
    ask = f'fork 201 POST /v1/records/{kit.A}/fork {{"new_id": "ck_000f0000@08", "meta": {{"n": "@08"}}}}\n'
    done = subprocess.run([LOAD, s.socket, str(MANY), str(MANY)], input=ask, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    print(done.stdout.strip())
    kit.equal(done.returncode, 0, done.stdout)
    kit.equal(packs(), before)
    found, after = [], ""
    while after is not None:
        page = s.get(f"/v1/records?prefix=ck_000f0000&limit=300&after={after}").json()
        found += [r["id"] for r in page["records"]]
        after = page["next"]
    kit.equal(found, [nth(i) for i in range(MANY)])
    for n in (0, MANY // 2, MANY - 1):
        kit.equal(s.get(f"/v1/records/{nth(n)}").json()["meta"], '{"n":"%08x"}' % n)
    kit.eventually("descriptors are given back", lambda: kit.descriptors(s.process.pid) <= fds + 4)
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


@kit.test
def a_fork_of_what_is_being_deleted_is_not_found_or_whole():
    """Whichever comes first: never an error of another kind, never half a record."""
    for i in range(40):
        source, new = nth(i), nth(MANY + i)
        answers = {}

        def ask(name, *args):
            answers[name] = s.ask(*args)
        threads = [threading.Thread(target=ask, args=("delete", "DELETE", f"/v1/records/{source}")),
                   threading.Thread(target=ask, args=("fork", "POST", f"/v1/records/{source}/fork",
                                                      {"new_id": new}))]
        for t in threads if i % 2 else reversed(threads):
            t.start()
        for t in threads:
            t.join()
        kit.equal(answers["delete"].status, 204, answers["delete"].body)
        assert answers["fork"].status in (201, 404), answers["fork"].body
        kit.equal(s.get(f"/v1/records/{new}").status, 200 if answers["fork"].status == 201 else 404)
        refused(fork(source, nth(2 * MANY)), 404, source)
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


@kit.test
def one_id_is_given_to_one_of_many():
    """Forks with metas of their own to one new id: one wins, the others are told that it is taken."""
    answers = []
    new = "ck_00000000000f1f1f"
    threads = [threading.Thread(target=lambda n=n: answers.append(fork(kit.C, new, meta={"n": n})))
               for n in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    kit.equal(sorted(a.status for a in answers), [201] + [409] * 11)
    won = [a for a in answers if a.status == 201][0].json()
    kit.equal(s.get(f"/v1/records/{new}").json()["gen"], won["gen"])


@kit.test
def a_held_record_stays():
    kit.equal(s.ask("POST", f"/v1/records/{kit.C}/hold").json(), {"id": kit.C, "held": True})
    kit.equal(s.ask("POST", f"/v1/records/{kit.C}/hold", {}).status, 200)
    refused(s.ask("DELETE", f"/v1/records/{kit.C}"), 409, "held")
    entries = s.get(f"/v1/records?prefix={kit.C}").json()["records"]
    kit.equal([e.get("held") for e in entries], [True])
    kit.equal(s.ask("POST", f"/v1/records/{kit.C}/release").json(), {"id": kit.C, "held": False})
    kit.equal(s.ask("POST", f"/v1/records/{kit.C}/release").status, 200)
    kit.equal(s.ask("DELETE", f"/v1/records/{kit.C}").status, 204)
    refused(s.ask("POST", f"/v1/records/{kit.C}/hold"), 404, kit.C)


@kit.test
def wrong_requests_are_refused_by_name():
    source = nth(MANY - 1)
    path = f"/v1/records/{source}/fork"
    bad = [({}, "new_id"), ({"new_id": None}, "new_id"), ({"new_id": "ck_x"}, "new_id"),
           ({"new_id": 5}, "new_id"), ({"new_id": kit.B, "newid": kit.B}, "newid"),
           ({"new_id": kit.B, "meta": 1}, "meta"), ({"new_id": kit.B, "meta": "x" * ((1 << 20) + 1)}, "meta"),
           ({"new_id": kit.B, "timeout_seconds": []}, "timeout_seconds")]
    for body, text in bad:
        refused(s.ask("POST", path, body), 400, text)
    refused(s.ask("POST", path), 400, "new_id")
    refused(s.ask("POST", f"/v1/records/{source}/hold", {"x": 1}), 400, "x")
    kit.equal(fork(source, kit.B, timeout_seconds=0).status, 504)
    kit.equal(s.get(f"/v1/records/{kit.B}").status, 404)
    kit.equal(fork(source, kit.B, meta="x" * (1 << 20), timeout_seconds=1e300).status, 201)


kit.finish()
