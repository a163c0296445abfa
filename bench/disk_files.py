"""Positions of files on a disk, for the benchmarks that classify what boots read and that derive disks.

ranges(path) needs a mounted file system whose files have fixed places (ext4, XFS).
"""
import array
import fcntl
import json
import os
import struct
import subprocess

FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 1
EXTENT_LAST, UNUSABLE = 1, 0x2 | 0x4 | 0x8 | 0x100 | 0x200  # unknown, delayed, encoded, not aligned, inline
EXTENTS = 256


def ranges(path):
    """(offset in the file system's partition, length) of each extent of a file."""
    found, start = [], 0
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        while True:
            head = struct.pack("=QQLLLL", start, (1 << 63) - 1, FIEMAP_FLAG_SYNC, 0, EXTENTS, 0)
            buffer = array.array("B", head + bytes(56 * EXTENTS))
            fcntl.ioctl(fd, FS_IOC_FIEMAP, buffer)
            count = struct.unpack_from("=L", buffer, 20)[0]
            for n in range(count):
                logical, physical, length, _, _, flags = struct.unpack_from("=QQQQQL", buffer, 32 + 56 * n)
                start = logical + length
                if not flags & UNUSABLE:
                    found.append((physical, length))
                if flags & EXTENT_LAST:
                    return found
            if count == 0:
                return found
    except OSError:
        return found
    finally:
        os.close(fd)


def partitions(disk):
    """(offset, length, type of file system) of each partition of a disk."""
    table = json.loads(subprocess.check_output(["sfdisk", "-J", disk], stderr=subprocess.DEVNULL))
    for part in table["partitiontable"]["partitions"]:
        offset, length = part["start"] * 512, part["size"] * 512
        probe = ["blkid", "-p", "-O", str(offset), "-S", str(length), "-o", "value", "-s", "TYPE", disk]
        kind = subprocess.run(probe, capture_output=True, text=True, check=False).stdout.strip()
        yield offset, length, kind
