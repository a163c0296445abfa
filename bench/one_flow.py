#!/usr/bin/env python3
"""Sends a number of bytes over one TCP connection, to measure the limit of a link.

  bench/one_flow.py take PORT              receives the bytes of one connection, and acknowledges the end
  bench/one_flow.py give HOST PORT BYTES   prints the seconds until the last byte was acknowledged
"""
import socket
import sys
import time


def take(port):
    with socket.create_server(("", port)) as server:
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass
        connection.sendall(b".")


def give(host, port, length):
    start = time.monotonic()
    with socket.create_connection((host, port)) as connection:
        piece = bytes(1 << 16)
        for sent in range(0, length, len(piece)):
            connection.sendall(piece[: length - sent])
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(1) != b".":
            sys.exit("one_flow: the connection broke")
    print(f"{time.monotonic() - start:.4f}")


match sys.argv[1:]:
    case ["take", port]:
        take(int(port))
    case ["give", host, port, length]:
        give(host, int(port), int(length))
    case _:
        sys.exit(__doc__)
