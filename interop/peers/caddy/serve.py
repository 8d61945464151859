"""Runs Caddy as the matrix's server, with a backend that answers uploads with their SHA-256."""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

CHUNK = 64 * 1024


class Upload(BaseHTTPRequestHandler):
    def do_PUT(self):
        length = 0
        digest = hashlib.sha256()
        for piece in self.body():
            length += len(piece)
            digest.update(piece)
        receipt = json.dumps({"bytes": length, "sha256": digest.hexdigest()}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(receipt)))
        self.end_headers()
        self.wfile.write(receipt)

    do_POST = do_PUT

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            yield from self.read(int(self.headers.get("content-length", 0)))
            return
        while length := int(self.rfile.readline(), 16):
            yield from self.read(length)
            self.rfile.readline()

    def read(self, length):
        while length > 0:
            piece = self.rfile.read(min(length, CHUNK))
            if not piece:
                raise ConnectionError("the body ended early")
            length -= len(piece)
            yield piece


def configuration(options, backend):
    uploads = {
        "match": [{"method": ["PUT", "POST"]}],
        "handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{backend}"}]}],
    }
    downloads = {
        "match": [{"method": ["GET"]}],
        "handle": [{"handler": "file_server", "root": str(options.root.absolute()), "index_names": []}],
    }
    others = {"handle": [{"handler": "static_response", "status_code": 405}]}
    server = {
        "listen": [options.listen],
        "protocols": ["h3"],
        "automatic_https": {"disable": True},
        # For any name that the client requests, or none.
        "tls_connection_policies": [{"certificate_selection": {"any_tag": ["peer"]}}],
        "routes": [uploads, downloads, others],
    }
    certificate = {"certificate": str(options.cert.absolute()), "key": str(options.key.absolute()), "tags": ["peer"]}
    return {
        "admin": {"disabled": True, "config": {"persist": False}},
        "storage": {"module": "file_system", "root": str(options.cache.absolute() / "storage")},
        "apps": {
            "http": {"servers": {"peer": server}},
            "tls": {"certificates": {"load_files": [certificate]}},
        },
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=Path)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--cid-length", type=int)
    # Go's TLS 1.3 has no setting for cipher suites. The client's order decides.
    parser.add_argument("--cipher")
    # Caddy's quic-go updates the keys by itself, and has no setting for when.
    parser.add_argument("--key-update", action="store_true")
    options = parser.parse_args()
    if options.cid_length is not None:
        sys.exit("caddy has no setting for the length of its connection IDs")

    backend = ThreadingHTTPServer(("127.0.0.1", 0), Upload)
    Thread(target=backend.serve_forever, daemon=True).start()
    # Ends Caddy even if this process is killed.
    caddy = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", options.cache / "unpacked/usr/bin/caddy", "run", "--config", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: caddy.terminate())
    json.dump(configuration(options, backend.server_port), caddy.stdin)
    caddy.stdin.close()
    for line in caddy.stderr:
        sys.stderr.write(line)
        if '"serving initial configuration"' in line:
            print("ready: listening on", options.listen, flush=True)
    sys.exit(caddy.wait())


main()
