#!/usr/bin/env python3
"""json_holds.py FILE EXPRESSION...: FILE holds exactly one JSON document (without a key twice in one
object), ended by one line feed, and each Python expression of it, called d, is true."""

import json
import sys


def no_twin(pairs):
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise ValueError(f"a key twice: {names}")
    return dict(pairs)


with open(sys.argv[1], "rb") as f:
    text = f.read().decode("utf-8")
if not text.endswith("\n") or text.endswith("\n\n"):
    sys.exit("does not end with one line feed")
d = json.loads(text, object_pairs_hook=no_twin)
for expression in sys.argv[2:]:
    # In parentheses, so that it may go over several lines.
    if not eval(f"({expression})", {"d": d}):
        sys.exit(f"does not hold: {expression}")
