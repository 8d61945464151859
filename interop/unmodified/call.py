"""call.py ROLE DIRECTORY SECONDS: a WebRTC call of sound from one Chromium to another.

ROLE is `send` or `receive`. Both find each other's descriptions in DIRECTORY. At the end of the
call the receiver writes what it had to make up to DIRECTORY/result.json.
"""

import json
import os
import sys
import time

from chromium import Chromium

FLAGS = [
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    # There is no name server, and nobody who answers multicast DNS.
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
"""
STATISTICS = """(async () => {
    for (const figures of (await window.call.getStats()).values()) {
        if (figures.type === "inbound-rtp" && figures.kind === "audio") {
            return {samples: figures.totalSamplesReceived, concealed: figures.concealedSamples,
                packets: figures.packetsReceived, lost: figures.packetsLost};
        }
    }
    return {};
})()"""


def hand_over(path, text):
    with open(f"{path}.part", "w") as file:
        file.write(text)
    os.rename(f"{path}.part", path)


def wait_for(path):
    for _ in range(3000):
        if os.path.exists(path):
            with open(path) as file:
                return file.read()
        time.sleep(0.02)
    raise SystemExit(f"{path} does not appear")


def until_connected(browser):
    for _ in range(500):
        if browser.evaluate("window.call.connectionState") == "connected":
            return
        time.sleep(0.02)
    raise SystemExit("the call is not connected")


def send(browser, directory, seconds):
    offer = browser.evaluate(
        f"""(async () => {{ {BEGIN}
            const sound = await navigator.mediaDevices.getUserMedia({{audio: {{
                echoCancellation: false, noiseSuppression: false, autoGainControl: false}}}});
            sound.getTracks().forEach((track) => call.addTrack(track, sound));
            return described(await call.createOffer());
        }})()"""
    )
    hand_over(f"{directory}/offer", offer)
    answer = wait_for(f"{directory}/answer")
    browser.evaluate(f"window.call.setRemoteDescription({answer})")
    until_connected(browser)
    time.sleep(seconds)
    wait_for(f"{directory}/result.json")


def receive(browser, directory, seconds):
    offer = wait_for(f"{directory}/offer")
    answer = browser.evaluate(
        f"""(async () => {{ {BEGIN}
            // Samples are only counted where somebody listens.
            call.ontrack = (event) => {{
                const sound = document.createElement("audio");
                sound.srcObject = event.streams[0];
                document.body.append(sound);
                sound.play();
            }};
            await call.setRemoteDescription({offer});
            return described(await call.createAnswer());
        }})()"""
    )
    hand_over(f"{directory}/answer", answer)
    until_connected(browser)
    # Without what the beginning conceals: the first packet has to arrive at all.
    time.sleep(1)
    before = browser.evaluate(STATISTICS)
    time.sleep(seconds)
    after = browser.evaluate(STATISTICS)
    figures = {name: after[name] - before.get(name, 0) for name in after}
    hand_over(f"{directory}/result.json", json.dumps(figures))
    time.sleep(600)


def main():
    role, directory, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    own = f"{directory}/{role}"
    os.makedirs(own)
    with open(f"{own}/page.html", "w") as file:
        file.write("<!doctype html><title>call</title>")
    browser = Chromium(own, FLAGS, f"file://{own}/page.html")
    (send if role == "send" else receive)(browser, directory, seconds)
    browser.close()


main()
