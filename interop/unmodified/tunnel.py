"""tunnel.py ROLE DIRECTORY PROGRAM WAY BYTES: TCP with CUBIC through a tunnel of wireguard-go.

ROLE is `client` or `server`. The client connects, and prints JSON at the end. WAY is `upload` if
the client sends the BYTES, or `download` if the server does. The two ends exchange keys in
DIRECTORY.
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


def keys(directory, role):
    """Makes a pair of keys, and passes the public one to the other role. Returns the private one."""
    private = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "X25519", "-outform", "DER"],
        capture_output=True,
        check=True,
    ).stdout
    public = subprocess.run(
        ["openssl", "pkey", "-inform", "DER", "-pubout", "-outform", "DER"],
        input=private,
        capture_output=True,
        check=True,
    ).stdout
    hand_over(f"{directory}/{role}.key", public[-32:].hex())
    return private[-32:].hex()


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
    listener = prepared()
    listener.bind((ADDRESSES["server"], TCP_PORT))
    listener.listen()
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


def main():
    role, directory, program, way, length = sys.argv[1:6]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    private = keys(directory, role)
    other = "client" if role == "server" else "server"
    public = wait_for(f"{directory}/{other}.key")
    # The control socket's name is not limited to the namespace, so it must differ between tries.
    name = f"wg{zlib.crc32(directory.encode()):08x}{role[0]}"
    environment = {**os.environ, "LOG_LEVEL": "error"}
    tunnel = subprocess.Popen([program, "-f", name], env=environment, stdout=sys.stderr)
    try:
        configure(name, role, private, public)
        if role == "server":
            serve(directory, way, int(length))
        else:
            connect_to_server(directory, way, int(length))
    finally:
        tunnel.terminate()
        tunnel.wait()


main()
