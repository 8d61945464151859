"""Forges ICMP errors for the UDP sockets of this network namespace, until its input ends: all types and codes, or with the
argument `refusals` only refused ports.

It stands in for an attacker who knows the ports. It prints a line after each round.
"""
import os
import select
import socket
import struct
import sys

V4 = [(3, code) for code in range(16)] + [(11, 0), (11, 1), (12, 0), (12, 1), (12, 2)]
V6 = [(1, code) for code in range(9)] + [(2, 0), (3, 0), (3, 1)] + [(4, code) for code in range(4)] + [(100, 0), (127, 0)]
MTU = 1500
if sys.argv[1:] == ["refusals"]:
    V4, V6 = [(3, 3)], [(1, 4)]


def endpoints(name, length):
    """The two ends of each socket, as /proc has them: words in the machine's order."""
    with open(f"/proc/thread-self/net/{name}", encoding="ascii") as table:
        for line in table.readlines()[1:]:
            ends = []
            for end in line.split()[1:3]:
                address, port = end.split(":")
                words = bytes.fromhex(address)
                address = b"".join(words[at : at + 4][:: (-1 if sys.byteorder == "little" else 1)] for at in range(0, length, 4))
                ends.append((address, int(port, 16)))
            yield ends


def flows(name, length):
    """What the sockets may send: connected ones to their peer, the others to each that is there."""
    sockets = list(endpoints(name, length))
    loopback = bytes([127, 0, 0, 1]) if length == 4 else bytes(15) + b"\x01"
    known = {(own if any(own) else loopback, port) for (own, port), _ in sockets}
    for (own, port), peer in sockets:
        own = own if any(own) else loopback
        for to in [peer] if peer[1] else known:
            yield (own, port), to


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def v4(raw, source, to, kind, code):
    udp = struct.pack(">HHHH", source[1], to[1], 108, 0)
    packet = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 128, 1, 0x4000, 64, 17, 0, source[0], to[0]) + udp
    rest = MTU if (kind, code) == (3, 4) else 0
    sum_ = checksum(struct.pack(">BBHI", kind, code, 0, rest) + packet)
    raw.sendto(struct.pack(">BBHI", kind, code, sum_, rest) + packet, (socket.inet_ntoa(source[0]), 0))


def v6(raw, source, to, kind, code):
    udp = struct.pack(">HHHH", source[1], to[1], 108, 0)
    packet = struct.pack(">IHBB16s16s", 0x60000000, 108, 17, 64, source[0], to[0]) + udp
    # The kernel does the checksum.
    error = struct.pack(">BBHI", kind, code, 0, MTU if kind == 2 else 0)
    raw.sendto(error + packet, (socket.inet_ntop(socket.AF_INET6, source[0]), 0))


def main():
    families = [(socket.AF_INET, socket.IPPROTO_ICMP, "udp", 4, v4, V4)]
    if os.path.exists("/proc/thread-self/net/udp6"):
        families.append((socket.AF_INET6, socket.IPPROTO_ICMPV6, "udp6", 16, v6, V6))
    raws = [socket.socket(family, socket.SOCK_RAW, protocol) for family, protocol, *_ in families]
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        for raw, (_, _, table, length, forge, kinds) in zip(raws, families):
            for source, to in flows(table, length):
                for kind, code in kinds:
                    try:
                        forge(raw, source, to, kind, code)
                    except OSError:
                        pass  # The error that was forged for this raw socket itself.
        print("round", flush=True)


main()
