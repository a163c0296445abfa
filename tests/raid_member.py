#!/usr/bin/env python3
"""Writes the superblock of a member of a RAID of Linux, where the kernel has no RAID. Prints offset and length of its data.

    raid_member.py VERSION DEVICE [FIELD=NUMBER]...     VERSION: 0.90, 1.0, 1.1 or 1.2

Layout: include/uapi/linux/raid/md_p.h. The member is number 1 of a RAID 1 of two, which was stopped in order. FIELD changes a
field of the superblock: level, features, bitmap, resync or role (versions 1), level, state or role (version 0.90).
"""

import os
import struct
import sys

MAGIC = 0xA92B4EFC


def folded(words):
    total = sum(words)
    return (total + (total >> 32)) & 0xFFFFFFFF


def new(version, length, fields):
    sectors = length // 512
    place = {"1.0": (sectors - 16) & ~7, "1.1": 0, "1.2": 8}[version]
    start = 0 if version == "1.0" else 2048
    end = place - 256 if version == "1.0" else sectors
    used = (end - start) & ~127
    block = bytearray(4096)
    struct.pack_into("<III", block, 0, MAGIC, 1, fields.get("features", 0))
    block[16:32] = bytes(range(1, 17))
    block[32:40] = b"vm:array"
    struct.pack_into("<QiIQIIi", block, 64, 1_700_000_000, fields.get("level", 1), 0, used, 0, 2, fields.get("bitmap", 0))
    struct.pack_into("<QQQQII", block, 128, start, end - start, place, 0, 1, 0)
    block[168:184] = bytes(range(17, 33))
    struct.pack_into("<QQQ", block, 192, 1_700_000_001, 19, fields.get("resync", 0xFFFFFFFFFFFFFFFF))
    struct.pack_into("<I", block, 220, 128)
    struct.pack_into("<128H", block, 256, 0, fields.get("role", 1), *[0xFFFF] * 126)
    struct.pack_into("<I", block, 216, folded(struct.unpack_from("<128I", block, 0)))
    return place * 512, block, start * 512, used * 512


def old(length, fields):
    place = (length & ~0xFFFF) - 0x10000
    words = [0] * 1024
    words[0:12] = [MAGIC, 0, 90, 0, 0, 0x01020304, 1_700_000_000, fields.get("level", 1), place // 1024, 2, 2, 0]
    words[13:16] = [0x05060708, 0x090A0B0C, 0x0D0E0F10]
    words[32:40] = [1_700_000_001, fields.get("state", 1), 2, 2, 0, 0, 0, 19]
    words[41] = 19
    words[43] = 0xFFFFFFFF
    for number in (0, 1):
        words[128 + 32 * number : 133 + 32 * number] = [number, 8, 1 + 16 * number, number, 6]
    words[992:997] = [1, 8, 17, 1, fields.get("role", 6)]
    words[38] = folded(words)
    return place, struct.pack("<1024I", *words), 0, place


def main():
    version, path, *changes = sys.argv[1:]
    fields = {name: int(number, 0) for name, number in (change.split("=") for change in changes)}
    with open(path, "r+b") as device:
        length = device.seek(0, os.SEEK_END)
        place, block, start, used = old(length, fields) if version == "0.90" else new(version, length, fields)
        device.seek(place)
        device.write(block)
    print(start, used)


main()
