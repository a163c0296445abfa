#!/usr/bin/env python3
"""Looks at a UFS1 or UFS2 as its own maps describe it, without Platter's reader.

ufs_space.py used IMAGE          prints how many bytes are in use
ufs_space.py mark IMAGE MARKER   writes the marker all over the free space
ufs_space.py at64k IMAGE         moves the superblock of UFS2 to 64 KiB, where FreeBSD writes it: makefs writes it at 8 KiB, and a
                                 copy at 64 KiB if blocks are that long
"""
import struct
import sys

UFS1, UFS2 = 0x011954, 0x19540119
PLACES = (64 << 10, 8 << 10)


def number(data, at):
    return struct.unpack_from("<i", data, at)[0]


def superblock(data):
    for place in PLACES:
        magic = number(data, place + 1372)
        if magic == UFS1 and place == 8 << 10:
            return place
        if magic == UFS2 and struct.unpack_from("<q", data, place + 1000)[0] == place:
            return place
    raise SystemExit("there is no superblock")


def free_fragments(data):
    """The numbers of all free fragments, and the size of one."""
    start = superblock(data)
    header, offset, mask, groups, size, per_group = (number(data, start + at) for at in (12, 24, 28, 44, 52, 188))
    found = []
    for group in range(groups):
        base = group * per_group
        shift = offset * (group & ~mask) if number(data, start + 1372) == UFS1 else 0
        place = (base + shift + header) * size
        count, bits = number(data, place + 20), place + number(data, place + 96)
        found += [base + at for at in range(count) if data[bits + at // 8] >> (at % 8) & 1]
    return found, size


def main():
    command, image = sys.argv[1:3]
    with open(image, "rb") as file:
        data = bytearray(file.read())
    if command == "at64k":
        old, new = superblock(data), 64 << 10
        data[new:new + 8192] = data[old:old + 8192]
        data[old:old + 8192] = bytes(8192)
        data[new + 1000:new + 1008] = struct.pack("<q", new)
    else:
        free, size = free_fragments(data)
        if command == "used":
            print(len(data) - len(free) * size)
            return
        marker = (sys.argv[3].encode() * (size // len(sys.argv[3]) + 1))[:size]
        for fragment in free:
            data[fragment * size:(fragment + 1) * size] = marker
    with open(image, "wb") as file:
        file.write(data)


main()
