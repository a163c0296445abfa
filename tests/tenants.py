#!/usr/bin/env python3
"""What one tenant sees of an origin: tenants.py ask ADDRESS OUTPUT PROBE-SOCKET
tenants.py frames ADDRESS OUTPUT PROBE-SOCKET

Sends requests to https://ADDRESS with the access tokens in $TOKEN_READ, $TOKEN_WRITE and $TOKEN_ADMIN, of the tenant `lab`, and
writes each status, length and body to OUTPUT, without what is random or a time. The origin at PROBE-SOCKET has the disk `probe`, which
the tenant uploads. `frames` reads that disk back, and writes which of its blocks came in one frame.
"""
import http.client
import json
import os
import socket
import ssl
import struct
import sys

# What differs between two equal origins: times, and what is made of random numbers.
RANDOM = {
    "id", "time_unix_ms", "seen_unix_ms", "epoch", "sharing_group", "boot_set", "revision", "since_unix_ms", "hoard_revision",
    "duration_ms", "silent_seconds", "join_key", "at_unix_ms",
}
DATA, PAGE = 1, 2
NOTHING = "77" * 32


def without_random(value):
    # Numbers of edit locks are times, too.
    if isinstance(value, int) and value > 1_000_000_000_000:
        return "-"
    if isinstance(value, dict):
        known = {key: "-" if key in RANDOM and inner else without_random(inner) for key, inner in value.items()}
        return known
    return [without_random(inner) for inner in value] if isinstance(value, list) else value


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("origin")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Origin:
    """An origin; what it answers is written to `output`, if that is given."""

    def __init__(self, connection, tokens, output=None):
        self.connection, self.tokens, self.output = connection, tokens, output

    def ask(self, method, path, body=None, role="admin", label=None):
        if isinstance(body, dict):
            body = json.dumps(body)
        headers = {"Authorization": "Bearer " + self.tokens[role]} if self.tokens else {}
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        contents = answer.read()
        if self.output:
            self.note(f"{role} {method} {label or path}", answer, contents)
        try:
            return json.loads(contents)
        except ValueError:
            return contents

    def note(self, what, answer, contents):
        kind = answer.getheader("content-type")
        try:
            text = json.dumps(without_random(json.loads(contents)), sort_keys=True)
        except ValueError:
            text = contents.hex() if b"boot-sets" not in what.encode() else ""
        print(f"{what}: {answer.status} {kind} {len(contents)} bytes: {text}", file=self.output)


def stream_ids(stream):
    """For each frame of a stream (docs/formats/frame-stream.md) its ids."""
    at, frames = 8, []
    while at < len(stream):
        kind, length = struct.unpack_from("<BxxxI", stream, at)
        if kind == 1:
            count = struct.unpack_from("<I", stream, at + 8 + 16)[0]
            frames.append([stream[at + 8 + 56 + 36 * n :][:32] for n in range(count)])
        at += 8 + length
    return frames


class Probe:
    """A disk at an origin of its own, with the frames to upload it elsewhere."""

    def __init__(self, path, image):
        origin = Origin(UnixConnection(path), None)
        self.record = origin.ask("GET", f"/api/v1/resolve?name={image}")["version"]
        self.score = bytes.fromhex(self.record["score"])
        ids = lambda kind: [bytes.fromhex(text) for text in os.environ[f"PROBE_{kind}"].split()]
        self.blocks, self.pages = ids("BLOCKS"), ids("PAGES")
        frames = lambda kind, ids: origin.ask("POST", "/api/v1/frames", self.score + bytes([kind, 0]) + b"".join(ids))
        self.data_stream, self.page_stream = frames(DATA, self.blocks), frames(PAGE, self.pages)


def read_everything(origin):
    """Requests that change nothing, with each role."""
    for role in origin.tokens:
        for path in (
            "store", "store/keys", "images", "versions", "versions?image=lab/disk", "versions?image=shop/disk", "versions?image=shop/none",
            "resolve?name=lab/disk", "resolve?name=lab/disk&missing=true", "resolve?name=shop/disk", f"resolve?name={NOTHING}",
            f"resolve?name={os.environ['SHOP_SCORE']}", "partitions?version=lab/disk", "files?version=shop/disk&path=/", "edit-locks",
            "protected", "quotas", "changes", "changes?image=lab/disk", "changes?image=shop/disk", "hoard", "hoard/changes?since=0",
            f"hoard/boot-sets/{NOTHING}", f"hoard/boot-sets/{os.environ['SHOP_BOOT_SET']}", "tokens", "growth", "costs", "disks", "casts",
            "nodes", "standing", "followers", "openapi.json",
        ):
            # Its text is the same, but names what was asked for.
            origin.ask("GET", "/api/v1/" + path, role=role, label="hidden boot set" if "boot-sets" in path else None)
        for path in ("/metrics", "/healthz", "/"):
            origin.ask("GET", path, role=role)
        node = {"id": "a" * 32, "name": "n", "fingerprint": "b" * 64, "peer_address": "127.0.0.1:9", "disks": [], "counters": {}}
        if role == "admin":
            origin.ask("POST", "/api/v1/nodes", node, role=role)
        asked = {"node": "a" * 32, "epoch": "", "since": 0, "missing_bytes_max": 1 << 30, "families": ["ipv4"]}
        origin.ask("POST", "/api/v1/hoard/cast", asked, role=role)
        for version in ("lab/disk", "shop/disk", os.environ["SHOP_SCORE"]):
            origin.ask("POST", "/api/v1/casts", {"version": version, "families": ["ipv4"]}, role=role)
        for image in ("lab/disk", "shop/disk", "shop/none"):
            origin.ask("POST", "/api/v1/forget", {"image": image, "number": 99}, role=role)
            origin.ask("POST", "/api/v1/protect", {"image": image, "number": 99, "protect": True}, role=role)
            origin.ask("POST", "/api/v1/edit-locks", {"image": image, "holder": "", "steal": False}, role=role)
            origin.ask("DELETE", f"/api/v1/edit-locks/{image.replace('/', '%2F')}/1", role=role)
            origin.ask("POST", "/api/v1/clone", {"from": image, "to": "shop/new"}, role=role)
            origin.ask("POST", "/api/v1/rename", {"from": image, "to": "shop/new"}, role=role)
            origin.ask("POST", "/api/v1/hoard/unregister", {"image": image, "number": 99}, role=role)
        origin.ask("POST", "/api/v1/quotas", {"prefix": "shop", "limit_bytes": 1}, role=role)
        origin.ask("POST", "/api/v1/collect", {}, role=role)


def frames_of(origin, score, kind, ids, exact, label):
    request = score + bytes([kind, exact]) + b"".join(ids)
    return origin.ask("POST", "/api/v1/frames", request, role="read", label=label)


def upload(origin, probe):
    """Uploads the probe, of which the other tenant may have every block, and looks at each step whether it shows."""
    begun = origin.ask("POST", "/api/v1/uploads?image=lab/probe", b"", role="write")
    path = f"/api/v1/uploads/{begun['id']}"
    own = [bytes.fromhex(text) for text in os.environ["OWN_BLOCKS"].split()]
    for name, ids in (("own", own), ("probe", probe.blocks), ("pages", probe.pages), ("nothing", [bytes.fromhex(NOTHING)])):
        origin.ask("POST", path + "/need", b"".join(ids), role="write", label=f"need {name}")
        frames_of(origin, probe.score, DATA, ids, 0, f"frames of a hidden disk: {name}")
        lab = bytes.fromhex(os.environ["LAB_SCORE"])
        # Which blocks of its own share frames, and in which order these come, is left out: see `frames`.
        if name in ("pages", "nothing"):
            frames_of(origin, lab, DATA, ids, 0, f"frames of an own disk: {name}")
    publish = {"record": {**probe.record, "image": "lab/probe", "number": 0}, "expect": 0}
    origin.ask("POST", path + "/publish", publish, role="write", label="publish without anything")
    origin.ask("POST", path + "/frames", probe.page_stream, role="write", label="frames of pages")
    origin.ask("POST", path + "/publish", publish, role="write", label="publish without blocks")
    origin.ask("POST", path + "/need", b"".join(probe.blocks), role="write", label="need after pages")
    origin.ask("DELETE", path, role="write", label="end")
    begun = origin.ask("POST", "/api/v1/uploads?image=lab/probe&verify_known=true", b"", role="write")
    path = f"/api/v1/uploads/{begun['id']}"
    origin.ask("POST", path + "/need", b"".join(probe.pages + probe.blocks), role="write", label="need what is left")
    origin.ask("POST", path + "/frames", probe.data_stream, role="write", label="frames of data")
    origin.ask("POST", path + "/frames", probe.page_stream, role="write", label="frames of pages")
    origin.ask("POST", path + "/need", b"".join(probe.pages + probe.blocks + own), role="write", label="need nothing")
    origin.ask("POST", path + "/publish", publish, role="write", label="publish")
    origin.ask("GET", "/api/v1/versions?image=lab/probe")
    origin.ask("POST", "/api/v1/forget", {"image": "lab/probe"})
    begun = origin.ask("POST", "/api/v1/uploads?image=lab/probe", b"", role="write")
    path = f"/api/v1/uploads/{begun['id']}"
    origin.ask("POST", path + "/need", b"".join(probe.pages + probe.blocks), role="write", label="need what was forgotten")
    origin.ask("POST", path + "/frames", probe.data_stream, role="write", label="frames of data")
    origin.ask("POST", path + "/frames", probe.page_stream, role="write", label="frames of pages")
    origin.ask("POST", path + "/publish", publish, role="write", label="publish again")


def main():
    command, address, output, probe_socket = sys.argv[1:]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPSConnection(host, int(port), context=context)
    tokens = {role: os.environ[f"TOKEN_{role.upper()}"] for role in ("read", "write", "admin")}
    probe = Probe(probe_socket, "probe")
    with open(output, "w", encoding="utf-8") as file:
        if command == "ask":
            origin = Origin(connection, tokens, file)
            read_everything(origin)
            upload(origin, probe)
            read_everything(origin)
        else:
            stream = frames_of(Origin(connection, tokens), probe.score, DATA, probe.blocks, 0, "")
            for ids in stream_ids(stream):
                print(len(ids), *sorted(probe.blocks.index(id) for id in ids), file=file)


main()
