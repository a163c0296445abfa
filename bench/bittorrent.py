#!/usr/bin/env python3
"""The parts of BitTorrent besides the clients: a file's torrent, and a tracker that lists all clients.

  bench/bittorrent.py make FILE ANNOUNCE-URL TORRENT
  bench/bittorrent.py track PORT                        until it is killed
"""
import hashlib
import http.server
import os
import socket
import struct
import sys
import urllib.parse

PIECE = 1 << 20
# Seconds between two announcements of a client.
INTERVAL = 5


def bencode(value):
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, str):
        return bencode(value.encode())
    if isinstance(value, list):
        return b"l%se" % b"".join(map(bencode, value))
    return b"d%se" % b"".join(bencode(key) + bencode(value[key]) for key in sorted(value))


def make(path, announce, torrent):
    pieces = []
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            pieces.append(hashlib.sha1(piece).digest())
    info = {"length": os.path.getsize(path), "name": os.path.basename(path), "piece length": PIECE, "pieces": b"".join(pieces)}
    with open(torrent, "wb") as file:
        file.write(bencode({"announce": announce, "info": info}))


class Tracker(http.server.BaseHTTPRequestHandler):
    clients = set()

    def do_GET(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        client = (self.client_address[0], int(asked["port"][0]))
        if asked.get("event") == ["stopped"]:
            self.clients.discard(client)
        else:
            self.clients.add(client)
        others = [socket.inet_aton(host) + struct.pack(">H", port) for host, port in self.clients if (host, port) != client]
        body = bencode({"interval": INTERVAL, "min interval": INTERVAL, "peers": b"".join(others)})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "make":
        make(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1] == "track":
        http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Tracker).serve_forever()
    else:
        sys.exit(__doc__)
