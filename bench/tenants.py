#!/usr/bin/env python3
"""bench/tenants.py PORT BOOT-SET-FILE SCORE BOOT-SET REQUESTS: the requests of bench/tenants.sh and their times."""
import http.client
import json
import os
import random
import ssl
import statistics
import sys
import time

port, boot_set_file, score, boot_set, requests = sys.argv[1:]
requests = int(requests)
ROW = 33


def block_ids(encoded):
    """The ids in all parts of a boot set (docs/formats/boot-set.md)."""
    ids, at = [], encoded.find(b"PLbp")
    while at >= 0:
        rows = int.from_bytes(encoded[at + 6 : at + 8], "little")
        ids += [encoded[at + 8 + n * ROW :][:32] for n in range(rows)]
        at = encoded.find(b"PLbp", at + 8 + rows * ROW)
    return ids


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
