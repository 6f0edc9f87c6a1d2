#!/usr/bin/env python3
"""Damage one file of a store. usage: damage.py FILE HOW

empty, half, short   truncated to nothing, to half, by one byte
flip:N               one bit of the byte at N/16 of its length is turned
garbage              other bytes, as many
huge                 2 MiB of other bytes
newer                what a newer version would have written, with right checksums
removed              deleted
The kind of the file is told by its name.
"""

import hashlib
import os
import struct
import sys


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def garbage(n):
    out = b""
    while len(out) < n:
        out += sha(b"garbage", struct.pack("<Q", len(out)))
    return out[:n]


def newer(path, b):
    name = os.path.basename(path)
    if name == "format.json":
        text = b.replace(b'"format":1,"min_reader":1', b'"format":2,"min_reader":2')
        assert text != b
        text = text[: text.rindex(b',"sha256":"')]
        return text + b',"sha256":"' + sha(text).hex().encode() + b'"}\n'
    b = bytearray(b)
    struct.pack_into("<I", b, 8, struct.unpack_from("<I", b, 8)[0] + 1)
    if name.startswith("export-"):
        b[288:320] = sha(b[:288])
        b[-32:] = sha(b[:-32])
    else:
        trailer = len(b) - 64
        struct.pack_into("<I", b, trailer + 8, struct.unpack_from("<I", b, trailer + 8)[0] + 1)
        index = struct.unpack_from("<Q", b, trailer + 16)[0]
        b[-32:] = sha(b[:64], b[index:trailer], b[trailer:-32])
    return bytes(b)


def main(path, how):
    os.chmod(path, 0o600)
    if how == "removed":
        os.unlink(path)
        return
    with open(path, "rb") as f:
        b = f.read()
    if how.startswith("flip:"):
        at = min(int(how[5:]) * len(b) // 16, len(b) - 1)
        b = b[:at] + bytes([b[at] ^ 1 << at % 8]) + b[at + 1 :]
    else:
        b = {
            "empty": lambda: b"",
            "half": lambda: b[: len(b) // 2],
            "short": lambda: b[:-1],
            "garbage": lambda: garbage(len(b)),
            "huge": lambda: garbage(2 << 20),
            "newer": lambda: newer(path, b),
        }[how]()
    with open(path, "wb") as f:
        f.write(b)


main(sys.argv[1], sys.argv[2])
