"""mosh.py ROLE DIRECTORY ADDRESS SECONDS: keystrokes through mosh, ten a second, and their echo.

ROLE is `client` or `server`. The server's terminal echoes each key. At the end, the client prints
the 95th percentile of the time until the echo, in ms, as JSON. It fails if the screen shows
anything else than the keys, or if the server complains. ADDRESS is the server's.
"""

import fcntl
import itertools
import json
import os
import re
import select
import statistics
import string
import struct
import subprocess
import sys
import termios
import time

from exchange import hand_over, wait_for

PORT = "60001"
READY = b"READY"
INTERVAL = 0.1
# The most time until the server's first line, and until the last echo, in seconds.
PATIENCE = 10
# The time until messages about the connection have left the screen, in seconds.
SETTLED = 1
# All keys need to fit in one line: mosh paints parts of a full line twice.
ROWS, COLUMNS = 24, 1000
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()].|\x1b[=>78]|[\x00-\x1f]")
# mosh needs UTF-8. Without the last setting, the client shows an echo that it only expects.
ENVIRONMENT = {
    **os.environ,
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm",
    "MOSH_PREDICTION_DISPLAY": "never",
}


class Screen:
    """The text that mosh shows, without control sequences, and the times at which it grew."""

    def __init__(self, terminal):
        self.terminal = terminal
        self.clear()

    def clear(self):
        self.painted, self.text, self.times = b"", b"", []

    def watch(self, until, enough):
        """Reads until this time, or until `enough` returns true."""
        while not enough() and (left := until - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                self.painted += os.read(self.terminal, 65536)
                self.text = CONTROL.sub(b"", self.painted)
                self.times += [time.monotonic()] * (len(self.text) - len(self.times))


def connect(address, key):
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    environment = {**ENVIRONMENT, "MOSH_KEY": key}
    call = ["mosh-client", address, PORT]
    return terminal, subprocess.Popen(call, stdin=end, stdout=end, stderr=end, env=environment)


def type_keys(screen, seconds):
    """Types keys, and returns the time until the echo of each, in ms."""
    screen.watch(time.monotonic() + PATIENCE, lambda: READY in screen.text)
    if READY not in screen.text:
        raise SystemExit(f"mosh did not connect within {PATIENCE} s.")
    screen.watch(time.monotonic() + SETTLED, lambda: False)
    screen.clear()
    letters = itertools.cycle(string.ascii_lowercase.encode())
    keys = bytes(itertools.islice(letters, round(seconds / INTERVAL)))
    began, typed = time.monotonic(), []
    for number, key in enumerate(keys):
        screen.watch(began + number * INTERVAL, lambda: False)
        typed.append(time.monotonic())
        os.write(screen.terminal, bytes([key]))
    screen.watch(time.monotonic() + PATIENCE, lambda: len(screen.text) >= len(keys))
    if screen.text != keys:
        text = " ".join(screen.text.decode(errors="replace").split())
        raise SystemExit(f"mosh shows not only the keys: {text}")
    return [1000 * (shown - at) for at, shown in zip(typed, screen.times)]


def use(directory, address, seconds):
    terminal, client = connect(address, wait_for(f"{directory}/key"))
    try:
        delays = type_keys(Screen(terminal), seconds)
    finally:
        # This also ends the server.
        client.terminate()
        client.wait()
    with open(f"{directory}/server.log") as log:
        if complaints := [line for line in log if "exception" in line]:
            raise SystemExit(f"mosh-server: {len(complaints)} times {complaints[0].strip()}")
    print(json.dumps({"figure": statistics.quantiles(delays, n=20)[-1], "retransmitted": None}))


def serve(directory, address):
    shell = ["sh", "-c", f"echo {READY.decode()}; exec cat"]
    # Without -v, the server is silent about datagrams that are not mosh's.
    call = ["mosh-server", "new", "-v", "-i", address, "-p", PORT, "--", *shell]
    # The server remains in the background, and keeps these streams.
    with open(f"{directory}/server.log", "w+") as log:
        subprocess.run(call, env=ENVIRONMENT, stdout=log, stderr=log, check=True)
        log.seek(0)
        key = re.search(r"MOSH CONNECT \d+ (\S+)", log.read())[1]
    hand_over(f"{directory}/key", key)
    time.sleep(600)


def main():
    role, directory, address, seconds = sys.argv[1:5]
    if role == "client":
        use(directory, address, int(seconds))
    else:
        serve(directory, address)


main()
