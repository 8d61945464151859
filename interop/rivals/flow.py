"""flow.py ROLE WAY ADDRESS CC COUNTED: an endless TCP flow, by the congestion controller CC.

ROLE is `listen`, or `connect` to ADDRESS. An address may end in `:PORT`. Those who connect send if
WAY is `upload`, and receive if it is `download`. The offset of the file COUNTED is the number of
bytes that arrived.
"""

import os
import socket
import sys
import time

PORT = 5001


def connected(role, address, control):
    host, _, port = address.partition(":")
    where = host, int(port or PORT)
    while True:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        try:
            if role == "connect":
                end.connect(where)
                # Some tunnels open a stream only with its first byte.
                end.sendall(b"\0")
                return end
            end.bind(where)
            end.listen()
            connection, _ = end.accept()
            connection.recv(1)
            return connection
        except OSError:
            # The other end, or the tunnel, is not ready.
            time.sleep(0.05)


def main():
    role, way, address, control, counted = sys.argv[1:]
    connection = connected(role, address, control)
    if (role == "connect") == (way == "upload"):
        # Tunnels may compress.
        piece = os.urandom(1 << 20)
        while True:
            connection.sendall(piece)
    room, count = bytearray(1 << 18), os.open(counted, os.O_CREAT | os.O_WRONLY)
    while length := connection.recv_into(room):
        os.lseek(count, length, os.SEEK_CUR)


if __name__ == "__main__":
    main()
