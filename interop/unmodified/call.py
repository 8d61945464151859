"""call.py ROLE DIRECTORY SECONDS: a WebRTC call of sound between two Chromiums, both ways.

ROLE is `send` for the caller, or `receive`. The two ends exchange their session descriptions in
DIRECTORY. At the end, the caller writes what both ends received to DIRECTORY/result.json. `up` is
the sound from the caller, and `down` the sound to the caller.
"""

import json
import os
import sys
import time

from chromium import Chromium
from exchange import hand_over, wait_for

FLAGS = [
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    # The emulated path has no name server and no multicast DNS.
    "--disable-features=WebRtcHideLocalIpsWithMdns",
]
BEGIN = """
    const call = window.call = new RTCPeerConnection();
    const described = async (description) => {
        await call.setLocalDescription(description);
        if (call.iceGatheringState !== "complete") {
            await new Promise((done) => call.onicegatheringstatechange = () =>
                call.iceGatheringState === "complete" && done());
        }
        return JSON.stringify(call.localDescription);
    };
    // Chromium counts samples only while it plays them.
    call.ontrack = (event) => {
        const sound = document.createElement("audio");
        sound.srcObject = event.streams[0];
        document.body.append(sound);
        sound.play();
    };
    const sound = await navigator.mediaDevices.getUserMedia({audio: {
        echoCancellation: false, noiseSuppression: false, autoGainControl: false}});
    const speak = () => sound.getTracks().forEach((track) => call.addTrack(track, sound));
"""
# The buffer's delay is the sum of the times that its samples waited, in seconds.
STATISTICS = """(async () => {
    for (const figures of (await window.call.getStats()).values()) {
        if (figures.type === "inbound-rtp" && figures.kind === "audio") {
            return {samples: figures.totalSamplesReceived, concealed: figures.concealedSamples,
                packets: figures.packetsReceived, lost: figures.packetsLost,
                waited: figures.jitterBufferDelay, emitted: figures.jitterBufferEmittedCount};
        }
    }
    return {};
})()"""


def until_connected(browser):
    for _ in range(500):
        if browser.evaluate("window.call.connectionState") == "connected":
            return
        time.sleep(0.02)
    raise SystemExit("the call did not connect within 10 s.")


def between(before, after):
    return {name: after[name] - before.get(name, 0) for name in after}


def listen(browser, seconds):
    """Returns statistics of the received sound, in total and by the second.

    The row of a second has the delay of the jitter buffer, in ms, and the share of concealed samples,
    in percent. Each is null if the second has no samples.
    """
    # Skip the first second: Chromium conceals all samples until the first packet arrives.
    time.sleep(1)
    began = time.monotonic()
    read = [browser.evaluate(STATISTICS)]
    for second in range(1, seconds + 1):
        time.sleep(max(0, began + second - time.monotonic()))
        read.append(browser.evaluate(STATISTICS))
    each = [between(*pair) for pair in zip(read, read[1:])]
    rows = [
        [ratio(1000, one.get("waited"), one.get("emitted")), ratio(100, one.get("concealed"), one.get("samples"))]
        for one in each
    ]
    return {**between(read[0], read[-1]), "seconds": rows}


def ratio(factor, part, whole):
    return round(factor * part / whole, 2) if whole else None


def send(browser, directory, seconds):
    offer = browser.evaluate(
        f"""(async () => {{ {BEGIN}
            speak();
            return described(await call.createOffer());
        }})()"""
    )
    hand_over(f"{directory}/offer", offer)
    answer = wait_for(f"{directory}/answer")
    browser.evaluate(f"window.call.setRemoteDescription({answer})")
    until_connected(browser)
    down = listen(browser, seconds)
    up = json.loads(wait_for(f"{directory}/heard.json"))
    hand_over(f"{directory}/result.json", json.dumps({"up": up, "down": down}))


def receive(browser, directory, seconds):
    offer = wait_for(f"{directory}/offer")
    answer = browser.evaluate(
        f"""(async () => {{ {BEGIN}
            await call.setRemoteDescription({offer});
            speak();
            return described(await call.createAnswer());
        }})()"""
    )
    hand_over(f"{directory}/answer", answer)
    until_connected(browser)
    hand_over(f"{directory}/heard.json", json.dumps(listen(browser, seconds)))
    # The other end may still receive.
    time.sleep(600)


def main():
    role, directory, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    own = f"{directory}/{role}"
    os.makedirs(own)
    with open(f"{own}/page.html", "w") as file:
        file.write("<!doctype html><title>call</title>")
    browser = Chromium(own, FLAGS, f"file://{own}/page.html")
    (send if role == "send" else receive)(browser, directory, seconds)
    browser.close()


main()
