#!/usr/bin/env python3
"""tests/cast_disturber.py forge|no-room ADDRESS: disturbs a cast from the interface with that address, until it is ended.
tests/cast_disturber.py record ADDRESS FILE: writes the datagrams on the link to the file, until it is ended.
tests/cast_disturber.py attack ADDRESS FORMER: attacks a cast until it is ended; FORMER is what was recorded of another one.
tests/cast_disturber.py probe ADDRESS FORMER KIND COUNT [SCORE]: sends so many datagrams of one kind of the attack.

forge: waits for an announcement, and then sends a wrong symbol of every chunk that it sees coming, again and again, with
the session's number, as anybody in the group can.
no-room: joins the cast as a receiver, and reports that it has no room, for ever.
attack: 10,000 datagrams a second of every kind (KINDS): repeated, changed, cut and invented ones, of this session and of the
former one, with the addresses of sender and receivers as source, to all of their addresses. It announces the session with its own
address, and answers joins there. Prints how many datagrams it sent. It sees what passes its interface: with a hub, everything.
probe: an announcement names this score, and closed ports of the sender. The kind `nothing` takes as long.
"""

import itertools
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
SESSION_ID, SCORE, GROUP, JOIN, FEEDBACK = 1, 2, 7, 8, 9


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


# Kinds of datagrams that an attacker sends.
KINDS = (
    "repeated",
    "changed",
    "cut",
    "other-session",
    "highest-number",
    "invented",
    "feedback",
    "announcement",
    "former",
    "former-renumbered",
)


class Link:
    """The interface of an attacker: the datagrams of a cast that pass it, and datagrams with any source."""

    def __init__(self, own):
        self.own = own
        self.capture = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self.capture.settimeout(0.002)
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        self.raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        self.receivers = set()

    def heard(self):
        """The next datagram of a cast, or None."""
        try:
            packet, (*_, kind, _, _) = self.capture.recvfrom(2048)
        except TimeoutError:
            return None
        # Offloaded datagrams come as one long packet.
        datagram = packet[28 : 28 + HEADER + 6 + SYMBOL + TAG]
        if kind == socket.PACKET_OUTGOING or packet[9] != socket.IPPROTO_UDP or len(datagram) < HEADER or datagram[0] != 1:
            return None
        if datagram[1] in (REQUEST, REPORT):
            self.receivers.add(socket.inet_ntoa(packet[12:16]))
        return datagram

    def announced(self):
        """The first announcement."""
        while True:
            datagram = self.heard()
            if datagram and datagram[1] == ANNOUNCE and not datagram[2] & ~1:
                return datagram

    def send(self, source, target, datagram):
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 1, socket.IPPROTO_UDP, 0) + socket.inet_aton(source[0])
        udp = struct.pack("!HHHH", source[1], target[1], 8 + len(datagram), 0)
        self.raw.sendto(ip + socket.inet_aton(target[0]) + udp + datagram, (target[0], 0))


class Forger:
    """Makes datagrams from those of this session and of a former one."""

    def __init__(self, link, former, join=None, score=None):
        self.link, self.score = link, score
        self.chance = random.Random(2)
        self.announcement = link.announced()
        heard = values(self.announcement[HEADER:])
        self.group, self.join, self.feedback = (address(heard[it]) for it in (GROUP, JOIN, FEEDBACK))
        self.own_join = join
        self.seen = [self.announcement]
        self.former = recorded(former)

    def listen(self):
        datagram = self.link.heard()
        if datagram and len(self.seen) < 4096:
            self.seen.append(datagram)
        elif datagram:
            self.seen[self.chance.randrange(4096)] = datagram

    def send(self, kind):
        """Sends a datagram of this kind."""
        chance, session = self.chance, self.announcement[4:8]
        datagram = bytearray(chance.choice(self.former if kind.startswith("former") else self.seen))
        if kind == "changed":
            datagram[chance.randrange(len(datagram))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            datagram = datagram[: chance.randrange(len(datagram))]
        elif kind == "other-session":
            datagram[4:8] = os.urandom(4)
        elif kind == "highest-number":
            datagram[8:14] = b"\xff" * 6
        elif kind == "invented":
            datagram = datagram[:HEADER] + os.urandom(chance.randrange(1430))
            datagram[1] = chance.choice((DATA, PLAN))
        elif kind == "feedback":
            datagram = datagram[:HEADER] + struct.pack("<I", chance.randrange(4)) + os.urandom(chance.randrange(200))
            datagram[1] = chance.choice((REQUEST, REPORT))
        elif kind == "announcement":
            datagram = self.false_announcement()
        elif kind == "former-renumbered":
            datagram[4:8] = session
        source, target = self.ends(datagram)
        self.link.send(source, target, bytes(datagram))

    def false_announcement(self):
        """The announcement, but joins are to go to the attacker; for a score, to a closed port of the sender."""
        datagram = bytearray(self.announcement)
        host, port = (self.join[0], self.chance.randrange(1, 1024)) if self.score else self.own_join
        at = datagram.find(struct.pack("<HH", JOIN, 7))
        datagram[at + 4 : at + 11] = b"\4" + struct.pack("<H", port) + socket.inet_aton(host)
        if self.score:
            at = datagram.find(struct.pack("<HH", SCORE, 32))
            datagram[at + 4 : at + 36] = self.score
            datagram[HEADER + 4 : HEADER + 20] = os.urandom(16)
        return datagram

    def ends(self, datagram):
        """Source and target: mostly those that such a datagram of the session has."""
        chance, own = self.chance, (self.link.own, PORT)
        receivers = [(it, PORT) for it in sorted(self.link.receivers)] or [own]
        kind = datagram[1] if len(datagram) > 1 else 0
        source, target = self.feedback, self.group
        if kind == ANNOUNCE:
            target = (DISCOVERY, PORT)
        elif kind in (REQUEST, REPORT):
            source, target = chance.choice(receivers), self.feedback
        if chance.randrange(4) == 0:
            source = own
        if chance.randrange(8) == 0:
            target = chance.choice([self.group, (DISCOVERY, PORT), self.feedback, *receivers])
        return source, target


def record(own, file):
    link = Link(own)
    with open(file, "wb") as out:
        for _ in range(4096):
            datagram = link.heard()
            while not datagram:
                datagram = link.heard()
            out.write(struct.pack("<H", len(datagram)) + datagram)
            out.flush()


def recorded(file):
    with open(file, "rb") as read:
        data = read.read()
    datagrams, at = [], 0
    while at + 2 < len(data):
        (length,) = struct.unpack_from("<H", data, at)
        datagrams.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return datagrams


def attack(own, former):
    link = Link(own)
    forger = Forger(link, former, (own, impersonate(own)))
    threading.Thread(target=pester, args=(forger.join, forger.announcement[4:8]), daemon=True).start()
    print("attacking", flush=True)
    start, sent = time.monotonic(), 0
    while True:
        forger.listen()
        while sent < (time.monotonic() - start) * 10_000:
            try:
                forger.send(forger.chance.choice(KINDS))
            except OSError:
                time.sleep(0.001)
            sent += 1
            if sent % 10_000 == 0:
                print(f"sent {sent} in {time.monotonic() - start:.1f} s", flush=True)
            if sent % 64 == 0:
                break


def probe(own, former, kind, count, score=None):
    forger = Forger(Link(own), former, (own, 9), bytes.fromhex(score) if score else None)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        forger.listen()
    for _ in range(int(count)):
        if kind != "nothing":
            forger.send(kind)
        time.sleep(0.02)


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


def opening(session):
    """The first message of a connection to this session."""
    return struct.pack("<IBB", 6, 1, 16) + session


def pester(join, session):
    """Connects to the sender, again and again, and says rubbish: to the cast, to none, to another one."""
    first = itertools.cycle((opening(session), b"", opening(os.urandom(4)), opening(session)[:5]))
    while True:
        try:
            with socket.create_connection(join, timeout=1) as connection:
                connection.sendall(next(first))
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
    channel.sendall(opening(announcement[SESSION_ID][:4]) + struct.pack("<I", len(join)) + join)
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
    commands = {"forge": forge, "no-room": no_room, "record": record, "attack": attack, "probe": probe}
    commands[sys.argv[1]](*sys.argv[2:])
