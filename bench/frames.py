#!/usr/bin/python3
"""bench/frames.py DISK...: what longer frames and dictionaries would save.

Takes the aligned blocks of 64 KiB that are not zero, each content once, in order, and compresses them in frames of several
lengths: at levels 3 and 19, alone and with a dictionary trained on every 50th frame (of the first 2,000 frames of 128 KiB
of each disk). Every 32nd MiB is measured. Sizes are the same in every run. Needs the
package python3-zstandard.
"""
import hashlib
import os
import sys

import zstandard

BLOCK = 64 << 10
FRAMES = (64 << 10, 128 << 10, 256 << 10, 1 << 20)
DICTIONARIES = (112 << 10, 1 << 20)


def data(path):
    """The parts of a sparse file that have data, in whole blocks."""
    with open(path, "rb", buffering=0) as disk:
        size, offset = os.fstat(disk.fileno()).st_size, 0
        while offset < size:
            try:
                found = os.lseek(disk.fileno(), offset, os.SEEK_DATA)
                end = os.lseek(disk.fileno(), found, os.SEEK_HOLE)
            except OSError:
                return
            offset = found // BLOCK * BLOCK
            disk.seek(offset)
            while offset < end:
                yield disk.read(BLOCK)
                offset += BLOCK


def distinct(path, seen):
    """The disk's blocks that are not zero and not in `seen`, to which they are added."""
    for block in data(path):
        digest = hashlib.blake2b(block, digest_size=16).digest()
        if block.count(0) != len(block) and digest not in seen:
            seen.add(digest)
            yield block


def main():
    seen, groups, samples = set(), [], []
    for path in sys.argv[1:]:
        blocks = list(distinct(path, seen))
        pairs = [b"".join(blocks[at : at + 2]) for at in range(0, min(len(blocks), 4000), 2)]
        samples += pairs[::50]
        groups += [b"".join(blocks[at : at + 16]) for at in range(0, len(blocks), 16 * 32)]
    total = sum(map(len, groups))
    print(f"{total / 1e6:.1f} MB in {len(groups)} pieces of 1 MiB; ratios to frames of 128 KiB at the same level, without a dictionary")
    for level in (3, 19):
        base = None
        for frame in (128 << 10, *(other for other in FRAMES if other != 128 << 10)):
            frames = [group[at : at + frame] for group in groups for at in range(0, len(group), frame)]
            plain = sum(len(zstandard.ZstdCompressor(level=level).compress(part)) for part in frames)
            base = base or plain
            print(f"level {level:2}, frames of {frame >> 10:4} KiB: {plain / 1e6:7.1f} MB, {plain / base:.4f}", flush=True)
            for size in DICTIONARIES if frame == 128 << 10 else ():
                trained = zstandard.train_dictionary(size, samples, k=1024, d=8)
                compressor = zstandard.ZstdCompressor(level=level, dict_data=trained)
                with_it = sum(len(compressor.compress(part)) for part in frames)
                print(f"    dictionary of {len(trained.as_bytes()) >> 10} KiB: {with_it / 1e6:7.1f} MB, {with_it / base:.4f}")


if __name__ == "__main__":
    main()
