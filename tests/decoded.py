#!/usr/bin/env python3
"""Prints the decoded data of all blocks in the packs of a store, also of blocks that no version needs.

    decoded.py STORE

docs/formats/pack.md and frame.md have the layout. Refuses encrypted stores and packs that are not sealed.
"""

import pathlib
import struct
import subprocess
import sys

DATA = 1
RAW, ZSTD = 0, 1


def frames(pack):
    """Yields codec and payload of every frame with data."""
    assert pack[-64:-60] == b"PLpt", "the pack is not sealed"
    footer = struct.unpack_from("<Q", pack, len(pack) - 64 + 8)[0]
    assert pack[footer:footer + 4] == b"PLpf"
    for number in range(struct.unpack_from("<I", pack, footer + 8)[0]):
        at = struct.unpack_from("<Q", pack, footer + 16 + 24 * number)[0]
        assert pack[at:at + 4] == b"PLpr"
        kind, codec, cipher = pack[at + 5:at + 8]
        length, blocks = struct.unpack_from("<II", pack, at + 12)
        assert cipher == 0, "the store is encrypted"
        if kind == DATA:
            start = at + 56 + 4 * blocks
            yield codec, pack[start:start + length]


def main():
    compressed = []
    for path in sorted(pathlib.Path(sys.argv[1], "packs").rglob("*.pack")):
        for codec, payload in frames(path.read_bytes()):
            assert codec in (RAW, ZSTD)
            if codec == ZSTD:
                compressed.append(payload)
            else:
                sys.stdout.buffer.write(payload)
    sys.stdout.flush()
    # Each payload is a complete stream of zstd; the program takes any number of them, one after another.
    if compressed:
        subprocess.run(["zstd", "-dcq"], input=b"".join(compressed), check=True)


main()
