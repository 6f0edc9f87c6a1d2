"""The examples of docs/api.md, run as they stand there against a service.

Every ```sh block is run, all of them in one shell; the block behind it says with which status the last
request was answered, and what came: ```json has the shape of the output (same members, same types), and
is the output where it is an error; ```text is the output.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import kit

DOC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/api.md")
BLOCK = re.compile(r"^```(\w+)(?: (\d+))?\n(.*?)^```$", re.M | re.S)


def examples(path):
    """(command, kind, status, text) of each example."""
    with open(path, encoding="utf-8") as f:
        blocks = BLOCK.findall(f.read())
    for command, answer in zip(blocks[::2], blocks[1::2]):
        if command[0] != "sh" or answer[0] not in ("json", "text") or not answer[1]:
            sys.exit(f"{path}: an example without its answer: {command[2]}")
        yield command[2], answer[0], answer[1], answer[2]
    if len(blocks) % 2:
        sys.exit(f"{path}: an example without its answer: {blocks[-1][2]}")


def shape(v):
    if isinstance(v, dict):
        return {k: shape(x) for k, x in sorted(v.items())}
    if isinstance(v, list):
        return [shape(v[0])] if v else []
    if isinstance(v, bool) or v is None:
        return repr(type(v))
    return "number" if isinstance(v, (int, float)) else "text"


def same_shape(want, got):
    """Lists need the shape in one of their elements: only there may members differ."""
    if isinstance(want, list) and isinstance(got, list):
        return not want or any(same_shape(want[0], g) for g in got)
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(same_shape(want[k], got[k]) for k in want)
    return shape(want) == shape(got)


def script(found, work):
    """One shell for all; each block's output, exit status and last HTTP status in files."""
    lines = ["set -u"]
    for i, (command, *_) in enumerate(found):
        lines += [f"export STATUS_FILE={work}/status.{i}", f"exec 3>&1 >{work}/out.{i}",
                  command.rstrip("\n"), "last=$?", "exec >&3 3>&-", f"echo $last >{work}/exit.{i}"]
    return "\n".join(lines) + "\n"


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def fault(work, i, kind, status, text):
    if read(f"{work}/exit.{i}").strip() != "0":
        return f"exit status {read(f'{work}/exit.{i}').strip()}"
    got_status = read(f"{work}/status.{i}").split()
    if got_status[-1:] != [status]:
        return f"HTTP status {got_status[-1:]}, not {status}"
    out = read(f"{work}/out.{i}")
    if kind == "text":
        return None if out.strip() == text.strip() else f"{out!r}, not {text!r}"
    try:
        got = json.loads(out)
    except ValueError as e:
        return f"no JSON ({e})"
    want = json.loads(text)
    if not same_shape(want, got):
        return f"{json.dumps(shape(got))}\n    not {json.dumps(shape(want))}"
    if "error" in want and want != got:
        return f"{got}, not {want}"
    return None


def run(found, work, sock):
    # The same curl, which also notes the status of its answer.
    curl = shutil.which("curl")
    with open(f"{work}/curl", "w", encoding="utf-8") as f:
        f.write(f'#!/bin/bash\nexec 4>>"$STATUS_FILE"\n'
                f'exec {curl} "$@" --write-out \'%{{stderr}}%{{http_code}}\\n\' 2>&4\n')
    os.chmod(f"{work}/curl", 0o755)
    env = dict(os.environ, PATH=f"{work}:{os.environ['PATH']}", SOCKET=sock)
    subprocess.run(["bash", "-c", script(found, work)], env=env, cwd=work, timeout=kit.PATIENCE,
                   stdin=subprocess.DEVNULL, check=True)


service = kit.Service()
found = list(examples(DOC))
work = kit.folder()
run(found, work, service.socket)
for i, (command, kind, status, text) in enumerate(found):
    def example():
        why = fault(work, i, kind, status, text)
        assert not why, f"{command}: {why}\n{read(f'{work}/out.{i}')}{read(f'{work}/status.{i}')}"
    example.__name__ = f"example {i}"
    kit.test(example)


def asked(command):
    """(method, path) of each request in a command."""
    for one in command.replace("\\\n", " ").split("curl ")[1:]:
        method = re.search(r"-X (\w+)", one)
        url = re.search(r"http://cairn([^\s\"?]*)", one)
        yield method[1] if method else "POST" if " -d " in one else "GET", url[1].rstrip(")")


@kit.test
def every_route_has_an_example():
    with open(os.path.join(os.path.dirname(DOC), "../service/routes.c"), encoding="utf-8") as f:
        table = re.findall(r'\{HTTP_(\w+), "([^"]*)"', f.read())
    have = {a for command, *_ in found for a in asked(command)}
    assert len(table) > 20, table
    for method, pattern in table:
        wanted = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(pattern)) + "$"
        assert any(m == method and re.match(wanted, path) for m, path in have), \
            f"{method} {pattern} is in no example"


kit.finish()
