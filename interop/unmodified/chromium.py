"""Drives a headless Chromium over its debugging pipe."""

import json
import os
import shutil
import subprocess
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]


class Chromium:
    """A browser with one page, `page`."""

    def __init__(self, directory, flags, page="about:blank"):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise SystemExit("Chromium is not installed: install the package chromium.")
        takes, self.commands = os.pipe()
        self.answers, gives = os.pipe()

        def at_three_and_four():
            # A pipe may have one of these numbers already, so move them through higher numbers.
            os.dup2(takes, 103)
            os.dup2(gives, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)
            os.closerange(5, 200)

        self.process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-pipe",
                f"--user-data-dir={directory}/profile",
                *flags,
                "about:blank",
            ],
            close_fds=False,
            preexec_fn=at_three_and_four,
            stdout=subprocess.DEVNULL,
            stderr=open(f"{directory}/chromium.log", "w"),
        )
        os.close(takes)
        os.close(gives)
        self.buffer = b""
        self.number = 0
        self.session = None
        target = self.call("Target.createTarget", url=page)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        loaded = f"location.href === {json.dumps(page)} && document.readyState === 'complete'"
        while not self.evaluate(loaded):
            time.sleep(0.02)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"Chromium refuses {method}: {answer['error']}")
                return answer["result"]

    def message(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                raise SystemExit("Chromium ended: see chromium.log.")
            self.buffer += piece
        first, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(first)

    def evaluate(self, script):
        """Runs a script, and returns the value of its promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise SystemExit(f"Chromium: {result['exceptionDetails']}")
        return result["result"].get("value")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(20)
