"""chromium_flow.py DIRECTORY BYTES: Chromium uploads over HTTP/3, or downloads if BYTES is 0.

DIRECTORY has the server's certificate. The offset of its file counted/flow is what Chromium has
downloaded.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unmodified"))

from chromium import Chromium
from fetch_by_chromium import SETTLED, flags

directory, length = sys.argv[1], int(sys.argv[2])
server = f"{os.environ['SIDEKICK_RECEIVER_IP']}:4433"
browser = Chromium(directory, flags(directory, server))
time.sleep(SETTLED)
request = f"{{method: 'PUT', body: new Blob([new Uint8Array({length})])}}" if length else "{}"
browser.evaluate(
    f"""var count = 0;
    (async () => {{
        const answer = await fetch("https://{server}/file", {request});
        for (const pieces = answer.body.getReader();;) {{
            const {{done, value}} = await pieces.read();
            if (done) break;
            count += value.length;
        }}
    }})(), undefined"""
)
counted = None if length else os.open(f"{directory}/counted/flow", os.O_CREAT | os.O_WRONLY)
while True:
    if counted:
        os.lseek(counted, browser.evaluate("count"), os.SEEK_SET)
    time.sleep(0.05)
