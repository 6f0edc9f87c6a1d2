#!/usr/bin/env python3
"""Plants objects in a store that are sealed rightly and lie all the same.

    hostile.py STORE format NAME=JSON...   format.json with these members, its checksum made right
    hostile.py STORE record LIE ID         a record whose manifest (and pack) tell the lie LIE
    hostile.py STORE shared ID NEW FIELD   record ID again as NEW, one chunk's "sha" or "xxh" wrong
    hostile.py STORE index-bomb            a pack of as many chunks on absent bases as a pack can hold
    hostile.py lies                        the lies that a reader must refuse (corrupt)

The formats are those of docs/format.md.
"""

import hashlib
import json
import os
import struct
import sys

NO_BASE = 0xFFFFFFFF
CS = 65536


def sha(b):
    return hashlib.sha256(b).digest()


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def seal_format(store, changes):
    path = os.path.join(store, "format.json")
    with open(path) as f:
        members = json.load(f)
    del members["sha256"]
    for change in changes:
        name, _, value = change.partition("=")
        members[name] = json.loads(value)
    body = json.dumps(members, separators=(",", ":"))[:-1].encode()
    with open(path, "wb") as f:
        f.write(body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n')


def frame(claim, content, checksum=b"", descriptor=0xE0):
    """A zstd frame of run-length blocks: content bytes, of which it says there are claim."""
    out = [struct.pack("<IB", 0xFD2FB528, descriptor), struct.pack("<Q", claim)]
    while content:
        n = min(content, 128 << 10)
        content -= n
        out.append(struct.pack("<I", n << 3 | 2 | (content == 0))[:3] + b"x")
    return b"".join(out) + checksum


class Pack:
    def __init__(self, store):
        self.store, self.name = store, os.urandom(16)
        self.data = bytearray(b"CAIRNPK1" + struct.pack("<2I", 1, CS) + self.name + bytes(32))
        self.entries = []

    def add(self, stored, encoding, plain_len, digest, base=bytes(32)):
        if encoding == 0:
            self.data += bytes(-len(self.data) % 4096)
        off = len(self.data)
        self.data += stored
        self.entries.append(digest + base + struct.pack("<4I", off, len(stored) | encoding << 24,
                                                        plain_len, 0))
        return off

    def write(self):
        index = b"".join(self.entries)
        trailer = b"CAIRNPKE" + struct.pack("<2IQ8x", 1, len(self.entries), len(self.data))
        trailer += sha(bytes(self.data[:64]) + index + trailer)
        put(f"{self.store}/packs/{self.name.hex()[:2]}/{self.name.hex()}",
            bytes(self.data) + index + trailer)


def chunk(pack, offset, stored, encoding, digest, base=NO_BASE):
    return digest + bytes(16) + struct.pack("<4I", pack, offset, stored | encoding << 24, base)


def manifest(rid, gen, files, extents, chunks, packs, logical=None, data=None, stored=None):
    """files: (path, size, data bytes, number of extents, content key or None)"""
    names = b"".join(f[0] for f in files)
    table, at, extent = b"", 0, 0
    for path, size, n_data, n, content in files:
        key = [struct.pack("<Q", size)]
        for number, count, first in extents[extent:extent + n]:
            for k in range(min(count, 4)):
                if first + k < len(chunks):
                    key += [struct.pack("<Q", number + k), chunks[first + k][:32]]
        table += struct.pack("<QQ4I", size, n_data, at, len(path), extent, n)
        table += content or sha(b"".join(key))[:16]
        at += len(path)
        extent += n
    tables = [table, b"".join(struct.pack("<QII", *e) for e in extents), b"".join(chunks),
              b"".join(packs), names]
    offsets = [320]
    for t in tables[:-1]:
        offsets.append(offsets[-1] + len(t))
    body = b"".join(tables)
    body += bytes(-(320 + len(body)) % 8)
    if logical is None:
        logical = sum(f[1] for f in files)
    if data is None:
        data = sum(f[2] for f in files)
    if stored is None:
        stored = sum(struct.unpack_from("<I", c, 56)[0] & 0xFFFFFF for c in chunks)
    m64 = (1 << 64) - 1
    h = b"CAIRNMF1" + struct.pack("<4I", 1, 320, CS, 0)
    h += struct.pack("<Qq3Q", 320 + len(body) + 32, 1790000000 * 10**9, logical & m64, data & m64,
                     stored)
    h += struct.pack("<4I", len(files), len(extents), len(chunks), len(packs))
    h += struct.pack("<5QQ", *offsets, len(names))
    h += bytes(32) + gen + bytes(8) + rid.encode().ljust(40, b"\0") + bytes(40)
    h += struct.pack("<I", 1 << 8) + bytes(28)
    whole = h + sha(h) + body
    return whole + sha(whole)


def record(store, rid, files, extents, chunks, packs, **more):
    meta = ('{"id":"%s"}' % rid).encode()
    gen = sha(meta)[:8]
    put(f"{store}/records/{rid}/export-{gen.hex()}",
        manifest(rid, gen, files, extents, chunks, packs, **more))
    put(f"{store}/records/{rid}/meta.json", meta)


PLAIN = b"y" * CS
TOP = (1 << 63) - 1

# Manifests that break a rule of their own: paths, sizes, extents.
PATHS = {
    "dotdot": [b"../../out-of-it"], "dotdot-inside": [b"a/../../out-of-it"], "dot": [b"a/./b"],
    "absolute": [b"/tmp/out-of-it"], "twice": [b"a", b"a"], "empty-name": [b"a//b"],
    "slash-at-end": [b"a/"], "nul": [b"a\0b"], "below-a-file": [b"a", b"a-b", b"a/c"],
    "unsorted": [b"b", b"a"], "name-of-256": [b"a" * 256], "path-of-4096": [b"a/" * 2047 + b"ab"],
}
SIZES = {
    "size-2-63": [(b"a", 1 << 63, 0, 0, None)],
    "size-2-64-less-1": [(b"a", (1 << 64) - 1, 0, 0, None)],
    "sum-wraps": [(b"a", TOP, 0, 0, None), (b"b", TOP, 0, 0, None), (b"c", 2, 0, 0, None)],
    "data-of-nothing": [(b"a", 5, 5, 0, None)],
}
EXTENTS = {
    "extent-past-file": (CS, CS, [(1, 1, 0)]),
    "extent-of-none": (CS, 0, [(0, 0, 0)]),
    "extent-of-2-32": (TOP, CS, [(0, 0xFFFFFFFF, 0)]),
    "extent-at-2-64": (TOP, CS, [((1 << 64) - 1, 1, 0)]),
    "extents-overlap": (4 * CS, 2 * CS, [(0, 1, 0), (0, 1, 0)]),
    "chunk-number": (CS, CS, [(0, 1, 7)]),
}


def one_chunk(store, body, encoding, digest, **change):
    pack = Pack(store)
    off = pack.add(body, encoding, CS, digest, b"b" * 32 if encoding == 2 else bytes(32))
    if change.get("write", True):
        pack.write()
    return pack.name, chunk(0, change.get("offset", off), change.get("stored", len(body)),
                            change.get("says", encoding), digest, change.get("base", NO_BASE))


# Chunks that are not what is said of them.
CHUNKS = {
    "no-such-pack": lambda s: one_chunk(s, PLAIN, 0, sha(PLAIN), write=False),
    "past-the-pack": lambda s: one_chunk(s, PLAIN, 0, sha(PLAIN), offset=60 << 20),
    "other-bytes": lambda s: one_chunk(s, PLAIN, 0, sha(b"z" * CS)),
    "in-the-index": lambda s: one_chunk(s, PLAIN, 0, sha(PLAIN), offset=4096 + CS, says=1, stored=80),
    "offset-of-header": lambda s: one_chunk(s, PLAIN, 0, sha(PLAIN), offset=0),
    "encoding-3": lambda s: one_chunk(s, frame(CS, CS), 1, sha(b"x" * CS), says=3),
    "stored-of-16-mib": lambda s: one_chunk(s, PLAIN, 0, sha(PLAIN), stored=0xFFFFFF),
    "bomb": lambda s: one_chunk(s, frame(1 << 30, 1 << 30), 1, sha(b"x" * CS)),
    "bomb-of-2-63": lambda s: one_chunk(s, frame(1 << 63, CS), 1, sha(b"x" * CS)),
    "more-than-said": lambda s: one_chunk(s, frame(CS, 8 * CS), 1, sha(b"x" * CS)),
    "less-than-said": lambda s: one_chunk(s, frame(CS, CS - 1), 1, sha(b"x" * CS)),
    "two-frames": lambda s: one_chunk(s, frame(CS, CS) * 2, 1, sha(b"x" * CS)),
    "skippable": lambda s: one_chunk(s, struct.pack("<II", 0x184D2A50, 8) + bytes(8), 1, sha(PLAIN)),
    "cut-frame": lambda s: one_chunk(s, frame(CS, CS)[:-2], 1, sha(b"x" * CS)),
    "dictionary": lambda s: one_chunk(
        s, struct.pack("<IBBQ", 0xFD2FB528, 0xE1, 7, CS) + frame(CS, CS)[13:], 1, sha(b"x" * CS)),
    "its-own-base": lambda s: one_chunk(s, frame(CS, CS), 2, sha(b"x" * CS), base=0),
    "no-base": lambda s: one_chunk(s, frame(CS, CS), 2, sha(b"x" * CS), base=9),
}


def base_lie(store, rid, lie):
    """Chunk 0 on chunk 1, which is on chunk 2 (base-of-base), or on chunk 0 (base-loop)."""
    pack = Pack(store)
    x = sha(b"x" * CS)
    at = [pack.add(frame(CS, CS), 2, CS, x, b"b" * 32) for _ in range(2)]
    at.append(pack.add(frame(CS, CS), 1, CS, x))
    pack.write()
    chunks = [chunk(0, at[0], 16, 2, x, 1),
              chunk(0, at[1], 16, 2, x, 0 if lie == "base-loop" else 2)]
    if lie != "base-loop":
        chunks.append(chunk(0, at[2], 16, 1, x))
    record(store, rid, [(b"a", CS, CS, 1, None)], [(0, 1, 0)], chunks, [pack.name])


def make_record(store, lie, rid):
    if lie in PATHS:
        record(store, rid, [(p, 0, 0, 0, None) for p in PATHS[lie]], [], [], [])
    elif lie in SIZES:
        record(store, rid, SIZES[lie], [], [], [])
    elif lie in EXTENTS:
        size, data, extents = EXTENTS[lie]
        pack, c = one_chunk(store, PLAIN, 0, sha(PLAIN))
        record(store, rid, [(b"a", size, data, len(extents), None)], extents, [c], [pack])
    elif lie in CHUNKS:
        pack, c = CHUNKS[lie](store)
        record(store, rid, [(b"a", CS, CS, 1, None)], [(0, 1, 0)], [c], [pack])
    elif lie in ("base-of-base", "base-loop"):
        base_lie(store, rid, lie)
    # What is no lie, only unpleasant:
    elif lie == "huge":
        record(store, rid, [(b"a", TOP, 0, 0, None)], [], [], [])
    elif lie == "names":
        names = sorted([b"\x1b]0;owned\x07\x1b[31m", b"line\nfeed", b"\xff\xfe", b"\xc2\x9b31m",
                        "\u202eabc".encode(), b"a\\b", b"n" * 255])
        record(store, rid, [(n, 0, 0, 0, None) for n in names], [], [], [])
    elif lie == "deep":
        record(store, rid, [(b"d/" * 2000 + b"f", CS, CS, 1, None)], [(0, 1, 0)],
               [one_chunk_of("no-such-pack", store)[1]], [one_chunk_of.pack])
    else:
        sys.exit(f"no such lie: {lie}")


def one_chunk_of(lie, store):
    one_chunk_of.pack, c = CHUNKS[lie](store)
    return one_chunk_of.pack, c


def share(store, rid, new, field):
    """The manifest of rid as that of new, with the first chunk's sha or xxh changed."""
    folder = f"{store}/records/{rid}/"
    old = [n for n in os.listdir(folder) if n.startswith("export-")][0]
    with open(folder + old, "rb") as f:
        b = bytearray(f.read())
    meta = ('{"id":"%s"}' % new).encode()
    gen = sha(meta)[:8]
    chunks = struct.unpack_from("<Q", b, 96)[0]
    b[chunks + {"sha": 0, "xxh": 32}[field]] ^= 1
    b[160:168], b[176:216] = gen, new.encode().ljust(40, b"\0")
    # No content key can be right any more where the sha is not, so it is made right again.
    if field == "sha":
        files, extents = struct.unpack_from("<2Q", b, 80)
        for i in range(struct.unpack_from("<I", b, 64)[0]):
            at = files + 48 * i
            size, _, _, _, first, n = struct.unpack_from("<QQ4I", b, at)
            key = [struct.pack("<Q", size)]
            for x in range(first, first + n):
                number, count, c = struct.unpack_from("<QII", b, extents + 16 * x)
                key += [struct.pack("<Q", number + k) + b[chunks + 64 * (c + k):][:32]
                        for k in range(count)]
            b[at + 32:at + 48] = sha(b"".join(key))[:16]
    b[288:320] = sha(bytes(b[:288]))
    b[-32:] = sha(bytes(b[:-32]))
    put(f"{store}/records/{new}/export-{gen.hex()}", bytes(b))
    put(f"{store}/records/{new}/meta.json", meta)


def index_bomb(store):
    pack = Pack(store)
    pack.data += bytes(16)
    n = ((64 << 20) - len(pack.data) - 64) // 80
    tail = struct.pack("<4I", 64, 16 | 2 << 24, CS, 0)
    pack.entries = [struct.pack("<Q24x", i + 1) + b"b" * 32 + tail for i in range(n)]
    pack.write()


def main():
    if sys.argv[1:] == ["lies"]:
        print(*PATHS, *SIZES, *EXTENTS, *CHUNKS, "base-of-base", "base-loop")
        return
    store, what, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if what == "format":
        seal_format(store, rest)
    elif what == "record":
        make_record(store, *rest)
    elif what == "shared":
        share(store, *rest)
    elif what == "index-bomb":
        index_bomb(store)
    else:
        sys.exit(__doc__)


main()
