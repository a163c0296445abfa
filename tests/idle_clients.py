#!/usr/bin/env python3
"""Opens many connections to an origin and holds them, idle, until it is killed.

    idle_clients.py ADDRESS:PORT CERTIFICATE READY COUNT TOKEN SOURCE...

With a token each connection speaks TLS and asks a question, and again before the origin ends it for being idle; without one (an empty
word) it says nothing at all. They come from the SOURCE addresses in turn. The file READY is made once all are open. It ends as soon as
a question gets no answer.
"""

import socket
import ssl
import sys
import time


# Number of connections opened between two rounds of requests on the existing ones, and seconds between the rounds.
ROUND = 1000
PAUSE = 15


def ask(connection, token):
    """Sends a request; ends the program if there is no response."""
    connection.sendall(f"GET /api/v1/store HTTP/1.1\r\nHost: origin\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    answer = connection.recv(4096)
    if b" 200 " not in answer.split(b"\r\n")[0]:
        sys.exit(f"idle_clients: {answer!r}")


def open_connection(address, source, context, token):
    """A connection that has sent a request, if there is a token."""
    plain = socket.create_connection(address, timeout=60, source_address=(source, 0))
    if not token:
        return plain
    connection = context.wrap_socket(plain, server_hostname="localhost")
    ask(connection, token)
    return connection


def main():
    """Opens all connections, then sleeps."""
    where, certificate, ready, count, token, *sources = sys.argv[1:]
    host, port = where.rsplit(":", 1)
    context = ssl.create_default_context(cafile=certificate)
    held = []
    for number in range(int(count)):
        source = sources[number % len(sources)]
        held.append(open_connection((host, int(port)), source, context, token))
        if token and number % ROUND == ROUND - 1:
            for connection in held:
                ask(connection, token)
    with open(ready, "w", encoding="ascii"):
        pass
    while True:
        time.sleep(PAUSE)
        for connection in held if token else []:
            ask(connection, token)


if __name__ == "__main__":
    main()
