"""tunnel.py ROLE DIRECTORY PROGRAM WAY BYTES: TCP with CUBIC through a tunnel over UDP.

ROLE is `client` or `server`. PROGRAM is `openvpn`, or the path of wireguard-go. The client
connects, and prints JSON at the end. WAY is `upload` if the client sends the BYTES, or `download`
if the server does. The two ends exchange keys in DIRECTORY.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from contextlib import contextmanager

from exchange import hand_over, wait_for

ADDRESSES = {"client": "10.99.0.1", "server": "10.99.0.2"}
TCP_PORT, TUNNEL_PORT = 5001, 51820
# The offset of tcpi_total_retrans (linux/tcp.h), behind eight bytes and 23 numbers of 4 bytes.
TOTAL_RETRANS = 8 + 23 * 4


def until(found, what):
    for _ in range(500):
        if (result := found()) is not None:
            return result
        time.sleep(0.02)
    raise SystemExit(f"{what} did not answer within 10 s.")


def openssl(*arguments, text=None):
    return subprocess.run(
        ["openssl", *arguments], input=text, capture_output=True, check=True
    ).stdout


def exchange(directory, role, public):
    """Passes a public key to the other role. Returns that one's."""
    hand_over(f"{directory}/{role}.key", public)
    return wait_for(f"{directory}/{'client' if role == 'server' else 'server'}.key")


def wireguard(directory, role, program, name):
    private = openssl("genpkey", "-algorithm", "X25519", "-outform", "DER")
    own = openssl("pkey", "-inform", "DER", "-pubout", "-outform", "DER", text=private)
    public = exchange(directory, role, own[-32:].hex())
    environment = {**os.environ, "LOG_LEVEL": "error"}
    tunnel = subprocess.Popen([program, "-f", name], env=environment, stdout=sys.stderr)
    configure(name, role, private[-32:].hex(), public)
    return tunnel


def openvpn(directory, role, program, name):
    """Two peers that know the fingerprints of their certificates. The cipher is OpenVPN's choice."""
    pair = f"{directory}/{role}.pem", f"{directory}/{role}.pem.key"
    of = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={role}"]
    openssl("req", "-x509", *of, "-out", pair[0], "-keyout", pair[1])
    shown = openssl("x509", "-in", pair[0], "-noout", "-fingerprint", "-sha256").decode()
    other = exchange(directory, role, shown.strip().partition("=")[2])
    call = [program, "--dev", name, "--dev-type", "tun", "--disable-dco", "--verb", "1"]
    call += ["--cert", pair[0], "--key", pair[1], "--peer-fingerprint", other]
    if role == "server":
        ends = ADDRESSES["server"], ADDRESSES["client"]
        call += ["--tls-server", "--dh", "none", "--lport", str(TUNNEL_PORT)]
    else:
        ends = ADDRESSES["client"], ADDRESSES["server"]
        address = os.environ["SIDEKICK_RECEIVER_IP"]
        call += ["--tls-client", "--nobind", "--remote", address, str(TUNNEL_PORT)]
    return subprocess.Popen([*call, "--ifconfig", *ends], stdout=sys.stderr)


def connect(path):
    control = socket.socket(socket.AF_UNIX)
    try:
        control.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    return control


def configure(name, role, private, public):
    control = until(lambda: connect(f"/var/run/wireguard/{name}.sock"), "wireguard-go")
    lines = ["set=1", f"private_key={private}"]
    if role == "server":
        lines.append(f"listen_port={TUNNEL_PORT}")
    lines += [f"public_key={public}", "allowed_ip=0.0.0.0/0"]
    if role == "client":
        lines.append(f"endpoint={os.environ['SIDEKICK_RECEIVER_IP']}:{TUNNEL_PORT}")
    control.send(("\n".join(lines) + "\n\n").encode())
    if "errno=0" not in control.recv(4096).decode():
        raise SystemExit("wireguard-go refuses its configuration.")
    subprocess.run(["ip", "address", "add", f"{ADDRESSES[role]}/24", "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "mtu", "1420", "up"], check=True)


def prepared():
    """Returns a TCP socket that uses Linux's own CUBIC, whatever this machine's default is."""
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    return made


def give(connection, length):
    began = time.monotonic()
    connection.sendall(bytes(length))
    connection.shutdown(socket.SHUT_WR)
    arrived = int(connection.recv(64))
    seconds = time.monotonic() - began
    if arrived != length:
        raise SystemExit(f"only {arrived} of {length} bytes arrived.")
    about = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (retransmitted,) = struct.unpack_from("I", about, TOTAL_RETRANS)
    return json.dumps({"seconds": seconds, "retransmitted": retransmitted})


def take(connection):
    length = 0
    while piece := connection.recv(1 << 20):
        length += len(piece)
    connection.sendall(str(length).encode())


def serve(directory, way, length):
    def listening():
        listener = prepared()
        try:
            listener.bind((ADDRESSES["server"], TCP_PORT))
        except OSError:
            return None
        listener.listen()
        return listener

    # The tunnel may not have its address yet.
    listener = until(listening, "the tunnel")
    while True:
        connection, _ = listener.accept()
        if way == "upload":
            take(connection)
        else:
            hand_over(f"{directory}/result.json", give(connection, length))
        connection.close()


def connect_to_server(directory, way, length):
    def connected():
        attempt = prepared()
        try:
            attempt.connect((ADDRESSES["server"], TCP_PORT))
        except OSError:
            return None
        return attempt

    # The measured time begins after the handshakes of the tunnel and of TCP.
    connection = until(connected, "the server")
    if way == "upload":
        print(give(connection, length))
    else:
        take(connection)
        print(wait_for(f"{directory}/result.json"))


@contextmanager
def tunnel(directory, role, program):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # The control socket's name is not limited to the namespace, so it must differ between tries.
    name = f"vpn{zlib.crc32(directory.encode()):08x}{role[0]}"
    begin = openvpn if program == "openvpn" else wireguard
    running = begin(directory, role, program, name)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def main():
    role, directory, program, way, length = sys.argv[1:6]
    with tunnel(directory, role, program):
        if role == "server":
            serve(directory, way, int(length))
        else:
            connect_to_server(directory, way, int(length))


if __name__ == "__main__":
    main()
