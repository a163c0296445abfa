#!/usr/bin/env python3
"""Sends every request of 9P2000.L that changes something, and fails unless each is refused as EROFS.

    ninep_changes.py SOCKET|HOST:PORT DIRECTORY FILE    DIRECTORY such as lab/disk, FILE a name in it
    ninep_changes.py SOCKET|HOST:PORT                   only connects and attaches

A connection that is closed before it is answered ends this with exit code 3.
"""

import socket
import struct
import sys

EROFS, ENOTEMPTY = 30, 39
ERROR, ATTACH, WALK = 7, 104, 110


def text(value):
    return struct.pack("<H", len(value)) + value.encode()


class Client:
    def __init__(self, address):
        if "/" in address:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(20)
        self.ask(100, struct.pack("<I", 65536) + text("9P2000.L"), tag=0xFFFF)
        self.ask(ATTACH, struct.pack("<II", 0, 0xFFFFFFFF) + text("nobody") + text("") + struct.pack("<I", 0xFFFFFFFF))

    def read(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionError:
                more = b""
            if not more:
                sys.exit(3)
            data += more
        return data

    def send(self, kind, body, tag):
        try:
            self.socket.sendall(struct.pack("<IBH", 7 + len(body), kind, tag) + body)
        except ConnectionError:
            sys.exit(3)

    def try_it(self, kind, body, tag=1):
        """The error number, or None."""
        self.send(kind, body, tag)
        size, answer, _ = struct.unpack("<IBH", self.read(7))
        data = self.read(size - 7)
        return struct.unpack("<I", data)[0] if answer == ERROR else None

    def ask(self, kind, body, tag=1):
        error = self.try_it(kind, body, tag)
        if error is not None:
            sys.exit(f"request {kind}: error {error}")

    def walk(self, fid, new, path):
        names = [name for name in path.split("/") if name]
        self.ask(WALK, struct.pack("<IIH", fid, new, len(names)) + b"".join(map(text, names)))


def main():
    client = Client(sys.argv[1])
    if len(sys.argv) == 2:
        return
    directory, name = sys.argv[2:]
    client.walk(0, 1, directory)
    client.walk(0, 2, f"{directory}/{name}")
    client.walk(0, 3, f"{directory}/{name}")
    client.walk(0, 4, "import")
    write_only, read_write, create = 1, 2, 0o101
    attributes = struct.pack("<III", 8, 0o777, 0) + struct.pack("<I", 0) + struct.pack("<QQQQQ", 0, 0, 0, 0, 0)
    changes = {
        "open to write": (12, struct.pack("<II", 2, write_only)),
        "open to read and write": (12, struct.pack("<II", 2, read_write)),
        "create in import": (14, struct.pack("<I", 4) + text("new.raw") + struct.pack("<III", create, 0o644, 0)),
        "create": (14, struct.pack("<I", 1) + text("new.raw") + struct.pack("<III", create, 0o644, 0)),
        "set length": (26, struct.pack("<I", 2) + attributes),
        "set mode": (26, struct.pack("<I", 2) + struct.pack("<I", 1) + attributes[4:]),
        "mkdir": (72, struct.pack("<I", 0) + text("attic") + struct.pack("<II", 0o755, 0)),
        "mkdir in import": (72, struct.pack("<I", 4) + text("attic") + struct.pack("<II", 0o755, 0)),
        "rename": (20, struct.pack("<II", 1, 0) + text("moved")),
        "renameat": (74, struct.pack("<I", 0) + text("lab") + struct.pack("<I", 0) + text("moved")),
        "unlinkat": (76, struct.pack("<I", 1) + text(name) + struct.pack("<I", 0)),
        "unlinkat of a directory": (76, struct.pack("<I", 0) + text("lab") + struct.pack("<I", 0x200)),
        # Last, because it removes the fid.
        "remove": (122, struct.pack("<I", 3)),
    }
    errors = {what: client.try_it(*request) for what, request in changes.items()}
    # A directory that is not empty is not removed, in any tree.
    fine = {"unlinkat of a directory": (EROFS, ENOTEMPTY)}
    wrong = {what: error for what, error in errors.items() if error not in fine.get(what, (EROFS,))}
    if wrong:
        sys.exit(f"not refused as EROFS: {wrong}")


main()
