"""relay.py FROM TO CC: a proxy that terminates TCP at FROM and relays its bytes to TO."""

import os
import socket
import sys
import threading

from flow import connected


def relay(source, sink):
    takes, gives = os.pipe()
    # Without a copy, as kernels can.
    while length := os.splice(source.fileno(), gives, 1 << 16):
        while length:
            length -= os.splice(takes, sink.fileno(), length)


def main():
    here, there, control = sys.argv[1:]
    near = connected("listen", here, control)
    far = connected("connect", there, control)
    threading.Thread(target=relay, args=(far, near), daemon=True).start()
    relay(near, far)


main()
