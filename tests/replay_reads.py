#!/usr/bin/env python3
"""Replays the reads of a recorded boot: replay_reads.py TRACE DISK

DISK is a file or the URI of an NBD server. Prints how many reads there were, of how many bytes, and a digest of everything that was read.
The reads begin in the order in which they arrived when TRACE was recorded (docs/formats/trace.md), several at once, as fast as they are
answered. The recording may go on meanwhile: what is written of it counts.
"""
import hashlib
import os
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

HEADER, BATCH_HEAD, REQUEST, CHECKSUM = 64, 16, 40, 8
READ = 1
AT_ONCE = 4


def reads(path):
    """Offset and length of each successful read, in order of arrival."""
    with open(path, "rb") as file:
        trace = file.read()
    assert trace[:4] == b"PLtr" and struct.unpack_from("<H", trace, 4) == (1,), "not a trace of version 1"
    found, at = [], HEADER
    while at + BATCH_HEAD <= len(trace):
        count = struct.unpack_from("<I", trace, at)[0]
        end = at + BATCH_HEAD + count * REQUEST + CHECKSUM
        if end > len(trace):
            break
        for n in range(count):
            kind, failed, offset, length, arrival, _ = struct.unpack_from("<BB6xQQQQ", trace, at + BATCH_HEAD + n * REQUEST)
            if kind == READ and not failed:
                found.append((arrival, offset, length))
        at = end
    return [(offset, length) for _, offset, length in sorted(found)]


def reader_of(disk):
    """A function that reads a range. Each thread has a connection of its own."""
    if "://" not in disk:
        file = os.open(disk, os.O_RDONLY)
        return lambda offset, length: os.pread(file, length, offset)
    import nbd

    own = threading.local()

    def read(offset, length):
        if not hasattr(own, "connection"):
            own.connection = nbd.NBD()
            own.connection.connect_uri(disk)
        return bytes(own.connection.pread(length, offset))

    return read


def main():
    trace, disk = sys.argv[1:]
    wanted, read = reads(trace), reader_of(disk)

    def digest(place):
        contents = read(*place)
        assert len(contents) == place[1], f"{len(contents)} bytes instead of {place[1]} at {place[0]}"
        return hashlib.sha256(contents).digest()

    whole = hashlib.sha256()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for part in pool.map(digest, wanted):
            whole.update(part)
    print(len(wanted), sum(length for _, length in wanted), whole.hexdigest())


main()
