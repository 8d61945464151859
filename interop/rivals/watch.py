"""watch.py DIRECTORY SECONDS COMMAND_LINE [COMPETITOR]: runs the sender's end of a try, and prints
JSON: what happened in so many SECONDS of it.

The offset of an open file in DIRECTORY/counted says how much the rival delivered, and one in
DIRECTORY/beside how much the COMPETITOR did, another command line.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

# Until the seconds count, after the first byte of each flow arrived.
START = 2
# Without a byte for so long, a rival has delivered nothing.
PATIENCE = 30
PING_EVERY = 0.02
# Ethernet, IP, ICMP and the time of sending.
PING_BYTES = 14 + 20 + 8 + 8


def namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/pid")


def processes():
    """The processes of this try."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if namespace(pid) == namespace("self"):
                yield pid
        except OSError:
            # It has ended.
            pass


def offset(folder):
    """The largest offset of an open file in a folder."""
    largest = 0
    for pid in processes():
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}").startswith(folder + "/"):
                    with open(f"/proc/{pid}/fdinfo/{number}") as about:
                        largest = max(largest, int(about.readline().split()[1]))
        except OSError:
            pass
    return largest


def processor_seconds():
    """What the rival used, with the agent and the proxy: all but the lab and this program."""
    ticks = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as about:
                name, _, rest = about.read().rpartition(")")
        except OSError:
            continue
        if not name.endswith("(sidekick-lab") and pid != os.readlink("/proc/self"):
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def interface_bytes():
    with open("/proc/net/dev") as file:
        (line,) = (line for line in file if line.lstrip().startswith("near:"))
    fields = line.split()
    return int(fields[9]), int(fields[1])


class Pings:
    """ICMP echoes to the receiver."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.connect((os.environ["SIDEKICK_RECEIVER_IP"], 0))
        self.sent, self.times = 0, []
        for work in self.send, self.receive:
            threading.Thread(target=work, daemon=True).start()

    def send(self):
        while True:
            body = struct.pack("!HHd", 1, self.sent % 65536, time.monotonic())
            total = sum(struct.unpack("!6H", body)) + (8 << 8)
            total = (total & 0xFFFF) + (total >> 16)
            self.socket.send(struct.pack("!BBH", 8, 0, ~(total + (total >> 16)) & 0xFFFF) + body)
            self.sent += 1
            time.sleep(PING_EVERY)

    def receive(self):
        while True:
            answer = self.socket.recv(100)[20:]
            if answer[0] == 0:
                self.times.append(time.monotonic() - struct.unpack("!d", answer[8:16])[0])

    def late(self, since):
        times = sorted(self.times[since:])
        return 1000 * times[len(times) * 99 // 100] if times else None


def main():
    directory, seconds, *lines = sys.argv[1:]
    folders = [f"{directory}/counted", f"{directory}/beside"][: len(lines)]
    for line in reversed(lines):
        subprocess.Popen(["sh", "-c", line], stdout=sys.stderr)
    patient_until = time.monotonic() + PATIENCE
    while not all(map(offset, folders)) and time.monotonic() < patient_until:
        time.sleep(0.1)
    pings = Pings()
    time.sleep(START)

    def sample():
        counts = *map(offset, folders), processor_seconds(), *interface_bytes()
        return time.monotonic(), pings.sent, len(pings.times), *counts

    first = sample()
    time.sleep(float(seconds))
    last = sample()
    took, asked, answered, *delivered, processor, sent, received = (
        # The files of a program that gave up are closed.
        max(after - before, 0) for before, after in zip(first, last)
    )
    print(json.dumps({
        "goodput": delivered[0] * 8 / took / 1e6,
        "competitor": delivered[1] * 8 / took / 1e6 if len(lines) > 1 else None,
        "delivered": delivered[0],
        "processor": processor,
        "sent": sent - asked * PING_BYTES,
        "received": received - answered * PING_BYTES,
        "p99_ms": pings.late(first[2]),
    }))  # fmt: skip


main()
