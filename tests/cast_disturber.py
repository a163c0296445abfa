#!/usr/bin/env python3
"""tests/cast_disturber.py forge|no-room|attack ADDRESS: disturbs a cast from the interface with that address, until it is ended.

forge: waits for an announcement, and then sends a wrong symbol of every chunk that it sees coming, again and again, with
the session's number, as anybody in the group can.
no-room: joins the cast as a receiver, and reports that it has no room, for ever.
attack: as forge, but 10,000 datagrams a second of every kind: repeated, changed, cut and invented ones, of this session and
of another one, to the group, to the sender and to the discovery address. It announces the session with its own address, and
answers joins there. Prints how many datagrams it sent.
"""

import os
import random
import socket
import struct
import sys
import threading
import time

DISCOVERY, PORT = "239.255.80.76", 7580
HEADER, SYMBOL, TAG = 18, 1408, 16
ANNOUNCE, DATA, PLAN, REQUEST, REPORT = 1, 2, 3, 4, 5
SESSION_ID, GROUP, JOIN, FEEDBACK = 1, 7, 8, 9


def keyed_blake3(key, message):
    """The keyed BLAKE3 hash of at most 1,024 bytes."""
    start = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
    order = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    lanes = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))

    def turn(value, bits):
        return (value >> bits | value << (32 - bits)) & 0xFFFFFFFF

    chaining = struct.unpack("<8I", key)
    blocks = [message[at : at + 64] for at in range(0, max(len(message), 1), 64)]
    for number, block in enumerate(blocks):
        # Flags: keyed 16, first block 1, last block 2, root 8.
        flags = 16 | (1 if number == 0 else 0) | (10 if number == len(blocks) - 1 else 0)
        words = struct.unpack("<16I", block.ljust(64, b"\0"))
        state = list(chaining) + list(start[:4]) + [0, 0, len(block), flags]
        for _ in range(7):
            for lane, (a, b, c, d) in enumerate(lanes):
                for word, first, second in ((words[2 * lane], 16, 12), (words[2 * lane + 1], 8, 7)):
                    state[a] = (state[a] + state[b] + word) & 0xFFFFFFFF
                    state[d] = turn(state[d] ^ state[a], first)
                    state[c] = (state[c] + state[d]) & 0xFFFFFFFF
                    state[b] = turn(state[b] ^ state[c], second)
            words = [words[at] for at in order]
        chaining = [state[at] ^ state[at + 8] for at in range(8)]
    return struct.pack("<8I", *chaining)


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
        if datagram[1] != DATA or len(datagram) != HEADER + 6 + SYMBOL + TAG:
            continue
        chunk = datagram[HEADER : HEADER + 4]
        if time.monotonic() < last.get(chunk, 0) + 0.005:
            continue
        last[chunk] = time.monotonic()
        symbol = struct.pack("<H", chance.randrange(700))
        sock.sendto(datagram[:HEADER] + chunk + symbol + os.urandom(SYMBOL + TAG), group)


def attack(own):
    sock = group_socket(own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    heard = announced(sock)
    group, join, feedback = address(heard[GROUP]), address(heard[JOIN]), address(heard[FEEDBACK])
    listen(sock, group[0], own)
    port = impersonate(own)
    chance = random.Random(2)
    seen, sent = [], 0
    start = time.monotonic()
    sock.settimeout(0.002)
    threading.Thread(target=pester, args=(join,), daemon=True).start()
    print("attacking", flush=True)
    while True:
        try:
            datagram = sock.recv(2048)
            if len(seen) < 4096 and len(datagram) >= HEADER:
                seen.append(datagram)
            elif len(datagram) >= HEADER:
                seen[chance.randrange(4096)] = datagram
        except TimeoutError:
            pass
        while seen and sent < (time.monotonic() - start) * 10_000:
            target, forged = forgery(chance, seen, own, port, group, feedback)
            try:
                sock.sendto(forged, target)
            except OSError:
                time.sleep(0.001)
            sent += 1
            if sent % 10_000 == 0:
                print(f"sent {sent} in {time.monotonic() - start:.1f} s", flush=True)
            if sent % 64 == 0:
                break


def forgery(chance, seen, own, port, group, feedback):
    """A datagram to send, and where to."""
    datagram = bytearray(seen[chance.randrange(len(seen))])
    kind = chance.randrange(8)
    target = group
    if kind == 1:  # one bit is changed
        datagram[chance.randrange(len(datagram))] ^= 1 << chance.randrange(8)
    elif kind == 2:  # the end is missing
        datagram = datagram[: chance.randrange(len(datagram))]
    elif kind == 3:  # another session
        datagram[4:8] = os.urandom(4)
    elif kind == 4:  # the highest packet number
        datagram[8:14] = b"\xff" * 6
    elif kind == 5:  # an invented plan or symbol
        datagram = datagram[:HEADER] + os.urandom(chance.randrange(1430))
        datagram[1] = chance.choice((DATA, PLAN))
    elif kind == 6:  # feedback of an invented receiver
        datagram = datagram[:HEADER] + struct.pack("<I", chance.randrange(4)) + os.urandom(chance.randrange(200))
        datagram[1] = chance.choice((REQUEST, REPORT))
        target = feedback
    elif kind == 7 and datagram[1] == ANNOUNCE:  # joins are to go elsewhere
        at = datagram.find(struct.pack("<HH", JOIN, 7))
        datagram[at + 4 : at + 11] = b"\4" + struct.pack("<H", port) + socket.inet_aton(own)
        target = (DISCOVERY, PORT)
    return target, bytes(datagram)


def impersonate(own):
    """Answers joins with rubbish. Returns the port."""
    listener = socket.create_server((own, 0))

    def answer():
        while True:
            connection, _ = listener.accept()
            for message in (b"\1\x09" + os.urandom(32), b"\1\3\4away", b"\1\2" + os.urandom(300)):
                try:
                    connection.sendall(struct.pack("<I", len(message)) + message)
                except OSError:
                    break

    threading.Thread(target=answer, daemon=True).start()
    return listener.getsockname()[1]


def pester(join):
    """Connects to the sender, again and again, and says rubbish."""
    while True:
        try:
            with socket.create_connection(join, timeout=1) as connection:
                for message in (b"\1\x09" + os.urandom(32), b"\1\1" + os.urandom(60), b"\1\4" + os.urandom(90)):
                    connection.sendall(struct.pack("<I", len(message)) + message)
                connection.settimeout(0.2)
                connection.recv(4096)
        except OSError:
            pass
        time.sleep(0.05)


def no_room(own):
    announcement = announced(group_socket(own))
    channel = socket.create_connection(address(announcement[JOIN]))
    feedback = address(announcement[FEEDBACK])
    hello = b"no-room"
    join = b"\1\1" + struct.pack("<HH", 3, len(hello)) + hello + struct.pack("<HHI", 4, 4, 1)
    channel.sendall(struct.pack("<I", len(join)) + join)
    welcome = channel.recv(4096)
    assert welcome[4:6] == b"\1\2", "not welcome"
    receiver, key, packet = welcome[6:10], welcome[10:42], welcome[74:80]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("joined", flush=True)
    number = 0
    while True:
        number += 1
        header = bytes([1, REPORT, 0, 0]) + announcement[SESSION_ID][:4] + number.to_bytes(6, "little") + bytes(4)
        numbers = bytes(4 + 4 + 6) + struct.pack("<IIII", 0, 0, 100, 0)
        report = header + receiver + packet + numbers
        sock.sendto(report + keyed_blake3(key, report)[:TAG], feedback)
        time.sleep(0.1)


if __name__ == "__main__":
    {"forge": forge, "no-room": no_room, "attack": attack}[sys.argv[1]](sys.argv[2])
