#!/usr/bin/env python3
"""Writes structures for tests/past.sh that no available tool can write.

past.py marks                       lists the names of all owner marks, one per line
past.py mark NAME FILE              writes this mark, in the place and form of its owner
past.py record FILE SECTOR [SLOT:STATUS:TYPE:START:LENGTH]...
                                    writes a boot record: slots from 1, status and type in hexadecimal, the rest in sectors
past.py bytes FILE OFFSET HEX       writes bytes; a negative offset counts from the end
past.py chain FILE SECTOR NUMBER    writes a chain of NUMBER extended boot records, three sectors apart
past.py outside A B OFFSET:LENGTH.. fails if the files differ outside of these ranges
"""
import os
import struct
import sys

KIB, MIB, SECTOR = 1 << 10, 1 << 20, 512


def text(string):
    return string.encode("latin-1")


def word_sum(words):
    total = sum(words)
    return (total >> 32) + total & 0xFFFFFFFF


def md_version_1(place, length):
    """A superblock of Linux RAID 1.x at `place`, with its checksum."""
    block = bytearray(256)
    struct.pack_into("<II", block, 0, 0xA92B4EFC, 1)
    block[16:32] = text("PLATTER-TESTS-MD")
    block[32:36] = b"past"
    struct.pack_into("<iI", block, 72, 1, 0)
    struct.pack_into("<QII", block, 80, length // SECTOR - 64, 0, 2)
    struct.pack_into("<QQQ", block, 128, 16, length // SECTOR - 64, place // SECTOR)
    struct.pack_into("<I", block, 216, word_sum(struct.unpack("<64I", block)))
    return place, bytes(block)


def md_version_0(length):
    block = bytearray(4096)
    struct.pack_into("<8I", block, 0, 0xA92B4EFC, 0, 90, 0, 0, 1, 0, 1)
    struct.pack_into("<I", block, 32, length // KIB - 128)
    return length // (64 * KIB) * 64 * KIB - 64 * KIB, bytes(block)


def via(length):
    block = bytearray(51)
    block[:3] = b"\x55\xaa\x01"
    block[50] = sum(block[:50]) & 0xFF
    return length - SECTOR, bytes(block)


def silicon(length):
    block = bytearray(SECTOR)
    block[0x60:0x64] = b"\0\0\0\x2f"
    struct.pack_into("<H", block, 0x13E, -sum(struct.unpack("<159H", block[:0x13E])) & 0xFFFF)
    return length - SECTOR, bytes(block)


def jmicron(length):
    block = bytearray(128)
    block[:2] = b"JM"
    struct.pack_into("<H", block, 4, -sum(struct.unpack("<64H", block)) & 0xFFFF)
    return length - SECTOR, bytes(block)


def zfs(label):
    """The name list of this label: labels 0 and 1 are at the start, 2 and 3 at the end."""

    def mark(length):
        end = length // (256 * KIB) * 256 * KIB
        start = label * 256 * KIB if label < 2 else end - (4 - label) * 256 * KIB
        return start + 16 * KIB, b"\1\1\0\0\0\0\0\0\0\0\0\1\0\0\0\x24\0\0\0\x20\0\0\0\7version\0"

    return mark


def uberblock(label):
    return lambda length: (zfs(label)(length)[0] + 112 * KIB + 5 * KIB, b"\x0c\xb1\xba\0\0\0\0\0\x88\x13\0\0\0\0\0\0")


def minix(_length):
    return KIB, struct.pack("<HHHHHHIHH", 64, 1000, 1, 1, 32, 0, 0x10081C00, 0x137F, 1) + bytes(46)


def at(offset, *marks):
    """Bytes at an offset; a negative one counts from the end."""
    return lambda length: (offset if offset >= 0 else length + offset, b"".join(marks))


MARKS = {
    "md-0.90": md_version_0,
    "md-1.0": lambda length: md_version_1(length // 4096 * 4096 - 8192, length),
    "md-1.1": lambda length: md_version_1(0, length),
    "md-1.2": lambda length: md_version_1(4096, length),
    "ddf": at(-SECTOR, b"\xde\x11\xde\x11"),
    "ddf-second": at(-257 * SECTOR, b"\xde\x11\xde\x11"),
    "isw": at(-1024, b"Intel Raid ISM Cfg Sig. 1.3.00"),
    "lsi": at(-SECTOR, b"$XIDE$"),
    "via": via,
    "silicon": silicon,
    "nvidia": at(-1024, b"NVIDIA  "),
    "promise": at(-63 * SECTOR, b"Promise Technology, Inc."),
    "hpt45x": at(-11 * SECTOR, b"\xf3\x16\x78\x5a"),
    "hpt37x": at(4640, b"\xf0\x16\x78\x5a"),
    "adaptec": at(-SECTOR, b"\x37\xfc\x4d\x1e"),
    "jmicron": jmicron,
    "bcache": at(4120, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    "bcachefs": at(4120, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")),
    "bcachefs-end": at(-MIB + 24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")),
    "bluestore": at(0, b"bluestore block device\n"),
    "drbd": at(-4096 + 60, b"\x83\x74\x02\x6b"),
    "lvm1": at(0, b"HM\1\0"),
    "snapshot": at(0, b"SnAp"),
    "verity": at(0, b"verity\0\0"),
    "integrity": at(0, b"integrt\0"),
    "luks2-second": at(0x4000, b"SKUL\xba\xbe\0\2"),
    "vmfs-volume": at(MIB, b"\x0d\xd0\x01\xc0"),
    "vmfs": at(2 * MIB, b"\x5e\xf1\xab\x2f"),
    "vdo": at(0, b"dmvdo001"),
    "stratis": at(516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    "bitlocker": at(0, b"\xeb\x58\x90-FVE-FS-"),
    "zfs-0": zfs(0),
    "zfs-1": zfs(1),
    "zfs-2": zfs(2),
    "zfs-3": zfs(3),
    "zfs-uberblock-0": uberblock(0),
    "zfs-uberblock-3": uberblock(3),
    "asm": at(32, b"ORCLDISK"),
    "ldm": at(3072, b"PRIVHEAD"),
    "refs": at(0, b"\0\0\0ReFS\0"),
    "apfs": at(32, b"NXSB"),
    "hfsplus": at(1024, b"H+\0\4"),
    "jfs": at(32 * KIB, b"JFS1"),
    "reiserfs": at(64 * KIB + 52, b"ReIsEr2Fs"),
    "reiser4": at(64 * KIB, b"ReIsEr4"),
    "ufs1": at(8 * KIB + 1372, b"\x54\x19\x01\x00"),
    "ufs2": at(64 * KIB + 1372, b"\x19\x01\x54\x19"),
    "f2fs": at(1024, b"\x10\x20\xf5\xf2"),
    "erofs": at(1024, b"\xe2\xe1\xf5\xe0"),
    "squashfs": at(0, b"hsqs"),
    "gfs2": at(64 * KIB, b"\x01\x16\x19\x70"),
    "ocfs2": at(8 * KIB, b"OCFSV2"),
    "nilfs2": at(1024, b"\2\0\0\0\0\0\x34\x34"),
    "nilfs2-end": at(-4096, b"\2\0\0\0\0\0\x34\x34"),
    "minix": minix,
    "befs": at(544, b"1SFB"),
    "vxfs": at(8192, b"\xa5\x01\xfc\xf5"),
    "udf": at(32 * KIB, b"\0BEA01\1"),
    "iso9660": at(32 * KIB, b"\1CD001\1"),
    "bsd-label": at(512, b"\x57\x45\x56\x82"),
    "solaris-label": at(524, b"\xee\xde\x0d\x60\1\0\0\0"),
    "unixware-label": at(29 * SECTOR + 4, b"\x0d\x60\xe5\xca"),
    "sun-label": at(256, b"\xda\xbe", bytes(250), b"\xda\xbe"),
    "sgi-label": at(0, b"\x0b\xe5\xa9\x41"),
    "amiga-label": at(0, b"RDSK"),
    "gpt-backup": at(-SECTOR, b"EFI PART"),
}


def write(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)


def record(path, sector, entries):
    table = bytearray(64)
    for entry in entries:
        slot, status, kind, start, length = entry.split(":")
        fields = (int(status, 16), b"\0\0\0", int(kind, 16), b"\0\0\0", int(start), int(length))
        struct.pack_into("<B3sB3sII", table, (int(slot) - 1) * 16, *fields)
    write(path, sector * SECTOR + 446, bytes(table) + b"\x55\xaa")


def chain(path, sector, number):
    for link in range(number):
        entries = ["1:00:83:1:1"]
        if link + 1 < number:
            entries.append(f"2:00:05:{3 * (link + 1)}:3")
        write(path, (sector + 3 * link) * SECTOR, bytes(SECTOR))
        record(path, sector + 3 * link, entries)


def outside(path_a, path_b, places):
    with open(path_a, "rb") as file_a, open(path_b, "rb") as file_b:
        a, b = bytearray(file_a.read()), bytearray(file_b.read())
    for place in places:
        offset, length = map(int, place.split(":"))
        for contents in a, b:
            contents[offset : offset + length] = bytes(length)
    if a != b:
        first = next(at for at, (one, other) in enumerate(zip(a, b)) if one != other)
        sys.exit(f"{path_b} has other bytes from {first} on")


def main(command, *arguments):
    if command == "marks":
        print("\n".join(MARKS))
    elif command == "mark":
        name, path = arguments
        offset, data = MARKS[name](os.path.getsize(path))
        write(path, offset, data)
    elif command == "record":
        record(arguments[0], int(arguments[1]), arguments[2:])
    elif command == "bytes":
        write(arguments[0], int(arguments[1]), bytes.fromhex(arguments[2]))
    elif command == "chain":
        chain(arguments[0], int(arguments[1]), int(arguments[2]))
    elif command == "outside":
        outside(arguments[0], arguments[1], arguments[2:])
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
