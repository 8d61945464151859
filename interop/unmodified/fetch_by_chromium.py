"""fetch_by_chromium.py DIRECTORY BYTES: Chromium uploads over HTTP/3, and prints JSON. It downloads
if BYTES is 0.

DIRECTORY has the server's certificate, cert.pem.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import time

from chromium import Chromium

SETTLED = 3


def key_hash(certificate):
    """Returns the hash of a certificate's key. Chromium accepts a certificate by this hash."""
    key = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-pubkey", "-noout"], capture_output=True, check=True
    ).stdout
    key = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"], input=key, capture_output=True, check=True
    ).stdout
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def flags(directory, server):
    """Flags with which Chromium trusts the certificate in a directory, and speaks HTTP/3."""
    return [
        f"--origin-to-force-quic-on={server}",
        f"--ignore-certificate-errors-spki-list={key_hash(f'{directory}/cert.pem')}",
        # The page has no origin, so the same-origin policy would block the request.
        "--disable-web-security",
    ]


def count_lost(log):
    """Returns how many packets Chromium declared lost, from its own log."""
    with open(log) as file:
        log = json.load(file)
    kind = log["constants"]["logEventTypes"]["QUIC_SESSION_PACKET_LOST"]
    return sum(event["type"] == kind for event in log["events"])


def main():
    directory, length = sys.argv[1], int(sys.argv[2])
    server = f"{os.environ['SIDEKICK_RECEIVER_IP']}:4433"
    browser = Chromium(
        directory,
        [*flags(directory, server), f"--log-net-log={directory}/net-log.json"],
    )
    # Chromium's own work at its start would slow the transfer down.
    time.sleep(SETTLED)
    request = f"{{method: 'PUT', body: new Blob([new Uint8Array({length})])}}" if length else "{}"
    result = browser.evaluate(
        f"""(async () => {{
            const request = {request};
            const began = performance.now();
            const answer = await fetch("https://{server}/file", request);
            const bytes = (await answer.arrayBuffer()).byteLength;
            return {{status: answer.status, bytes, seconds: (performance.now() - began) / 1000}};
        }})()"""
    )
    browser.close()
    if result["status"] >= 300:
        raise SystemExit(f"the server answered with status {result['status']}.")
    result["retransmitted"] = count_lost(f"{directory}/net-log.json")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
