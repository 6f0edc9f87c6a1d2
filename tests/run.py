#!/usr/bin/env python3
"""Run the test programs of a build folder, or one command, and count their cases.

    run.py --build build/plain [--only SUITE|SUITE/NAME]... [--not ...] [--scale N]
    run.py --name lint --timeout 600 -- bash tests/lint/run.sh

Cases are counted from the output: Check's "100%: Checks: 3, Failures: 0, Errors: 0" lines, or else
the last line "N passed, N failed[, N skipped]"; a program that prints neither is one case. A
program that dies, fails without a failed case, runs out of time or runs no case at all is one
failure more. Passing programs get one line, failing ones their whole log. With --totals the counts
are appended to a file as "passed failed skipped".

Most programs wait for most of their time. So --jobs of them and one more run at once, and up to six
times --jobs while the machine has processors to spare; the long ones first, by costs.txt, which
--measure writes anew. Those that ask for the machine to themselves (is_parallel: false) follow one
by one.
"""

import argparse
import fnmatch
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

CHECK_LINE = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)\s*$", re.M)
PLAIN_LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)
SKIPPED_EXIT = 77
COSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "costs.txt")
printing = threading.Lock()
sessions = set()  # of the programs that run now; guarded by printing
done = []  # (seconds, CPU seconds, name) of those that have ended; guarded by printing


class Program:
    def __init__(self, name, cmd, env=None, cwd=None, timeout=300, parallel=True, depends=()):
        self.name, self.cmd, self.env, self.cwd = name, cmd, env or {}, cwd
        self.timeout, self.parallel, self.depends = timeout, parallel, depends
        self.counts = (0, 1, 0)  # of its cases, once it ended


def programs_of_build(build, scale):
    out = subprocess.run(["meson", "introspect", "--tests", build], check=True,
                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    for test in json.loads(out):
        suite = test["suite"][-1].split(":")[-1] if test["suite"] else "test"
        # 0 or less stands for no limit in meson; here nothing runs without one.
        limit = test["timeout"] if test["timeout"] > 0 else 1800
        yield Program(f"{suite}/{test['name']}", test["cmd"], test["env"],
                      test["workdir"] or build, limit * scale, test["is_parallel"],
                      test["depends"])


def targets_of(build, programs):
    """What ninja has to make for them."""
    out = subprocess.run(["meson", "introspect", "--targets", build], check=True,
                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    needed = {target for p in programs for target in p.depends}
    return [os.path.relpath(name, build) for target in json.loads(out) if target["id"] in needed
            for name in target["filename"]]


def matches(name, patterns):
    return any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(name.split("/")[0], p)
               for p in patterns)


def session_members(sid):
    """Processes of a session, by /proc/PID/stat (proc(5): the 6th field)."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == sid and fields[0] != b"Z":
            yield int(pid)


def ask_session(sid, seconds=5):
    """Tell a session to end: a script may have something to take down outside of it (a gateway)."""
    until = time.monotonic() + seconds
    for pid in session_members(sid):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    while time.monotonic() < until and any(session_members(sid)):
        time.sleep(0.05)


def end_session(sid):
    """Kill what is left of a session; return how many processes that were."""
    killed = set()
    for _ in range(50):
        members = list(session_members(sid))
        if not members:
            break
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    return len(killed)


def count(output, code, late):
    """(passed, failed, skipped, remark) of a program's output and exit code."""
    passed = failed = skipped = 0
    checks = CHECK_LINE.findall(output)
    plain = PLAIN_LINE.findall(output)
    if checks:
        for total, failures, errors in checks:
            failed += int(failures) + int(errors)
            passed += int(total) - int(failures) - int(errors)
    elif plain:
        passed, failed, skipped = (int(n or 0) for n in plain[-1])
    elif code == SKIPPED_EXIT:
        return 0, 0, 1, "skipped"
    elif code == 0:
        passed = 1
    remark = ""
    if late:
        failed, remark = failed + 1, "out of time"
    elif code != 0 and failed == 0:
        failed = 1
        remark = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    elif passed + failed + skipped == 0:
        failed, remark = 1, "ran no case"
    return passed, failed, skipped, remark


def ended(pid, seconds):
    """Wait that long for the end of a child, which stays a zombie."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)


def run(program, logs, deadline):
    env = dict(os.environ, **program.env)
    path = os.path.join(logs, program.name.replace("/", "-") + ".log")
    start = time.monotonic()
    late = False
    # Output goes to a file: a process left behind cannot hold up the end of a pipe.
    with open(path, "wb") as log:
        try:
            child = subprocess.Popen(program.cmd, env=env, cwd=program.cwd, stdout=log,
                                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     start_new_session=True)
        except OSError as e:
            log.write(f"{program.cmd[0]}: {e}\n".encode())
            child = None
    code, left, cpu = 127, 0, 0
    if child:
        with printing:
            sessions.add(child.pid)
        if not ended(child.pid, max(0, min(program.timeout, deadline - start))):
            late = True
            ask_session(child.pid)
        left = end_session(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        code = child.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime
        with printing:
            sessions.discard(child.pid)
    seconds = time.monotonic() - start
    with open(path, "r", errors="replace") as log:
        output = log.read()
    passed, failed, skipped, remark = count(output, code, late)
    if left and not late:
        remark = (remark + ", " if remark else "") + f"left {left} processes behind"
        failed += 1
    with printing:
        word = "FAIL" if failed else "ok  "
        line = f"{word} {program.name:<32} {passed:5d} passed"
        line += f", {failed} failed" if failed else ""
        line += f", {skipped} skipped" if skipped else ""
        done.append((seconds, cpu, program.name))
        print(f"{line}  {seconds:.1f} s{'  (' + remark + ')' if remark else ''}")
        if failed:
            print(f"---- log of {program.name}: {' '.join(program.cmd)}")
            # The counts of a single program must not be taken for the whole run's.
            print("\n".join("  | " + text for text in output.splitlines()))
            print(f"---- end of {program.name}")
        sys.stdout.flush()
    program.counts = passed, failed, skipped


class Processors:
    """How much of them was idle, or at work that stands back (nice), of late: proc(5), stat."""

    def __init__(self):
        self.last, self.idle, self.at = self.read(), 0, time.monotonic()

    @staticmethod
    def read():
        with open("/proc/stat", encoding="ascii") as f:
            times = [int(t) for t in f.readline().split()[1:9]]
        return times[1] + times[3] + times[4], sum(times)

    def idle_share(self):
        now = time.monotonic()
        if now - self.at >= 0.4:
            spare, total = self.read()
            if total > self.last[1]:
                self.idle = (spare - self.last[0]) / (total - self.last[1])
            self.last, self.at = (spare, total), now
        return self.idle


def run_all(programs, jobs, logs, deadline):
    """Run them side by side; each has its counts afterwards."""
    ended, running, processors = threading.Condition(), [], Processors()

    def one(program):
        try:
            run(program, logs, deadline)
        finally:
            with ended:
                running.remove(program)
                ended.notify()

    def has_room():
        return len(running) <= jobs or (
            len(running) < 6 * jobs and processors.idle_share() > 0.3)

    for program in programs:
        with ended:
            while not has_room():
                ended.wait(0.2)
            extra = len(running) > jobs
            running.append(program)
        threading.Thread(target=one, args=(program,)).start()
        if extra:
            time.sleep(0.5)  # until its load shows
    with ended:
        while running:
            ended.wait()


def read_costs():
    """Seconds by program, of some build."""
    with open(COSTS, encoding="utf-8") as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {name: float(seconds) for seconds, name in lines}


def write_costs(path, least=2):
    """What is known, and of those that have run what they took now."""
    costs = read_costs()
    costs.update({name: seconds for seconds, _, name in done})
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Seconds of the long programs, for their order (run.py --measure).\n")
        for name, seconds in sorted(costs.items(), key=lambda item: -item[1]):
            if seconds >= least:
                f.write(f"{seconds:.0f} {name}\n")


def print_slowest(n):
    print(f"---- the slowest {min(n, len(done))} of {len(done)}: seconds, of them CPU")
    for seconds, cpu, name in sorted(done, reverse=True)[:n]:
        print(f"{seconds:8.1f} {cpu:7.1f}  {name}")
    print(f"{sum(d[0] for d in done):8.1f} {sum(d[1] for d in done):7.1f}  all")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--not", action="append", default=[], metavar="PATTERN", dest="without")
    parser.add_argument("--scale", type=float, default=1, help="of the programs' time limits")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processors to use")
    parser.add_argument("--durations", type=int, nargs="?", const=20, default=0, metavar="N",
                        help="print the slowest N (20)")
    parser.add_argument("--measure", metavar="FILE", help="write what they took, as costs.txt")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--targets", action="store_true", help="name what ninja makes for them")
    parser.add_argument("--name")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--within", type=float, default=86400, help="seconds for all of them")
    parser.add_argument("--logs")
    parser.add_argument("--totals")
    parser.add_argument("command", nargs="*")
    args = parser.parse_args()
    if bool(args.build) == bool(args.command):
        parser.error("give --build or a command")
    if args.build:
        programs = [p for p in programs_of_build(args.build, args.scale)
                    if (not args.only or matches(p.name, args.only))
                    and not matches(p.name, args.without)]
    else:
        programs = [Program(args.name or args.command[0], args.command, timeout=args.timeout)]
    if args.list:
        for p in programs:
            print(p.name)
        return 0
    if args.targets:
        print("\n".join(targets_of(os.path.abspath(args.build), programs)))
        return 0
    if not programs:
        # A suite that is not there, or a pattern that fits nothing, must not look like success.
        programs = [Program("none", ["sh", "-c", "echo no program of this build fits; exit 1"])]
    logs = args.logs or os.path.join(args.build or "build", "logs")
    os.makedirs(logs, exist_ok=True)

    def interrupted(signo, frame):
        asked = [threading.Thread(target=ask_session, args=(sid,)) for sid in list(sessions)]
        for thread in asked:
            thread.start()
        for thread in asked:
            thread.join()
        for sid in list(sessions):
            end_session(sid)
        os._exit(128 + signo)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    deadline = time.monotonic() + args.within

    costs = read_costs()
    programs.sort(key=lambda p: -costs.get(p.name, 0))
    run_all([p for p in programs if p.parallel], max(1, args.jobs), logs, deadline)
    for p in programs:
        if not p.parallel:
            run(p, logs, deadline)
    totals = [sum(p.counts[i] for p in programs) for i in range(3)]
    if args.measure:
        write_costs(args.measure)
    if args.durations:
        print_slowest(args.durations)
    if args.totals:
        with open(args.totals, "a") as f:
            f.write("{} {} {}\n".format(*totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
