#!/usr/bin/env python3
"""disklabel.py DISK SECTOR PARTITION...: writes a BSD disklabel to the slice that begins at this sector, as sys/disklabel.h has it.

A partition is TYPE,FIRST,SECTORS: type 0 is unused, 1 swap, 7 UFS. The first one is `a`.
"""
import struct
import sys

MAGIC = 0x82564557

disk, slice_start = sys.argv[1], int(sys.argv[2])
partitions = [[int(field) for field in text.split(",")] for text in sys.argv[3:]]
label = bytearray(148)
struct.pack_into("<I", label, 0, MAGIC)
struct.pack_into("<I", label, 40, 512)
struct.pack_into("<I", label, 132, MAGIC)
struct.pack_into("<HII", label, 138, len(partitions), 8192, 65536)
for kind, first, sectors in partitions:
    label += struct.pack("<IIIBBH", sectors, first, 2048 if kind == 7 else 0, kind, 8 if kind == 7 else 0, 0)
checksum = 0
for (word,) in struct.iter_unpack("<H", label):
    checksum ^= word
struct.pack_into("<H", label, 136, checksum)
with open(disk, "r+b") as file:
    file.seek((slice_start + 1) * 512)
    file.write(label)
