"""transport_stream.py ROLE DIRECTORY ADDRESS SECONDS: H.264 in MPEG-TS over UDP, by ffmpeg.

ROLE is `send` or `receive`. ADDRESS is the receiver's. The receiver writes to
DIRECTORY/result.json what the stream lost, as JSON, and ends after the sender.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter

from exchange import hand_over, wait_for

PORT = 5006
# The length of a packet of a transport stream. A datagram has seven.
PACKET = 188
# The time until the receiver listens, and the silence after which it ends, in seconds.
HEAD_START, SILENCE = 2, 5
QUIET = ["ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-y"]


def send(address, directory, seconds):
    picture = ["-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-t", seconds]
    coded = ["-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency", "-b:v", "2M"]
    movie = f"{directory}/files/movie.ts"
    # The coder would disturb the stream on a busy machine, so it runs before.
    subprocess.run([*QUIET, *picture, *coded, "-maxrate", "2M", "-bufsize", "1M", "-g", "50", movie], check=True)
    hand_over(f"{directory}/coded")
    time.sleep(HEAD_START)
    both = f"[f=mpegts]udp\\://{address}\\:{PORT}?pkt_size={7 * PACKET}|[f=mpegts]{directory}/files/sent.ts"
    subprocess.run([*QUIET, "-re", "-i", movie, "-map", "0", "-c", "copy", "-f", "tee", both], check=True)
    # The lab ends both programs as soon as one ends, so wait for the receiver.
    wait_for(f"{directory}/result.json")


def receive(directory):
    arrived = f"{directory}/files/arrived.ts"
    # As it arrives: ffmpeg's own reader of such streams takes the packets in the same order.
    source = f"udp://0.0.0.0:{PORT}?fifo_size=100000&timeout={SILENCE * 1_000_000}"
    wait_for(f"{directory}/coded")
    # ffmpeg takes the silence at the end for an error.
    subprocess.run([*QUIET, "-f", "data", "-i", source, "-map", "0", "-c", "copy", "-f", "data", arrived])
    result = {"figure": concealed(arrived), **compare(f"{directory}/files/sent.ts", arrived)}
    hand_over(f"{directory}/result.json", json.dumps(result))


def concealed(path):
    """Counts the frames of which ffmpeg had to conceal a part."""
    call = [*QUIET, "-loglevel", "repeat+info", "-i", path, "-f", "null", "-"]
    log = subprocess.run(call, check=True, capture_output=True, text=True).stderr
    return len(re.findall(r"concealing \d+ DC", log))


def packets(path):
    with open(path, "rb") as file:
        stream = file.read()
    at = 0
    # The proxy's answer is no part of the stream. ffmpeg looks for the next packet, too.
    while (at := stream.find(b"G", at)) >= 0:
        if stream[at + PACKET : at + PACKET + 1] in (b"G", b""):
            yield stream[at : at + PACKET]
            at += PACKET
        else:
            at += 1


def compare(sent, arrived):
    """Counts packets that are missing, and those that follow one that was sent later."""
    sent = list(packets(sent))
    # Tables repeat to the byte after some time, so only other packets have a place.
    counts = Counter(sent)
    places = {packet: at for at, packet in enumerate(sent) if counts[packet] == 1}
    latest, late, seen = -1, 0, set()
    for place in (places[packet] for packet in packets(arrived) if packet in places):
        late += place < latest
        latest = max(latest, place)
        seen.add(place)
    return {"sent": len(places), "missing": len(places) - len(seen), "out_of_order": late}


def main():
    role, directory, address, seconds = sys.argv[1:5]
    if role == "send":
        send(address, directory, seconds)
    else:
        receive(directory)


main()
