#!/usr/bin/python3
"""bench/boot-sets.py TRACES-DIR CATALOG-DIR: what boots read, by the size of blocks (Squirrel's figures 8 to 11).

For each `NAME.trace` that `bench/boots.sh` recorded of the disk `NAME.raw`: the aligned blocks that the boot reads before it
writes them. Zeros are left out. Each distinct block is compressed alone with zstd 3. Prints, for each size of blocks: what boots
read in whole blocks, their distinct contents, these compressed, the number of blocks (each takes an entry of an index), and
the time to decompress what one boot reads, as a ratio to blocks of 64 KiB. Needs the package python3-zstandard.
"""
import hashlib
import os
import struct
import sys
import time

import zstandard

SIZES = [1 << power for power in range(10, 21)]
REFERENCE = 64 << 10
READ, FLUSH = 1, 4


def requests(path):
    """Kind, offset and length of each request of a trace, in the order of arrival (docs/formats/trace.md)."""
    found = []
    with open(path, "rb") as trace:
        if trace.read(64)[:4] != b"PLtr":
            sys.exit(f"{path} is no trace")
        while True:
            (count,) = struct.unpack("<I12x", trace.read(16))
            if count == 0:
                break
            for _ in range(count):
                kind, offset, length, start, _ = struct.unpack("<B7x4Q", trace.read(40))
                found.append((start, kind, offset, length))
            trace.read(8)
    return [request[1:] for request in sorted(found)]


def blocks_read(trace, size):
    """The numbers of the blocks that are read before they are written, each once."""
    read, written = {}, set()
    for kind, offset, length in trace:
        if kind == FLUSH or length == 0:
            continue
        for block in range(offset // size, (offset + length - 1) // size + 1):
            if kind != READ:
                written.add(block)
            elif block not in written:
                read[block] = None
    return list(read)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    traces, catalog = sys.argv[1:]
    names = sorted(name[: -len(".trace")] for name in os.listdir(traces) if name.endswith(".trace"))
    boots = [(requests(f"{traces}/{name}.trace"), os.open(f"{catalog}/{name}.raw", os.O_RDONLY)) for name in names]
    print(f"{len(boots)} boots, which request {sum(length for boot, _ in boots for kind, _, length in boot if kind == READ) / 1e6:.0f} MB")
    print("block, KiB | read, MB | distinct, MB | compressed, MB | dedup | compression | combined | blocks | decompressing")
    rows = [measure(boots, size) for size in SIZES]
    reference = rows[SIZES.index(REFERENCE)][-1]
    for size, (read, distinct, compressed, count, seconds) in zip(SIZES, rows):
        print(
            f"{size >> 10} | {read / 1e6:.0f} | {distinct / 1e6:.0f} | {compressed / 1e6:.0f} | {read / distinct:.2f} | "
            f"{distinct / compressed:.2f} | {read / compressed:.2f} | {count} | {seconds / reference:.2f}"
        )


def measure(boots, size):
    """Bytes read, distinct and compressed, the number of distinct blocks, and the seconds of decompressing all boots' reads."""
    compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    stored, read, distinct, seconds = {}, 0, 0, 0
    for boot, disk in boots:
        for number in blocks_read(boot, size):
            block = os.pread(disk, size, number * size)
            if block.count(0) == len(block):
                continue
            read += len(block)
            digest = hashlib.blake2b(block, digest_size=16).digest()
            if digest not in stored:
                stored[digest] = compressor.compress(block)
                distinct += len(block)
            start = time.process_time()
            decompressor.decompress(stored[digest])
            seconds += time.process_time() - start
    return read, distinct, sum(map(len, stored.values())), len(stored), seconds


main()
