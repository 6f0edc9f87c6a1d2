"""The example of a client, as it is installed."""

import os
import shutil
import subprocess

import kit

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../dist/examples/host-daemon.sh")
s = kit.Service()
w = kit.folder()


def run(*args, tries=None):
    env = dict(os.environ, CAIRN_SOCKET=s.socket, **({"CAIRN_TRIES": tries} if tries else {}))
    return subprocess.run(["sh", SCRIPT, *args], env=env, text=True, check=False, timeout=kit.PATIENCE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def good(*args):
    done = run(*args)
    kit.equal((done.returncode, done.stderr), (0, ""), args)
    return done.stdout.strip()


def same(a, b):
    kit.equal(subprocess.run(["diff", "-r", a, b], check=False).returncode, 0, f"{a} and {b}")


vm = os.path.join(w, "vm")
os.makedirs(vm + "/disks")
for name, data in [("memory-ranges", os.urandom(500_000)), ("disks/cow.raw", b"disk" * 1000), ("a b\"c", b"")]:
    with open(os.path.join(vm, name), "wb") as f:
        f.write(data)


@kit.test
def a_folder_is_checkpointed_branched_and_restored():
    one = good("checkpoint", vm, 'web "1"')
    shutil.copytree(vm, w + "/before")
    with open(vm + "/memory-ranges", "ab") as f:
        f.write(b"more")
    two = good("checkpoint", vm, "web1", one)
    branch = good("branch", one, "experiment")
    kit.equal(s.get(f"/v1/records/{two}").json()["parent"]["id"], one)
    kit.equal(s.get(f"/v1/records/{branch}").json()["meta_json"]["name"], "experiment")
    kit.equal(s.get(f"/v1/records/{one}").json()["meta_json"]["name"], 'web "1"')
    for id, like in [(one, w + "/before"), (two, vm), (branch, w + "/before")]:
        good("restore", id, f"{w}/{id}")
        same(f"{w}/{id}", like)
        with open(f"{w}/{id}/memory-ranges", "ab") as f:
            f.write(b"a machine runs here")
    kit.equal(s.metric("cairn_leases"), 0)
    kit.equal({line.split("\t")[0] for line in good("list").splitlines()}, {one, two, branch})
    good("delete", one)
    good("restore", branch, w + "/again")
    same(w + "/again", w + "/before")
    kit.equal(os.listdir(s.state + "/staging"), [])


@kit.test
def failures_are_told():
    done = run("restore", "ck_00000000000000ff", w + "/none")
    kit.equal((done.returncode, os.path.exists(w + "/none")), (1, False))
    assert "not_found" in done.stderr, done.stderr
    kit.equal(run("checkpoint", w + "/nowhere").returncode, 1)
    kit.equal(run("restore", "ck_00000000000000ff", vm).returncode, 1)
    kit.equal(run().returncode, 2)


@kit.test
def a_service_that_is_restarted_is_waited_for():
    s.end()
    done = run("list", tries="1")
    kit.equal(done.returncode, 1)
    assert "connect" in done.stderr, done.stderr
    p = subprocess.Popen(["sh", SCRIPT, "checkpoint", vm], env=dict(os.environ, CAIRN_SOCKET=s.socket),
                         text=True, stdout=subprocess.PIPE)
    s.start()
    id = p.communicate(timeout=kit.PATIENCE)[0].strip()
    kit.equal(p.returncode, 0)
    kit.equal(s.get(f"/v1/records/{id}").status, 200)


kit.finish()
