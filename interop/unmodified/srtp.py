"""srtp.py ROLE DIRECTORY ADDRESS SECONDS: ffmpeg sends Opus over SRTP, 50 packets a second.

ROLE is `send` or `receive`. The receiver writes the frames that arrive in time to DIRECTORY/frames,
and ends after the sender. ADDRESS is the receiver's.
"""

import base64
import os
import signal
import subprocess
import sys
import time

from exchange import hand_over, wait_for

KEY = base64.b64encode(bytes(range(30))).decode()
SUITE = "AES_CM_128_HMAC_SHA1_80"
PORT = 5004
# The time until the receiver listens, in seconds. SRTP has no message for that.
HEAD_START = 2
# The time for the last packets to arrive, in seconds.
TAIL = 1
QUIET = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats"]


def send(address, directory, seconds):
    time.sleep(HEAD_START)
    tone = ["-re", "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t", seconds]
    opus = ["-c:a", "libopus", "-b:a", "32k", "-frame_duration", "20"]
    secured = ["-srtp_out_suite", SUITE, "-srtp_out_params", KEY]
    call = [*QUIET, "-loglevel", "warning", *tone, *opus, "-f", "rtp", *secured]
    subprocess.run([*call, f"srtp://{address}:{PORT}"], check=True)
    time.sleep(TAIL)
    hand_over(f"{directory}/sent")
    # The lab ends both programs as soon as one ends, so wait for the receiver.
    wait_for(f"{directory}/received")


def receive(address, directory):
    with open(f"{directory}/session.sdp", "w") as file:
        file.write(
            f"v=0\no=- 0 0 IN IP4 {address}\ns=call\nc=IN IP4 {address}\nt=0 0\n"
            f"m=audio {PORT} RTP/SAVP 97\na=rtpmap:97 opus/48000/2\n"
            f"a=crypto:1 {SUITE} inline:{KEY}\n"
        )
    source = ["-protocol_whitelist", "file,crypto,srtp,rtp,udp", "-i", f"{directory}/session.sdp"]
    call = [*QUIET, "-loglevel", "repeat+verbose", *source, "-c", "copy", "-f", "framecrc"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ffmpeg = subprocess.Popen([*call, "-y", f"{directory}/frames"])
    try:
        while not os.path.exists(f"{directory}/sent"):
            if ffmpeg.poll() is not None:
                raise SystemExit("ffmpeg ended before the sender did.")
            time.sleep(0.1)
    finally:
        ffmpeg.terminate()
        ffmpeg.wait()
    hand_over(f"{directory}/received")


def main():
    role, directory, address, seconds = sys.argv[1:5]
    if role == "send":
        send(address, directory, seconds)
    else:
        receive(address, directory)


main()
