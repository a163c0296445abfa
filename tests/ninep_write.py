#!/usr/bin/env python3
"""Writes a file of the tree over 9P2000.L: ninep_write.py SOCKET PATH OFFSET <BYTES. Ends with the error number if one is answered."""

import socket
import struct
import sys

ERROR, LOPEN, ATTACH, WALK, FSYNC, WRITE, VERSION = 7, 12, 104, 110, 50, 118, 100
WRITE_ONLY, BYTES_MAX = 1, 32768


def text(value):
    return struct.pack("<H", len(value)) + value.encode()


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(60)
        self.ask(VERSION, struct.pack("<I", 65536) + text("9P2000.L"), tag=0xFFFF)
        self.ask(ATTACH, struct.pack("<II", 0, 0xFFFFFFFF) + text("nobody") + text("") + struct.pack("<I", 0xFFFFFFFF))

    def ask(self, kind, body, tag=1):
        self.socket.sendall(struct.pack("<IBH", 7 + len(body), kind, tag) + body)
        size, answer, _ = struct.unpack("<IBH", self.exactly(7))
        data = self.exactly(size - 7)
        if answer == ERROR:
            sys.exit(struct.unpack("<I", data)[0])
        return data

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit("the server hung up")
            data += more
        return data


def main():
    path, name, offset = sys.argv[1], sys.argv[2], int(sys.argv[3])
    client = Client(path)
    names = name.split("/")
    client.ask(WALK, struct.pack("<IIH", 0, 1, len(names)) + b"".join(map(text, names)))
    client.ask(LOPEN, struct.pack("<II", 1, WRITE_ONLY))
    while data := sys.stdin.buffer.read(BYTES_MAX):
        written = client.ask(WRITE, struct.pack("<IQI", 1, offset, len(data)) + data)
        if struct.unpack("<I", written)[0] != len(data):
            sys.exit("written in part")
        offset += len(data)
    client.ask(FSYNC, struct.pack("<II", 1, 0))


main()
