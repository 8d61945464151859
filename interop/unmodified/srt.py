"""srt.py ROLE DIRECTORY ADDRESS SECONDS: srt-live-transmit sends 300 packets a second by SRT.

ROLE is `send` or `receive`. At the end, the sender prints JSON: the packets that the receiver
dropped because they were missing or too late, and those that the sender sent again. Both are
counts of SRT itself. ADDRESS is the receiver's.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

from exchange import hand_over, wait_for

PORT = 7000
# Where the sending program takes its packets. While it reads from a pipe, it cannot reconnect.
FEED = "127.0.0.1", 7001
RATE = 300
# The payload of a packet: seven packets of an MPEG transport stream, as is usual.
LENGTH = 1316
# The time for the last packets to arrive, in seconds.
TAIL = 1


def start(source, target, statistics, **streams):
    # The program writes its totals after each 20 packets, as a line of JSON.
    told = ["-f", "-pf:json", "-s:20", f"-statsout:{statistics}"]
    call = ["srt-live-transmit", f"-chunk:{LENGTH}", *told, source, target]
    return subprocess.Popen(call, **streams)


def totals(statistics, way):
    with open(statistics) as file:
        whole = [line for line in file if line.endswith("}\n")]
    if not whole:
        raise SystemExit(f"srt-live-transmit wrote nothing to {statistics}.")
    return json.loads(whole[-1])[way]


def until_connected(log):
    for _ in range(1500):
        with open(log) as file:
            if "SRT target connected" in file.read():
                return
        time.sleep(0.02)
    raise SystemExit("SRT did not connect within 30 s.")


def send(directory, address, seconds):
    log, statistics = f"{directory}/send.log", f"{directory}/send.json"
    with open(log, "w") as said:
        target = f"srt://{address}:{PORT}?mode=caller"
        program = start(f"udp://{FEED[0]}:{FEED[1]}", target, statistics, stdout=said, stderr=said)
    feed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # The program discards what it reads before it is connected.
        until_connected(log)
        began = time.monotonic()
        for number in range(seconds * RATE):
            time.sleep(max(0, began + number / RATE - time.monotonic()))
            feed.sendto(os.urandom(LENGTH), FEED)
        time.sleep(TAIL)
        hand_over(f"{directory}/sent")
        received = json.loads(wait_for(f"{directory}/received"))
    finally:
        program.kill()
        program.wait()
    counted = received["packetsUnique"] + received["packetsDropped"]
    if counted < 0.98 * seconds * RATE:
        raise SystemExit(f"the receiver counts only {counted} of {seconds * RATE} packets.")
    again = totals(statistics, "send")["packetsRetransmitted"]
    print(json.dumps({"figure": received["packetsDropped"], "retransmitted": again}))


def receive(directory):
    statistics = f"{directory}/receive.json"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    source = f"srt://:{PORT}?mode=listener"
    program = start(source, "file://con", statistics, stdout=subprocess.DEVNULL)
    try:
        # This may take longer than `wait_for` waits.
        while not os.path.exists(f"{directory}/sent"):
            time.sleep(0.1)
        hand_over(f"{directory}/received", json.dumps(totals(statistics, "recv")))
        # The lab ends this role.
        time.sleep(600)
    finally:
        program.kill()
        program.wait()


def main():
    role, directory, address, seconds = sys.argv[1:5]
    if role == "send":
        send(directory, address, int(seconds))
    else:
        receive(directory)


main()
