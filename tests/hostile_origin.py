#!/usr/bin/env python3
"""An origin that lies: hostile_origin.py SOCKET RECORD MODE COMMAND...

Listens at SOCKET, runs COMMAND, and prints its exit code and the most KiB of memory it had. What it answers depends on
MODE; RECORD is a file with the version record that it resolves every name to.
"""
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENDLESS = HEAD + b"Connection: close\r\n\r\n"
STREAM = b"PLfs\x01\0\0\0"


def endless(connection, first, again):
    """Sends data until the other side closes the connection."""
    connection.sendall(first)
    while True:
        connection.sendall(again)


def answer(connection, mode, record):
    request = b""
    while b"\r\n\r\n" not in request:
        more = connection.recv(65536)
        if not more:
            return
        request += more
    is_frames = b"/api/v1/frames" in request.split(b"\r\n", 1)[0]
    if not is_frames and mode.startswith("frames-"):
        body = json.dumps({"score": record["score"], "version": record}).encode()
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    elif mode == "closes":
        return
    elif mode == "garbage":
        connection.sendall(os.urandom(1 << 20))
    elif mode == "endless-head":
        endless(connection, HEAD, b"X-More: %s\r\n" % (b"x" * 1000))
    elif mode == "endless-list":
        endless(connection, ENDLESS + b"[", json.dumps(record).encode() + b",")
    elif mode == "endless-words":
        head = b"HTTP/1.1 500 No\r\nContent-Type: application/problem+json\r\n\r\n"
        endless(connection, head + b'{"detail": "', b"\x1b[2J" * 1000)
    elif mode == "frames-garbage":
        endless(connection, ENDLESS, os.urandom(65536))
    elif mode == "frames-huge":
        endless(connection, ENDLESS + STREAM, struct.pack("<B3xI", 1, 0x7FFFFFFF) + b"\0" * 65536)
    elif mode == "frames-ids":
        endless(connection, ENDLESS + STREAM, struct.pack("<B3xI", 2, 0xFFFFFFE0) + b"\0" * 65536)
    elif mode == "frames-empty":
        connection.sendall(ENDLESS + STREAM + struct.pack("<B3xI", 2, 0))
    else:
        sys.exit(f"no mode {mode}")


def serve(listener, mode, record):
    def one(connection):
        try:
            with connection:
                answer(connection, mode, record)
        except OSError:
            pass

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=one, args=(connection,), daemon=True).start()


def main():
    path, record, mode, *command = sys.argv[1:]
    with open(record, encoding="utf-8") as file:
        record = json.load(file)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    threading.Thread(target=serve, args=(listener, mode, record), daemon=True).start()
    code = subprocess.run(command, timeout=120, check=False).returncode
    print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


main()
