"""How the service begins, ends, and lives on: locks, sockets, signals, reloads, notifications."""

import contextlib
import grp
import os
import signal
import socket
import stat
import subprocess
import threading
import time

from kit import A, Connection, Service, descriptors, equal, eventually, finish, folder, request, test


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def refused(s, *words):
    """It does not start, and says why."""
    before = len(s.log())
    p = s.spawn()
    code = p.wait(60)
    said = s.log()[before:]
    assert code not in (0, -6, -11), code
    for w in words:
        assert w in said, f"no {w!r} in {said!r}"
    return code


@test
def one_instance():
    s = Service()
    equal(refused(s, "another instance", str(s.process.pid)), 4)
    other = Service(socket_path=s.socket, start=False)
    equal(refused(other, "another instance"), 4, "another state folder, the same socket")
    other = Service(store=s.store, init=False)
    equal(other.get("/healthz").status, 200, "two services of one store, with a state folder each")
    other.end()
    equal(s.get("/healthz").status, 200)
    s.end()
    assert not os.path.exists(s.socket)


@test
def stale_and_foreign_sockets():
    s = Service()
    s.kill()
    assert os.path.exists(s.socket), "a killed process leaves its socket"
    s.start()
    s.end()
    with open(s.socket, "w") as f:
        f.write("mine")
    refused(s, "is no socket")
    equal(open(s.socket).read(), "mine")
    os.unlink(s.socket)
    os.symlink("/nowhere", s.socket)
    refused(s, "is no socket")
    os.unlink(s.socket)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as foreign:
        foreign.bind(s.socket)
        foreign.listen()
        equal(refused(s, "another process listens"), 4)
    os.unlink(s.socket)
    # Somebody took the name meanwhile: it is not taken away at the end.
    s.start()
    os.unlink(s.socket)
    with open(s.socket, "w") as f:
        f.write("mine")
    s.end()
    equal(open(s.socket).read(), "mine")


@test
def modes_whatever_the_umask():
    for umask in (0, 0o777):
        s = Service(start=False)
        s.start(umask=umask)
        equal(mode(s.socket), 0o600, f"umask {umask:o}")
        equal(mode(s.state), 0o700)
        equal(mode(os.path.join(s.state, "serve.lock")) & 0o177, 0)
        s.end()
    s = Service(config={"listen_mode": "0666"}, start=False)
    s.start(umask=0o077)
    equal(mode(s.socket), 0o666)
    s.end()


@test
def groups():
    s = Service(config={"listen_group": "no-such-group"}, start=False)
    refused(s, "no-such-group")
    if os.getuid() == 0:
        name = grp.getgrgid(1).gr_name
        for given in (name, "1"):
            s.configure({"listen_group": given, "listen_mode": "0660"})
            s.start()
            st = os.stat(s.socket)
            equal((st.st_gid, stat.S_IMODE(st.st_mode)), (1, 0o660), given)
            s.end()


@test
def long_paths():
    root = folder()
    stem = os.path.join(root, "x")
    fits = stem + "y" * (107 - len(stem))
    s = Service(socket_path=fits)
    equal(s.get("/healthz").status, 200)
    s.end()
    for n in (108, 200):
        long = Service(socket_path=stem + "y" * (n - len(stem)), start=False)
        refused(long, f"has {n} bytes", "at most 107")
    relative = Service(socket_path="relative.sock", start=False)
    refused(relative, "absolute")
    nowhere = Service(socket_path=os.path.join(root, "no/folder/s"), start=False)
    refused(nowhere, "no/folder")


@test
def no_store():
    s = Service(init=False, start=False)
    equal(refused(s, "no store"), 3)


@test
def sigterm_waits_for_what_runs():
    s = Service(start=False)
    s.publish(A, {"f": os.urandom(20_000_000)})
    s.start()
    with contextlib.closing(s.connect()) as c, contextlib.closing(s.connect()) as idle:
        idle.ask("GET", "/healthz")
        c.send(request("GET", f"/v1/records/{A}/files/f"))
        eventually("it runs", lambda: s.metric("cairn_http_requests_running") == 2)
        s.signal(signal.SIGTERM)
        eventually("draining", lambda: "draining" in s.log())
        assert idle.is_closed(), "an idle connection goes"
        try:
            Connection(s.socket)
            assert False, "it accepts still"
        except (ConnectionRefusedError, FileNotFoundError):
            pass
        a = c.answer()
        equal(len(a.body), 20_000_000)
        assert c.is_closed()
    equal(s.wait(), 0)
    assert not os.path.exists(s.socket)


@test
def a_drain_has_an_end():
    s = Service(config={"drain_seconds": 1}, start=False)
    s.publish(A, {"f": os.urandom(20_000_000)})
    s.start()
    with contextlib.closing(s.connect()) as c:
        c.send(request("GET", f"/v1/records/{A}/files/f"))
        eventually("it runs", lambda: s.metric("cairn_http_requests_running") == 2)
        s.signal(signal.SIGTERM)
        equal(s.wait(), 0, "a client that does not read keeps nobody")
    assert "cancelling" in s.log()


@test
def a_second_signal_ends_at_once():
    s = Service(config={"drain_seconds": 3600}, start=False)
    s.publish(A, {"f": os.urandom(20_000_000)})
    s.start()
    with contextlib.closing(s.connect()) as c:
        c.send(request("GET", f"/v1/records/{A}/files/f"))
        eventually("it runs", lambda: s.metric("cairn_http_requests_running") == 2)
        s.signal(signal.SIGTERM)
        eventually("draining", lambda: "draining" in s.log())
        time.sleep(0.2)
        assert s.process.poll() is None, "the first signal waits"
        s.signal(signal.SIGTERM)
        equal(s.wait(), -signal.SIGTERM)
    s.start()
    s.end()


@test
def sigint_is_as_good():
    s = Service()
    s.signal(signal.SIGINT)
    equal(s.wait(), 0)


@test
def sigpipe_and_closed_standard_descriptors():
    s = Service(start=False)
    with open(s.log_path, "ab"):
        s.process = subprocess.Popen(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *s.spawn_args()])
    Service.all.append(s)
    eventually("it answers", s.answers)
    for _ in range(20):
        c = s.connect()
        c.send(request("GET", "/metrics") * 50)
        c.close()
    equal(s.get("/healthz").status, 200)
    s.end()


@test
def killed_under_load():
    s = Service(start=False)
    s.publish(A, {"f": os.urandom(2_000_000)})
    for _ in range(8):
        s.start()
        stop = threading.Event()

        def load():
            with contextlib.suppress(OSError, AssertionError):
                while not stop.is_set():
                    s.get(f"/v1/records/{A}/files/f")
                    s.get("/v1/records")

        threads = [threading.Thread(target=load) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.05)
        s.kill()
        stop.set()
        for t in threads:
            t.join()
    s.start()
    equal(len(s.get(f"/v1/records/{A}/files/f").body), 2_000_000)
    s.end()
    s.cairn("verify")


@test
def reload_changes_what_can_be_changed():
    s = Service(config={"log_level": "info"})
    s.get("/v1/info")
    assert "route=info" not in s.log()
    s.configure({"log_level": "debug", "listen": "/tmp/elsewhere", "listen_mode": "0666",
                 "generation_grace_seconds": 7200, "drain_seconds": 7, "cache_bytes": "1G",
                 "mount": "/elsewhere"})
    s.signal(signal.SIGHUP)
    eventually("reloaded", lambda: "reload: done" in s.log())
    for key in ("listen", "listen_mode", "generation_grace_seconds", "cache_bytes", "mount"):
        assert f"key={key} refused" in s.log(), key
    for key in ("listen_group", "state_dir", "workers", "checkpoint_store"):
        assert f"key={key}" not in s.log(), key
    s.get("/v1/info")
    eventually("it logs more", lambda: "route=info" in s.log())
    equal(mode(s.socket), 0o600)
    with open(s.config, "w") as f:
        f.write('{"drain_secondz": 1}')
    s.signal(signal.SIGHUP)
    eventually("refused", lambda: "drain_secondz" in s.log())
    equal(s.get("/healthz").status, 200)
    for _ in range(20):
        s.signal(signal.SIGHUP)
    s.signal(signal.SIGTERM)
    equal(s.wait(), 0)
    assert "seconds=7" in s.log(), s.log()


@test
def reload_under_nohup():
    s = Service(start=False)
    s.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    s.signal(signal.SIGHUP)
    eventually("reloaded", lambda: "reload: done" in s.log())
    s.end()


class Notified:
    """A service that tells its manager how it is."""

    def __init__(self, abstract, **more):
        self.s = Service(start=False, **more)
        name = os.path.join(self.s.root, "notify")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listener.settimeout(60)
        self.listener.bind(("\0" if abstract else "") + name)
        self.s.env["NOTIFY_SOCKET"] = ("@" if abstract else "") + name

    def next(self):
        return self.listener.recv(4096).decode()


@test
def notifications():
    for abstract in (False, True):
        n = Notified(abstract)
        n.s.process = n.s.spawn()
        Service.all.append(n.s)
        assert "READY=1" in n.next().split("\n")
        equal(n.s.get("/healthz").status, 200, "ready means ready: no second try")
        n.s.signal(signal.SIGHUP)
        assert "RELOADING=1" in n.next()
        assert "READY=1" in n.next()
        n.s.signal(signal.SIGTERM)
        assert "STOPPING=1" in n.next().split("\n")
        equal(n.s.wait(), 0)
        n.listener.close()
    n = Notified(False, init=False)
    refused(n.s, "no store")
    n.listener.settimeout(0.2)
    try:
        assert False, f"a service that cannot serve said {n.next()}"
    except TimeoutError:
        pass


@test
def watchdog():
    n = Notified(False)
    n.s.env["WATCHDOG_USEC"] = "200000"
    n.s.process = n.s.spawn()
    Service.all.append(n.s)
    got = [n.next() for _ in range(6)]
    assert got.count("WATCHDOG=1") >= 4, got
    n.s.end()


@test
def a_log_that_nobody_reads():
    """A full pipe, or socket, costs lines and nothing else."""
    for kind in ("pipe", "socket"):
        s = Service(start=False)
        if kind == "pipe":
            r, w = os.pipe()
        else:
            a, b = socket.socketpair()
            r, w = a.detach(), b.detach()
        s.process = subprocess.Popen(s.spawn_args(), stderr=w, stdin=subprocess.DEVNULL)
        os.close(w)
        Service.all.append(s)
        eventually("it answers", s.answers)
        with contextlib.closing(s.connect()) as c:
            for _ in range(5000):
                equal(c.ask("GET", "/v1/info").status, 200)
        os.set_blocking(r, False)
        said = b""

        def dropped():
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                while True:
                    said += os.read(r, 1 << 20)
            s.get("/healthz")
            return b"log: dropped=" in said

        eventually("it says how many", dropped)
        s.end()
        os.close(r)


def with_a_mount():
    """serve --mount: one process, one cache; the mount goes with the service."""
    root = folder()
    point = os.path.join(root, "mount")
    os.mkdir(point)
    s = Service(args=["--mount", point], start=False)
    s.publish(A, {"f": b"through the mount"})
    s.start()
    gen = s.get(f"/v1/records/{A}").json()["gen"]
    with open(f"{point}/{A}/export-{gen}/f", "rb") as f:
        equal(f.read(), b"through the mount")
    assert s.metric("cairn_mount_requests_total") > 0
    s.end()
    equal(os.listdir(point), [], "unmounted")


can_mount = os.path.exists("/dev/fuse")
if can_mount:
    test(with_a_mount)


@test
def nothing_leaks():
    s = Service(start=False)
    s.publish(A, {"f": b"x" * 100})
    s.start()
    s.get(f"/v1/records/{A}")
    before = descriptors(s.process.pid)
    for _ in range(200):
        s.get(f"/v1/records/{A}/files/f")
        s.get("/v1/records")
        s.ask("POST", "/v1/gc", {"dry_run": True})
    eventually("descriptors", lambda: descriptors(s.process.pid) <= before + 4)
    s.end()


finish(skipped=0 if can_mount else 1)
