#!/usr/bin/env python3
"""Run the test programs of a build folder, or one command, and count their cases.

    run.py --build build/plain [--only SUITE|SUITE/NAME]... [--not ...] [--scale N]
    run.py --name lint --timeout 600 -- bash tests/lint/run.sh

Cases are counted from the output: Check's "100%: Checks: 3, Failures: 0, Errors: 0" lines, or else
the last line "N passed, N failed[, N skipped]"; a program that prints neither is one case. A
program that dies, fails without a failed case, runs out of time or runs no case at all is one
failure more. Passing programs get one line, failing ones their whole log. With --totals the counts
are appended to a file as "passed failed skipped".
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

CHECK_LINE = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)\s*$", re.M)
PLAIN_LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$", re.M)
SKIPPED_EXIT = 77
printing = threading.Lock()
sessions = set()  # of the programs that run now; guarded by printing


class Program:
    def __init__(self, name, cmd, env=None, cwd=None, timeout=300, parallel=True):
        self.name, self.cmd, self.env, self.cwd = name, cmd, env or {}, cwd
        self.timeout, self.parallel = timeout, parallel


def programs_of_build(build, scale):
    out = subprocess.run(["meson", "introspect", "--tests", build], check=True,
                         stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    for test in json.loads(out):
        suite = test["suite"][-1].split(":")[-1] if test["suite"] else "test"
        # 0 or less stands for no limit in meson; here nothing runs without one.
        limit = test["timeout"] if test["timeout"] > 0 else 1800
        yield Program(f"{suite}/{test['name']}", test["cmd"], test["env"],
                      test["workdir"] or build, limit * scale, test["is_parallel"])


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
    code, left = 127, 0
    if child:
        with printing:
            sessions.add(child.pid)
        try:
            code = child.wait(max(0, min(program.timeout, deadline - start)))
        except subprocess.TimeoutExpired:
            late = True
        left = end_session(child.pid)
        if late:
            code = child.wait()
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
        print(f"{line}  {seconds:.1f} s{'  (' + remark + ')' if remark else ''}")
        if failed:
            print(f"---- log of {program.name}: {' '.join(program.cmd)}")
            # The counts of a single program must not be taken for the whole run's.
            print("\n".join("  | " + text for text in output.splitlines()))
            print(f"---- end of {program.name}")
        sys.stdout.flush()
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--not", action="append", default=[], metavar="PATTERN", dest="without")
    parser.add_argument("--scale", type=float, default=1, help="of the programs' time limits")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--list", action="store_true")
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
    if not programs:
        # A suite that is not there, or a pattern that fits nothing, must not look like success.
        programs = [Program("none", ["sh", "-c", "echo no program of this build fits; exit 1"])]
    logs = args.logs or os.path.join(args.build or "build", "logs")
    os.makedirs(logs, exist_ok=True)

    def interrupted(signo, frame):
        for sid in list(sessions):
            end_session(sid)
        os._exit(128 + signo)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    deadline = time.monotonic() + args.within

    # The ones with the longest limits first, so that none is left to run alone at the end; those
    # that ask for the machine to themselves follow one by one.
    programs.sort(key=lambda p: -p.timeout)
    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        counts = list(pool.map(lambda p: run(p, logs, deadline),
                               [p for p in programs if p.parallel]))
    counts += [run(p, logs, deadline) for p in programs if not p.parallel]
    totals = [sum(c[i] for c in counts) for i in range(3)]
    if args.totals:
        with open(args.totals, "a") as f:
            f.write("{} {} {}\n".format(*totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())
