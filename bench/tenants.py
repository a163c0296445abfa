#!/usr/bin/env python3
"""bench/tenants.py PORT BOOT-SET-FILE SCORE BOOT-SET REQUESTS DIR PUBLISHES: the requests of bench/tenants.sh and their times."""
import http.client
import json
import os
import pathlib
import random
import socket
import ssl
import statistics
import struct
import sys
import time

port, boot_set_file, score, boot_set, requests, directory, publishes = sys.argv[1:]
requests, publishes = int(requests), int(publishes)
ROW = 33


def block_ids(encoded):
    """The ids in all parts of a boot set (docs/formats/boot-set.md)."""
    ids, at = [], encoded.find(b"PLbp")
    while at >= 0:
        rows = int.from_bytes(encoded[at + 6 : at + 8], "little")
        ids += [encoded[at + 8 + n * ROW :][:32] for n in range(rows)]
        at = encoded.find(b"PLbp", at + 8 + rows * ROW)
    return ids


def page_ids(store):
    """The ids of all pages of recipes in the packs of a store (docs/formats/pack.md)."""
    ids = []
    for pack in pathlib.Path(store, "packs").rglob("*.pack"):
        data = pack.read_bytes()
        (footer,) = struct.unpack_from("<Q", data, len(data) - 56)
        (frames,) = struct.unpack_from("<I", data, footer + 8)
        at = footer + 16 + 24 * frames
        for frame in range(frames):
            count, kind = struct.unpack_from("<IB", data, footer + 16 + 24 * frame + 16)
            ids += [data[at + 32 * n :][:32] for n in range(count) if kind == 2]
            at += 32 * count
    return ids


class Source(http.client.HTTPConnection):
    """The origin of a store with one disk, at its socket: the version, and a stream of its pages."""

    def __init__(self, store, disk):
        super().__init__("origin")
        self.path = f"{store}/origin.sock"
        self.version = json.loads(self.get("GET", f"/api/v1/resolve?name={disk}"))["version"]
        request = bytes.fromhex(self.version["score"]) + bytes([2, 0]) + b"".join(page_ids(store))
        self.pages = self.get("POST", "/api/v1/frames", request)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def get(self, *request):
        self.request(*request)
        return self.getresponse().read()


class Origin:
    def __init__(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.connection = http.client.HTTPSConnection("127.0.0.1", int(port), context=context)
        self.headers = {"Authorization": "Bearer " + os.environ["PLATTER_TOKEN"]}

    def ask(self, method, path, body=None):
        """The status, the body, and the time in microseconds."""
        began = time.perf_counter_ns()
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        contents = answer.read()
        return answer.status, contents, (time.perf_counter_ns() - began) / 1e3


def longer(some, others):
    """How often one of `some` is larger than one of `others`."""
    ranks = sorted([(time, True) for time in some] + [(time, False) for time in others])
    total = sum(rank for rank, (_, is_some) in enumerate(ranks) if is_some)
    return (total - len(some) * (len(some) - 1) / 2) / (len(some) * len(others))


origin = Origin()
with open(boot_set_file, "rb") as file:
    ids = block_ids(file.read())
status, reply, _ = origin.ask("POST", "/api/v1/uploads?image=shop/new", b"")
assert status == 201, (status, reply)
need = f"/api/v1/uploads/{json.loads(reply)['id']}/need"
# As many, drawn in the same way: repeated ids are found faster, whatever they are.
strangers = [random.randbytes(32) for _ in ids]
no_score, no_boot_set = random.randbytes(32).hex(), random.randbytes(32).hex()
kinds = {
    "a block": (lambda: ("POST", need, random.choice(ids)), lambda: ("POST", need, random.choice(strangers))),
    "1,000 blocks": (
        lambda: ("POST", need, b"".join(random.choices(ids, k=1000))),
        lambda: ("POST", need, b"".join(random.choices(strangers, k=1000))),
    ),
    "a disk by score": (
        lambda: ("GET", f"/api/v1/resolve?name={score}"),
        lambda: ("GET", f"/api/v1/resolve?name={no_score}"),
    ),
    "an image": (lambda: ("GET", "/api/v1/versions?image=lab/disk"), lambda: ("GET", "/api/v1/versions?image=lab/nine")),
    "a boot set": (
        lambda: ("GET", f"/api/v1/hoard/boot-sets/{boot_set}"),
        lambda: ("GET", f"/api/v1/hoard/boot-sets/{no_boot_set}"),
    ),
}
chance = 1.96 * (1 / (6 * requests)) ** 0.5
print(f"{'asked for':<16} {'exists, us':>11} {'missing, us':>12} {'longer':>7}   range {0.5 - chance:.3f} to {0.5 + chance:.3f}")
for name, (exists, missing) in kinds.items():
    times, answers = {exists: [], missing: []}, {exists: set(), missing: set()}
    order = [exists, missing] * requests
    random.shuffle(order)
    for make in order:
        status, contents, taken = origin.ask(*make())
        times[make].append(taken)
        answers[make].add((status, len(contents)))
    assert answers[exists] == answers[missing], (name, answers)
    medians = [statistics.median(times[make]) for make in (exists, missing)]
    print(f"{name:<16} {medians[0]:>11.1f} {medians[1]:>12.1f} {longer(times[exists], times[missing]):>7.3f}")

sources = {disk: Source(f"{directory}/of-{disk}", disk) for disk in ("has", "lacks")}
times = {disk: [] for disk in sources}
order = list(sources) * publishes
random.shuffle(order)
for disk in order:
    _, reply, _ = origin.ask("POST", "/api/v1/uploads", b"")
    upload = f"/api/v1/uploads/{json.loads(reply)['id']}"
    origin.ask("POST", upload + "/frames", sources[disk].pages)
    record = {**sources[disk].version, "image": "shop/published", "number": 0}
    status, reply, taken = origin.ask("POST", upload + "/publish", json.dumps({"record": record, "expect": None}))
    assert status == 200, reply
    times[disk].append(taken)
    origin.ask("POST", "/api/v1/forget", json.dumps({"image": "shop/published"}))
chance = 1.96 * (1 / (6 * publishes)) ** 0.5
medians = [statistics.median(times[disk]) for disk in sources]
print(f"{'publishing':<16} {medians[0]:>11.1f} {medians[1]:>12.1f} {longer(*times.values()):>7.3f}   range {0.5 - chance:.3f} to {0.5 + chance:.3f}")
