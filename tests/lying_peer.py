#!/usr/bin/env python3
"""A node that lies to its peers: lying_peer.py ORIGIN-SOCKET PORT CERTIFICATE KEY NODE-ID

Tells the origin that it shares at 127.0.0.1:PORT, takes the streams of other nodes, and answers every question with a frame
that nobody made. Prints a line for each lie. docs/formats/peer-wire.md has the messages.
"""
import hashlib
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time

HELLO, ASK, FRAME, END = 1, 5, 6, 7


def report(origin, node, port, fingerprint):
    body = json.dumps({
        "id": node, "name": "liar", "peer_address": f"127.0.0.1:{port}", "fingerprint": fingerprint,
        "hoard_revision": 0, "counters": {}, "disks": [],
    }).encode()
    head = f"POST /api/v1/nodes HTTP/1.1\r\nHost: platter\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(origin)
        connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        while connection.recv(65536):
            pass


def report_on(*arguments):
    while True:
        try:
            report(*arguments)
        except OSError:
            pass  # The origin is down.
        time.sleep(1)


def message(stream):
    length = struct.unpack("<I", exactly(stream, 4))[0]
    whole = exactly(stream, length)
    return whole[0], whole[1:]


def exactly(stream, length):
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def say(stream, kind, body):
    stream.sendall(struct.pack("<IB", 1 + len(body), kind) + body)


def lie(stream, node):
    kind, hello = message(stream)
    assert kind == HELLO, kind
    say(stream, HELLO, hello[:-16] + bytes.fromhex(node))
    while True:
        kind, body = message(stream)
        if kind == ASK:
            request = body[:4]
            say(stream, FRAME, request + os.urandom(4096))
            say(stream, END, request + struct.pack("<QH", 0, 0))
            print("lied", flush=True)


def serve(connection, context, node):
    try:
        lie(context.wrap_socket(connection, server_side=True), node)
    except (OSError, EOFError):
        connection.close()


def main():
    origin, port, certificate, key, node = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    with open(certificate, encoding="ascii") as file:
        fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).hexdigest()
    listener = socket.create_server(("127.0.0.1", int(port)))
    threading.Thread(target=report_on, args=(origin, node, port, fingerprint), daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, context, node), daemon=True).start()


main()
