"""The command through the socket: the same output and exit code as on the store itself."""

import os
import subprocess

from kit import A, B, C, CAIRN, Service, equal, finish, folder, test

s = Service(start=False)
odd = os.fsdecode(b"odd \xff name")
s.publish(A, {"memory": os.urandom(300_000), "dir/" + odd: b"x", "empty": b"",
              "sparse": b"\0" * 3_000_000 + b"end" + b"\0" * 200_000})
s.publish(B, {"f": b"b"})
meta = os.path.join(s.root, "meta")
with open(meta, "wb") as f:
    f.write(b"no utf-8 \xff\x00 at all")
s.cairn("fork", A, C, "--meta", meta)
s.start()
ODD_IDS = [f"tp_{i:032x}" for i in range(1, 4)]
for id in ODD_IDS:
    s.cairn("fork", B, id)


def run(where, *args):
    return subprocess.run([CAIRN, "--config", s.config, *where, *args], env=s.environment(),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


DIRECT = ["--store", s.store, "--state", s.state]
THROUGH = ["--socket", s.socket]


def same(*args, code=0, stderr=True):
    a, b = run(DIRECT, *args), run(THROUGH, *args)
    equal(a.returncode, code, args)
    equal(b.returncode, code, (args, b.stderr))
    equal(b.stdout, a.stdout, args)
    if stderr:
        equal(b.stderr, a.stderr, args)


@test
def ls_and_show():
    for args in (["ls"], ["ls", "--json"], ["ls", "--prefix", "tp_"], ["ls", "--limit", "2"],
                 ["ls", "--after", A, "--limit", "1", "--json"], ["ls", "--prefix", "a&b=c%"],
                 ["show", A], ["show", A, "--json"], ["show", C], ["show", C, "--json"],
                 ["show", ODD_IDS[0], "--json"]):
        same(*args)


@test
def cat():
    for path in ("memory", "dir/" + odd, "empty", "sparse"):
        same("cat", A, path)
    out = os.path.join(s.root, "out")
    with open(out, "wb") as f:
        p = subprocess.run([CAIRN, *THROUGH, "cat", A, "sparse"], stdout=f, env=s.environment())
    equal((p.returncode, os.path.getsize(out)), (0, 3_200_003))
    assert os.stat(out).st_blocks * 512 < 1_000_000, "zeros stay holes"
    same("cat", A, "nope", code=3, stderr=False)


@test
def failures():
    same("show", "ck_00000000000000ff", code=3)
    same("fork", "ck_00000000000000ff", "ck_00000000000000fe", code=3)
    same("fork", A, B, code=4)
    same("hold", "ck_00000000000000ff", code=3)
    same("show", "ck_00000000000000ff", "--json", code=3)


@test
def an_unreadable_record():
    for name in os.listdir(f"{s.store}/records/{B}"):
        if name.startswith("export-"):
            with open(f"{s.store}/records/{B}/{name}", "r+b") as f:
                f.write(b"damaged!")
    same("ls")
    same("ls", "--json")
    same("show", B, code=6)


@test
def changes():
    a = run(THROUGH, "fork", A, "ck_0000000000000001", "--json")
    equal(a.returncode, 0, a.stderr)
    assert b'"id":"ck_0000000000000001"' in a.stdout
    equal(run(THROUGH, "hold", "ck_0000000000000001").stdout, b"held ck_0000000000000001\n")
    equal(run(THROUGH, "rm", "ck_0000000000000001").returncode, 4)
    equal(run(THROUGH, "release", "ck_0000000000000001").stdout, b"released ck_0000000000000001\n")
    equal(run(THROUGH, "rm", "ck_0000000000000001").stdout, b"deleted ck_0000000000000001\n")
    equal(run(THROUGH, "rm", "ck_0000000000000001").stdout, b"ck_0000000000000001 was not there\n")
    text = os.path.join(s.root, "text")
    with open(text, "w") as f:
        f.write('{"name": "na\u00efve \\"quoted\\""}\n')
    equal(run(THROUGH, "fork", A, "ck_0000000000000002", "--meta", text).returncode, 0)
    with open(f"{s.store}/records/ck_0000000000000002/meta.json", "rb") as f:
        equal(f.read(), open(text, "rb").read())
    equal(run(THROUGH, "fork", A, "ck_0000000000000003", "--meta", meta).returncode, 1, "no UTF-8")


@test
def usage():
    equal(run(THROUGH, "publish", A, "--from", "/tmp").returncode, 2, "not through a service")
    equal(run(THROUGH + DIRECT, "ls").returncode, 2, "both")
    a = run(["--socket", os.path.join(folder(), "none")], "ls")
    equal(a.returncode, 8, a.stderr)
    assert b"no service listens" in a.stderr
    equal(run(["--socket", "/" + "x" * 120], "ls").returncode, 1)


@test
def a_service_that_ends():
    s.end()
    equal(run(THROUGH, "ls").returncode, 8)


finish()
