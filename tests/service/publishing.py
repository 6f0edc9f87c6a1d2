"""Stage and publish: repeated, deserted, interrupted, by others, and wrongly asked for."""

import contextlib
import hashlib
import json
import os
import random
import subprocess
import threading

import kit

T = "tp_000000000000000000000000000000aa"
OTHER = 12345


def stage(s, id):
    a = s.ask("POST", f"/v1/records/{id}/stage", {})
    kit.equal(a.status, 201, a.body)
    return a.json()["token"], a.json()["path"]


def fill(path, files, meta=None):
    for name, data in files.items():
        full = os.path.join(path, "export", name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(data)
    if meta is not None:
        with open(os.path.join(path, "meta.json"), "wb") as f:
            f.write(meta)


def staged(s, id, files, meta=None):
    token, path = stage(s, id)
    fill(path, files, meta)
    return token, path


def publish(s, id, **body):
    return s.ask("POST", f"/v1/records/{id}/publish", body)


def look(s, token):
    a = s.get(f"/v1/publishes/{token}")
    kit.equal(a.status, 200, a.body)
    return a.json()


def ended(s, token):
    """Its ticket, once it is done or failed."""
    def over():
        t = look(s, token)
        return t if t["state"] in ("done", "failed") else None
    return kit.eventually("the publish ends", over)


def gone(path):
    """The answer does not wait for it."""
    kit.eventually("the staging goes", lambda: not os.path.exists(path))


def gen(meta):
    return hashlib.sha256(meta).hexdigest()[:16]


def content(s, id, name):
    a = s.get(f"/v1/records/{id}/files/{name}")
    kit.equal(a.status, 200, a.body)
    return a.body


def refused(a, status, text):
    kit.equal(a.status, status, a.body)
    message = a.error()["message"]
    assert text in message, f"{text!r} is not in {message!r}"


s = kit.Service(config={"listen_mode": "0666"})


@kit.test
def meta_comes_from_the_body_or_the_staging_or_is_made():
    token, path = staged(s, kit.A, {"memory": b"a"}, b" {\"x\" : 1}\n\xff")
    a = publish(s, kit.A, token=token)
    kit.equal((a.status, a.json()["gen"]), (200, gen(b" {\"x\" : 1}\n\xff")))
    gone(path)
    kit.equal(s.get(f"/v1/records/{kit.A}/meta").body, b" {\"x\" : 1}\n\xff")
    token, _ = staged(s, T, {"memory": b"a"}, b"not this one")
    a = publish(s, T, token=token, meta={"z": [1, 2.5, None], "a": "\u00e9"})
    kit.equal(s.get(f"/v1/records/{T}/meta").body, b'{"z":[1,2.5,null],"a":"\\u00e9"}', "as json.dumps writes it")
    token, _ = staged(s, T, {"memory": b"b"}, b"not this one")
    a = publish(s, T, token=token, meta="any \u00e9 text ")
    kit.equal(s.get(f"/v1/records/{T}/meta").body, "any \u00e9 text ".encode())
    token, _ = staged(s, T, {"memory": b"c"})
    publish(s, T, token=token)
    kit.equal(s.get(f"/v1/records/{T}/meta").json()["id"], T)
    token, _ = staged(s, T, {"memory": b"d"})
    kit.equal(publish(s, T, token=token, meta="").status, 200)
    kit.equal(s.get(f"/v1/records/{T}/meta").body, b"")


@kit.test
def an_object_is_stored_as_it_was_sent():
    id, other = "ck_0000000000000ae1", "ck_0000000000000ae2"
    meta = b'{"ns":1764460800123456789,"u":18446744073709551615,"f":0.1,"g":1.10,"e":1e400,"t":"a\\u00e9 b"}'
    token, _ = staged(s, id, {"memory": b"x"})
    spread = meta.replace(b",", b" ,\n").replace(b":", b" : ")
    headers = ["Content-Type: application/json"]
    a = s.ask("POST", f"/v1/records/{id}/publish", b'{"meta": %s, "token": "%s"}' % (spread, token.encode()), headers)
    kit.equal((a.status, a.json()["gen"]), (200, gen(meta)))
    kit.equal(s.get(f"/v1/records/{id}/meta").body, meta)
    a = s.ask("POST", f"/v1/records/{id}/fork", b'{"new_id": "%s", "meta": %s}' % (other.encode(), spread), headers)
    kit.equal((a.status, a.json()["gen"]), (201, gen(meta)))
    escaped = b'{"m\\u0065ta": {"n": 1}, "new_id": "%s"}' % other.encode()
    refused(s.ask("POST", f"/v1/records/{id}/fork", escaped, headers), 400, "escapes")


@kit.test
def the_same_request_again_is_told_the_same():
    token, path = staged(s, kit.B, {"memory": b"b" * 100000, "disks/a": b""}, b"{}")
    first = publish(s, kit.B, token=token, digest=True, keep=True)
    kit.equal(first.status, 200)
    for _ in range(3):
        again = publish(s, kit.B, token=token, digest=True, keep=True)
        kit.equal((again.status, again.json()), (200, first.json()))
    kit.equal(look(s, token), first.json())
    assert os.path.exists(path)
    refused(publish(s, kit.B, token=token, keep=True), 409, "another request")
    refused(publish(s, kit.A, token=token), 400, kit.B)
    other, _ = staged(s, kit.B, {"memory": b"c"}, b"{\"other\":1}")
    refused(publish(s, kit.B, token=other), 409, "published")
    kit.equal(look(s, other)["state"], "failed")
    kit.equal(s.ask("DELETE", f"/v1/publishes/{token}").json(), {"cancelling": False})
    kit.equal(s.get(f"/v1/publishes/{token}").status, 404)
    gone(path)
    kit.equal(s.get(f"/v1/records/{kit.B}").status, 200)


@kit.test
def many_at_once_with_one_token_share_one_publish():
    token, _ = staged(s, kit.C, {"memory": random.Random(1).randbytes(8 << 20)})
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(publish(s, kit.C, token=token)))
               for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    kit.equal([a.status for a in answers], [200] * 16)
    kit.equal(len({a.body for a in answers}), 1)


@kit.test
def who_vanishes_can_ask_how_it_ended():
    data = random.Random(2).randbytes(24 << 20)
    id = "ck_00000000000000d1"
    token, _ = staged(s, id, {"memory": data}, b"{}")
    body = {"token": token, "digest": True}
    c = s.connect()
    c.send(kit.request("POST", f"/v1/records/{id}/publish", body))
    kit.eventually("it begins", lambda: look(s, token)["state"] != "staged")
    c.close()
    t = ended(s, token)
    kit.equal((t["state"], t["gen"]), ("done", gen(b"{}")))
    assert content(s, id, "memory") == data
    kit.equal(publish(s, id, **body).json(), t)
    # Without waiting.
    id = "ck_00000000000000d2"
    token, _ = staged(s, id, {"memory": data[::-1]}, b"{}")
    a = publish(s, id, token=token, wait=False)
    kit.equal(a.status, 202)
    assert a.json()["state"] in ("queued", "running"), a.body
    kit.equal(ended(s, token)["state"], "done")
    kit.equal(publish(s, id, token=token, wait=False).status, 200)


@kit.test
def a_failed_one_says_why_and_can_be_tried_again():
    id = "ck_00000000000000e1"
    token, path = staged(s, id, {"memory": b"12345"}, b'{"cairn_expect": {"memory": 6}}')
    refused(publish(s, id, token=token), 400, "memory")
    t = look(s, token)
    kit.equal((t["state"], t["error"]["class"]), ("failed", "invalid"))
    kit.equal(s.get(f"/v1/records/{id}").status, 404)
    fill(path, {"memory": b"123456"})
    kit.equal(publish(s, id, token=token).status, 200)
    kit.equal(content(s, id, "memory"), b"123456")
    # Its own bound.
    id = "ck_00000000000000e2"
    token, path = staged(s, id, {"memory": b"x"}, b"{}")
    a = publish(s, id, token=token, timeout_seconds=0)
    kit.equal((a.status, a.error()["class"]), (504, "timeout"))
    kit.equal(look(s, token)["error"]["class"], "timeout")
    kit.equal(publish(s, id, token=token, timeout_seconds=1e300).status, 200)


@kit.test
def a_folder_of_ones_own_is_only_read():
    mine = os.path.join(s.root, "mine")
    fill(mine, {"memory": b"mine"}, b"{}")
    id = "ck_00000000000000f1"
    a = publish(s, id, staging=mine)
    kit.equal(a.status, 200, a.body)
    assert os.path.exists(mine + "/export/memory")
    token = "0123456789abcdef" * 2
    id = "ck_00000000000000f2"
    first = publish(s, id, staging=mine, token=token)
    kit.equal((first.status, first.json()["token"]), (200, token))
    kit.equal(publish(s, id, staging=mine, token=token).json(), first.json())
    os.symlink(mine, mine + ".link")
    for bad, status, text in [("mine", 400, "absolute"), (mine + ".link", 400, "no folder"),
                              (mine + "/export/memory", 400, "no folder"), (mine + "/export", 404, "export/"),
                              ("/nowhere", 404, "/nowhere"), ("/" + "x" * 5000, 400, "absolute")]:
        refused(publish(s, "ck_00000000000000f3", staging=bad), status, text)
    refused(publish(s, "ck_00000000000000f3"), 400, "neither")


@kit.test
def what_is_no_export_is_refused_with_its_path():
    id = "ck_00000000000000f4"
    token, path = stage(s, id)
    refused(publish(s, id, token=token), 404, "export/")
    fill(path, {"dir/good": b"x"})
    os.mkfifo(path + "/export/dir/fifo")
    refused(publish(s, id, token=token), 400, "dir/fifo")
    os.unlink(path + "/export/dir/fifo")
    os.symlink("/etc/passwd", path + "/export/dir/link")
    refused(publish(s, id, token=token), 400, "dir/link")
    os.unlink(path + "/export/dir/link")
    os.symlink("/etc/hostname", path + "/meta.json")
    refused(publish(s, id, token=token), 400, "meta.json")
    os.unlink(path + "/meta.json")
    os.mkfifo(path + "/meta.json")
    refused(publish(s, id, token=token), 400, "meta.json")
    os.unlink(path + "/meta.json")
    fill(path, {}, b"x" * ((1 << 20) + 1))
    refused(publish(s, id, token=token), 400, "meta.json")
    fill(path, {}, b"x" * (1 << 20))
    kit.equal(publish(s, id, token=token).status, 200)


@kit.test
def wrong_requests_are_refused_by_name():
    id = "ck_00000000000000f5"
    token, _ = staged(s, id, {"memory": b"x"}, b"{}")
    bad = [
        ({"tokn": token}, "tokn"),
        ({"token": 7}, "token"),
        ({"token": token.upper()}, "hex"),
        ({"token": "../" + token}, "hex"),
        ({"token": token[:-1]}, "hex"),
        ({"token": token, "digest": "yes"}, "digest"),
        ({"token": token, "keep": 1}, "keep"),
        ({"token": token, "wait": "no"}, "wait"),
        ({"token": token, "parent": "ck_1"}, "parent"),
        ({"token": token, "meta": 5}, "meta"),
        ({"token": token, "meta": ["x"]}, "meta"),
        ({"token": token, "meta": "x" * ((1 << 20) + 1)}, "meta"),
        ({"token": token, "meta": {"x": "y" * (1 << 20)}}, "meta"),
        ({"token": token, "timeout_seconds": "1"}, "timeout_seconds"),
        ({"token": token, "staging": "/tmp"}, "staging"),
        ('{"token": "%s", "token": "%s"}' % (token, token), "duplicate"),
        ('{"token": "%s", "timeout_seconds": NaN}' % token, "JSON"),
    ]
    for body, text in bad:
        headers = ["Content-Type: application/json"] if isinstance(body, str) else []
        refused(s.ask("POST", f"/v1/records/{id}/publish", body, headers), 400, text)
    refused(publish(s, "ck_1", token=token), 400, "ck_1")
    refused(publish(s, id, token="0" * 32), 404, "token")
    refused(publish(s, id, token=token, parent=kit.A[:-1] + "0"), 404, "parent")
    refused(s.ask("POST", f"/v1/records/{id}/stage", {"x": 1}), 400, "x")
    for path in ("x", "0" * 32, "%2e%2e%2f" * 4, token + "0"):
        a = s.get(f"/v1/publishes/{path}")
        assert a.status in (400, 404), a.status
        assert s.ask("DELETE", f"/v1/publishes/{path}").status in (200, 400)
    # None of all this did any harm.
    kit.equal(publish(s, id, token=token, timeout_seconds=-5).status, 200)


def as_other(method, path, body=None):
    """Status and answer of a request by another user."""
    args = ["curl", "-s", "-w", "\n%{http_code}", "--unix-socket", s.socket, "-X", method,
            f"http://x{path}"]
    if body is not None:
        args += ["-H", "Content-Type: application/json", "-d", body]
    done = subprocess.run(args, user=OTHER, group=OTHER, extra_groups=[], check=True, text=True,
                          stdout=subprocess.PIPE, cwd="/")
    answer, status = done.stdout.rsplit("\n", 1)
    return int(status), answer


def write_as_other(path, data):
    subprocess.run(["sh", "-c", 'printf %s "$2" >"$1"', "sh", path, data], user=OTHER, group=OTHER,
                   extra_groups=[], check=True, cwd="/")


def other_users():
    id = "ck_0000000000000a01"
    # The state folder lets through whom the socket lets in; what is above it is the administrator's.
    kit.equal(os.stat(s.state).st_mode & 0o777, 0o711)
    for name in os.listdir(s.state):
        mode = os.stat(os.path.join(s.state, name)).st_mode & 0o777
        assert mode & 0o066 == 0 or name == "cairn.sock", f"{name}: {mode:o}"
    os.chmod(s.root, 0o711)
    status, answer = as_other("POST", f"/v1/records/{id}/stage")
    kit.equal(status, 201, answer)
    theirs = json.loads(answer)
    st = os.stat(theirs["path"])
    kit.equal((st.st_uid, st.st_gid, st.st_mode & 0o7777), (OTHER, OTHER, 0o700))
    token = theirs["token"]
    body = json.dumps({"token": token})
    # Ours is not theirs.
    ours, path = staged(s, id, {"memory": b"ours"}, b"{}")
    status, answer = as_other("POST", f"/v1/records/{id}/publish", json.dumps({"token": ours}))
    kit.equal(status, 404, answer)
    kit.equal(as_other("GET", f"/v1/publishes/{ours}")[0], 404)
    kit.equal(as_other("DELETE", f"/v1/publishes/{ours}")[0], 200)
    assert os.path.exists(path)
    for folder in (s.root, path, "/etc", "/proc/1"):
        status, answer = as_other("POST", f"/v1/records/{id}/publish", json.dumps({"staging": folder}))
        kit.equal(status, 502, answer)
        assert "belongs to user" in answer, answer
    # In theirs, a file that is not theirs.
    subprocess.run(["mkdir", theirs["path"] + "/export"], user=OTHER, group=OTHER, extra_groups=[],
                   check=True, cwd="/")
    write_as_other(theirs["path"] + "/export/memory", "theirs")
    secret = theirs["path"] + "/export/secret"
    with open(secret, "w", encoding="utf-8") as f:
        f.write("root's")
    os.chmod(secret, 0o600)
    status, answer = as_other("POST", f"/v1/records/{id}/publish", body)
    kit.equal(status, 502, answer)
    assert "secret" in answer, answer
    os.unlink(secret)
    with open(theirs["path"] + "/meta.json", "w", encoding="utf-8") as f:
        f.write("{}")
    status, answer = as_other("POST", f"/v1/records/{id}/publish", body)
    kit.equal(status, 502, answer)
    os.unlink(theirs["path"] + "/meta.json")
    status, answer = as_other("POST", f"/v1/records/{id}/publish", body)
    kit.equal(status, 200, answer)
    kit.equal(content(s, id, "memory"), b"theirs")
    gone(theirs["path"])


skipped = 0
if os.geteuid() == 0:
    kit.test(other_users)
else:
    skipped += 1


def a_staging_may_lie_on_the_mount_of_the_same_service():
    root = kit.folder()
    mount = os.path.join(root, "mnt")
    os.mkdir(mount)
    m = kit.Service(root=root, args=["--mount", mount])
    kit.eventually("it is mounted", lambda: os.path.ismount(mount))
    data = random.Random(12).randbytes(3 << 20)
    mine = os.path.join(mount, f"{kit.A}-1.tmp")
    fill(mine, {"memory": data}, b"{}")
    a = publish(m, kit.A, staging=mine)
    kit.equal((a.status, a.json()["gen"]), (200, gen(b"{}")), a.body)
    assert content(m, kit.A, "memory") == data
    with open(f"{mount}/{kit.A}/export-{gen(b'{}')}/memory", "rb") as f:
        assert f.read() == data
    m.end()
    kit.equal(os.path.ismount(mount), False)


if os.geteuid() == 0 and os.path.exists("/dev/fuse"):
    kit.test(a_staging_may_lie_on_the_mount_of_the_same_service)
else:
    skipped += 1


@kit.test
def a_kill_in_the_middle_leaves_an_answer_and_a_free_id():
    rng = random.Random(5)
    outcomes = set()
    for i in range(8):
        id = "ck_%016x" % (0xdead0000 + i)
        data = rng.randbytes(6 << 20)
        meta = b'{"n": %d}' % i
        token, path = staged(s, id, {"memory": data}, meta)
        with contextlib.closing(s.connect()) as c:
            c.send(kit.request("POST", f"/v1/records/{id}/publish", {"token": token, "digest": True}))
            kit.eventually("it begins", lambda: look(s, token)["state"] != "staged")
            kit.eventually("time passes", lambda: rng.random() < 0.2 + i / 10)
            s.kill()
        s.start()
        t = look(s, token)
        outcomes.add(t["state"])
        kit.equal(t["gen"], gen(meta))
        if t["state"] == "failed":
            kit.equal(t["error"]["class"], "transient")
            assert "interrupted" in t["error"]["message"], t
            kit.equal(s.get(f"/v1/records/{id}").status, 404)
            assert os.path.exists(path)
        else:
            kit.equal(t["state"], "done")
        a = publish(s, id, token=token, digest=True)
        kit.equal((a.status, a.json()["state"], a.json()["gen"]), (200, "done", gen(meta)))
        assert content(s, id, "memory") == data
        gone(path)
    print(f"killed publishes were found {sorted(outcomes)}")
    kit.equal(s.cairn("verify", "--quiet").returncode, 0)


@kit.test
def ending_the_service_waits_for_a_publish_or_cancels_it():
    id = "ck_000000000000dead"
    token, path = staged(s, id, {"memory": random.Random(9).randbytes(16 << 20)}, b"{}")
    kit.equal(publish(s, id, token=token, wait=False).status, 202)
    s.end()
    s.start()
    kit.equal(look(s, token)["state"], "done")
    s.end()
    s.configure({"drain_seconds": 0})
    s.start()
    id = "ck_000000000000beef"
    token, path = staged(s, id, {"memory": random.Random(10).randbytes(48 << 20)}, b"{}")
    kit.equal(publish(s, id, token=token, wait=False).status, 202)
    s.end()
    s.start()
    t = look(s, token)
    assert t["state"] == "done" or t["error"]["class"] == "cancelled", t
    kit.equal(publish(s, id, token=token).status, 200)


kit.finish(skipped)
