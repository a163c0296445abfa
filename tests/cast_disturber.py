#!/usr/bin/env python3
"""tests/cast_disturber.py forge|no-room ADDRESS: disturbs a cast from the interface with that address, until it is ended.

forge: waits for an announcement, and then sends a wrong symbol of every chunk that it sees coming, again and again, with
the session's number, as anybody in the group can.
no-room: joins the cast as a receiver, and reports that it has no room, for ever.
"""

import os
import random
import socket
import struct
import sys
import time

DISCOVERY, PORT = "239.255.80.76", 7580
HEADER, SYMBOL = 18, 1408
ANNOUNCE, DATA, REPORT = 1, 2, 5
SESSION_ID, GROUP, JOIN, FEEDBACK = 1, 7, 8, 9


def values(body):
    """The typed values of an announcement."""
    found = {}
    while len(body) >= 4:
        number, length = struct.unpack_from("<HH", body)
        found.setdefault(number, body[4 : 4 + length])
        body = body[4 + length :]
    return found


def address(value):
    """An IPv4 address and port."""
    return socket.inet_ntoa(value[3:7]), struct.unpack_from("<H", value, 1)[0]


def group_socket(own):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", PORT))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    listen(sock, DISCOVERY, own)
    return sock


def listen(sock, group, own):
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own))


def announced(sock):
    """The values of the first announcement."""
    while True:
        datagram = sock.recv(2048)
        if datagram[0] == 1 and datagram[1] == ANNOUNCE:
            return values(datagram[HEADER:])


def forge(own):
    sock = group_socket(own)
    group = address(announced(sock)[GROUP])
    listen(sock, group[0], own)
    print("forging", flush=True)
    chance = random.Random(1)
    last = {}
    while True:
        datagram = sock.recv(2048)
        if datagram[1] != DATA or len(datagram) != HEADER + 6 + SYMBOL:
            continue
        chunk = datagram[HEADER : HEADER + 4]
        if time.monotonic() < last.get(chunk, 0) + 0.005:
            continue
        last[chunk] = time.monotonic()
        symbol = struct.pack("<H", chance.randrange(700))
        sock.sendto(datagram[:HEADER] + chunk + symbol + os.urandom(SYMBOL), group)


def no_room(own):
    announcement = announced(group_socket(own))
    channel = socket.create_connection(address(announcement[JOIN]))
    feedback = address(announcement[FEEDBACK])
    hello = b"no-room"
    join = b"\1\1" + struct.pack("<HH", 3, len(hello)) + hello + struct.pack("<HHI", 4, 4, 1)
    channel.sendall(struct.pack("<I", len(join)) + join)
    welcome = channel.recv(4096)
    assert welcome[4:6] == b"\1\2", "not welcome"
    receiver, token, packet = welcome[6:10], welcome[10:18], welcome[18:24]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("joined", flush=True)
    number = 0
    while True:
        number += 1
        header = bytes([1, REPORT, 0, 0]) + announcement[SESSION_ID][:4] + number.to_bytes(6, "little") + bytes(4)
        numbers = bytes(4 + 4 + 6) + struct.pack("<IIII", 0, 0, 100, 0)
        sock.sendto(header + receiver + token + packet + numbers, feedback)
        time.sleep(0.1)


if __name__ == "__main__":
    {"forge": forge, "no-room": no_room}[sys.argv[1]](sys.argv[2])
