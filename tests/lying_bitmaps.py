#!/usr/bin/env python3
"""tests/lying_bitmaps.py IMAGE [uninit-inodes=GROUP] [uninit-blocks=GROUP] [unused=GROUP:COUNT] BLOCK...

Marks blocks that are in use as free in the bitmaps of an ext file system without metadata checksums. All counts and the
checksums of group descriptors agree with the bitmaps, so only the inodes show the error.
"""
import struct
import sys


def crc16(data):
    value = 0xFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
    return value


class Image:
    def __init__(self, path):
        self.file = open(path, "r+b")
        self.superblock = bytearray(self.read(1024, 1024))
        field = lambda at: struct.unpack_from("<I", self.superblock, at)[0]
        self.block_size = 1024 << field(0x18)
        self.first, self.per_group = field(0x14), field(0x20)
        self.has_checksums = field(0x64) & 0x10
        self.cluster = 1 << field(0x1C) - field(0x18) if field(0x64) & 0x200 else 1
        assert not field(0x64) & 0x400, "it has metadata checksums"
        self.descriptor_size = struct.unpack_from("<H", self.superblock, 0xFE)[0] if field(0x60) & 0x80 else 32
        self.uuid = bytes(self.superblock[0x68:0x78])

    def read(self, at, length):
        self.file.seek(at)
        return self.file.read(length)

    def write(self, at, data):
        self.file.seek(at)
        self.file.write(data)

    def change_descriptor(self, group, change):
        block = 2 if self.block_size == 1024 else 1
        at = block * self.block_size + group * self.descriptor_size
        descriptor = bytearray(self.read(at, self.descriptor_size))
        change(descriptor)
        if self.has_checksums:
            parts = self.uuid + struct.pack("<I", group) + descriptor[:0x1E] + descriptor[0x20:]
            struct.pack_into("<H", descriptor, 0x1E, crc16(parts))
        self.write(at, descriptor)

    def free(self, block):
        group, bit = (block - self.first) // self.per_group, (block - self.first) % self.per_group // self.cluster

        def change(descriptor):
            at = struct.unpack_from("<I", descriptor, 0)[0] * self.block_size + bit // 8
            byte = self.read(at, 1)[0]
            if not byte >> bit % 8 & 1:
                return
            self.write(at, bytes([byte & ~(1 << bit % 8)]))
            add(descriptor, 0x0C, "<H")
            add(self.superblock, 0x0C, "<I")

        self.change_descriptor(group, change)
        self.write(1024, self.superblock)


def add(data, at, kind):
    struct.pack_into(kind, data, at, struct.unpack_from(kind, data, at)[0] + 1)


def put(at, value, also=0):
    def change(descriptor):
        old = struct.unpack_from("<H", descriptor, at)[0]
        struct.pack_into("<H", descriptor, at, old | also if also else value)

    return change


image = Image(sys.argv[1])
for argument in sys.argv[2:]:
    name, _, value = argument.partition("=")
    if name == "uninit-inodes":
        image.change_descriptor(int(value), put(0x12, 0, also=1))
    elif name == "uninit-blocks":
        image.change_descriptor(int(value), put(0x12, 0, also=2))
    elif name == "unused":
        group, _, count = value.partition(":")
        image.change_descriptor(int(group), put(0x1C, int(count)))
    else:
        image.free(int(argument))
