"""What the service's tests share: a store, a service on it, raw HTTP, and the counting of cases.

    python3 TEST.py BUILD

Only the standard library. A service is ended, and its folder removed, at exit.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.path.abspath(sys.argv[1])
CAIRN = os.path.join(BUILD, "cli/cairn")
# Sanitizer builds are slow, and so are loaded machines: times that are waited for, not measured.
PATIENCE = 60
SANITIZED = "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ
A, B, C = ("ck_00000000000000%s" % c for c in ("aa", "bb", "cc"))
passed = failed = 0


def test(fn):
    """Run a test at once; it fails by an exception."""
    global passed, failed
    try:
        fn()
        passed += 1
    except Exception:
        failed += 1
        print(f"not ok: {fn.__name__}")
        traceback.print_exc(file=sys.stdout)
        if Service.last:
            print("  log: " + Service.last.log()[-3000:].replace("\n", "\n  log: "))
    sys.stdout.flush()


def finish(skipped=0):
    for s in list(Service.all):
        try:
            s.end()
        except Exception:
            traceback.print_exc(file=sys.stdout)
            globals()["failed"] += 1
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed else 0)


def eventually(what, fn, seconds=PATIENCE):
    """Until fn gives something true, which is returned."""
    end = time.monotonic() + seconds
    while True:
        got = fn()
        if got:
            return got
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def equal(got, want, what=""):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def folder():
    path = tempfile.mkdtemp(prefix="cairn-service-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Cut(AssertionError):
    """The connection ended within an answer."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        e = self.json()["error"]
        assert set(e) == {"class", "message", "errno"} and e["message"], e
        return e


class Connection:
    """One connection, with as little between the test and the bytes as can be."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(PATIENCE)
        self.s.connect(path)
        self.buffer = b""

    def close(self):
        self.s.close()

    def send(self, data):
        self.s.sendall(data if isinstance(data, bytes) else data.encode())

    def send_what_is_taken(self, data):
        """The other side may refuse and close before it has read all."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(data)

    def _more(self):
        try:
            got = self.s.recv(65536)
        except ConnectionResetError:
            got = b""
        self.buffer += got
        return bool(got)

    def is_closed(self):
        """Nothing more comes but the end."""
        return not self._more()

    def answer(self, head_only=False):
        """The next answer, or None where the connection ends before one."""
        while True:
            while b"\r\n\r\n" not in self.buffer:
                if not self._more():
                    if self.buffer:
                        raise Cut(f"cut: {self.buffer!r}")
                    return None
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            version, status, _ = lines[0].split(" ", 2)
            equal(version, "HTTP/1.1")
            headers = {}
            for line in lines[1:]:
                name, value = line.split(": ", 1)
                assert name.lower() not in headers, f"{name} twice"
                headers[name.lower()] = value
            if status != "100":
                break
        length = int(headers.get("content-length", 0))
        body = b""
        if not head_only and status not in ("204", "304"):
            while len(self.buffer) < length:
                if not self._more():
                    raise Cut(f"body cut after {len(self.buffer)} of {length} bytes")
            body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(int(status), headers, body)

    def ask(self, method, path, body=None, headers=()):
        self.send(request(method, path, body, headers))
        return self.answer(head_only=method == "HEAD")


def request(method, path, body=None, headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: x"]
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
        lines.append("Content-Type: application/json")
    if isinstance(body, str):
        body = body.encode()
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += headers
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


class Service:
    all, last = [], None

    def __init__(self, root=None, init=True, store=None, socket_path=None, config=None, args=(),
                 env=(), start=True):
        self.root = root or folder()
        self.store = store or os.path.join(self.root, "store")
        self.state = os.path.join(self.root, "state")
        self.socket = socket_path or os.path.join(self.state, "cairn.sock")
        self.config = os.path.join(self.root, "config.json")
        self.args, self.env = list(args), dict(env)
        self.log_path = os.path.join(self.root, "log")
        self.process = None
        if socket_path:
            self.args += ["--listen", socket_path]
        self.configure(config or {})
        if init:
            self.cairn("init")
        Service.last = self
        if start:
            self.start()

    def configure(self, config):
        with open(self.config, "w") as f:
            json.dump(dict({"log_level": "debug"}, **config), f)

    def environment(self):
        return dict(os.environ, **self.env)

    def cairn(self, *args, check=True):
        return subprocess.run([CAIRN, "--store", self.store, "--state", self.state, "--config",
                               self.config, "--quiet", *args], check=check, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.environment(), text=True)

    def spawn_args(self):
        return [CAIRN, "--store", self.store, "--state", self.state, "--config", self.config,
                "serve", *self.args]

    def spawn(self, **more):
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(self.spawn_args(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                    env=self.environment(), **more)

    def start(self, **more):
        self.process = self.spawn(**more)
        Service.all.append(self)
        eventually("the service answers", self.answers)

    def answers(self):
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log()}"
        try:
            c = Connection(self.socket)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        with contextlib.closing(c):
            return c.ask("GET", "/healthz").status == 200

    def log(self):
        if not os.path.exists(self.log_path):
            return ""
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def connect(self):
        return Connection(self.socket)

    def ask(self, method, path, body=None, headers=()):
        with contextlib.closing(self.connect()) as c:
            return c.ask(method, path, body, headers)

    def get(self, path, headers=()):
        return self.ask("GET", path, None, headers)

    def metric(self, line):
        """The value of a sample, named as it stands in the text."""
        for text in self.get("/metrics").body.decode().splitlines():
            if text.startswith(line + " "):
                return float(text.rsplit(" ", 1)[1])
        return None

    def publish(self, id, files):
        source = tempfile.mkdtemp(prefix="export-", dir=self.root)
        for path, data in files.items():
            full = os.path.join(source, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as f:
                f.write(data)
        self.cairn("publish", id, "--from", source)
        shutil.rmtree(source)

    def signal(self, signo):
        self.process.send_signal(signo)

    def wait(self, seconds=PATIENCE):
        code = self.process.wait(seconds)
        if self in Service.all:
            Service.all.remove(self)
        assert "Sanitizer" not in self.log(), self.log()
        return code

    def end(self):
        """By SIGTERM, which must be enough."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            equal(self.wait(), 0, "exit code")
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("SIGTERM does not end it")

    def kill(self):
        self.process.kill()
        self.process.wait()
        Service.all.remove(self)


class Bucket:
    """The fault server, as a bucket that does what it is told to do wrong."""

    def __init__(self):
        self.p = subprocess.Popen([os.path.join(BUILD, "tests/s3/s3-fault-server")],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.endpoint = self.p.stdout.readline().strip()
        atexit.register(self.p.kill)
        self.store = "s3://bucket/store"
        self.env = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                    "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
                    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        self.config = {"checkpoint_store": {"kind": "s3", "s3": {
            "bucket": "bucket", "prefix": "store", "endpoint": self.endpoint,
            "region": "us-east-1", "force_path_style": True}}}

    def tell(self, line):
        self.p.stdin.write(line + "\n")
        self.stats()

    def rule(self, rule):
        self.tell("rule " + rule)

    def clear(self):
        self.tell("clear")

    def stats(self):
        """Counts by name. What was told before has been done."""
        self.p.stdin.write("stats\n")
        line = self.p.stdout.readline()
        assert line.startswith("requests="), line
        return {k: int(v) for k, v in (part.split("=") for part in line.split())}

    def stop(self):
        self.p.stdin.close()
        self.p.wait(PATIENCE)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@atexit.register
def leave_nothing():
    for s in Service.all:
        with contextlib.suppress(Exception):
            s.process.kill()
            s.process.wait(10)
