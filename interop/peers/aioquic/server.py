"""The matrix's server on aioquic. It answers uploads with their SHA-256, and serves the files of a directory."""

import argparse
import asyncio
import hashlib
import json
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StopSendingReceived, StreamReset
from aioquic.tls import CipherSuite

CIPHERS = {"aes128": CipherSuite.AES_128_GCM_SHA256, "chacha20": CipherSuite.CHACHA20_POLY1305_SHA256}
CHUNK = 64 * 1024
KEY_UPDATE_AFTER = 256 * 1024


class Upload:
    def __init__(self):
        self.bytes = 0
        self.hash = hashlib.sha256()

    def take(self, data):
        self.bytes += len(data)
        self.hash.update(data)

    def receipt(self):
        return json.dumps({"bytes": self.bytes, "sha256": self.hash.hexdigest()}).encode()


class Connection(QuicConnectionProtocol):
    def __init__(self, *args, root, key_update, **kwargs):
        super().__init__(*args, **kwargs)
        self.root = root
        self.bytes_until_key_update = KEY_UPDATE_AFTER if key_update else None
        self.http = None
        self.uploads = {}  # by stream
        self.downloads = {}  # the open files, by stream

    def quic_event_received(self, event):
        match event:
            case ProtocolNegotiated():
                self.http = H3Connection(self._quic)
            case StreamReset(stream_id=stream):
                self.uploads.pop(stream, None)
            case StopSendingReceived(stream_id=stream):
                self.end_download(stream)
            case ConnectionTerminated():
                for stream in list(self.downloads):
                    self.end_download(stream)
        if self.http is not None:
            for http_event in self.http.handle_event(event):
                try:
                    self.http_event_received(http_event)
                except RuntimeError as error:
                    # aioquic raises an error for an answer to a cancelled request.
                    logging.info("no answer: %s", error)

    def http_event_received(self, event):
        match event:
            case HeadersReceived(headers=headers, stream_id=stream):
                headers = dict(headers)
                # Trailers have no method.
                if b":method" in headers:
                    self.request(stream, headers[b":method"], headers.get(b":path", b""))
            case DataReceived(data=data, stream_id=stream):
                self.count(data)
                if stream in self.uploads:
                    self.uploads[stream].take(data)
            case _:
                return
        if event.stream_ended and stream in self.uploads:
            self.respond(stream, 200, self.uploads.pop(stream).receipt(), "application/json")

    def request(self, stream, method, path):
        if method in (b"PUT", b"POST"):
            self.uploads[stream] = Upload()
        elif method == b"GET":
            self.start_download(stream, unquote(path.decode(errors="replace").partition("?")[0]).removeprefix("/"))
        else:
            self.respond(stream, 405)

    def respond(self, stream, status, body=b"", content_type="text/plain"):
        self.send_head(stream, status, len(body), content_type)
        self.http.send_data(stream, body, end_stream=True)

    def send_head(self, stream, status, length, content_type):
        head = {":status": status, "content-length": length, "content-type": content_type}
        self.http.send_headers(stream, [(name.encode(), str(value).encode()) for name, value in head.items()])

    def start_download(self, stream, name):
        try:
            if "/" in name:
                raise FileNotFoundError
            file = open(self.root / name, "rb")
        except (OSError, ValueError):
            self.respond(stream, 404)
            return
        self.send_head(stream, 200, os.fstat(file.fileno()).st_size, "application/octet-stream")
        self.downloads[stream] = file
        self.send_chunk(stream)

    def send_chunk(self, stream):
        chunk = self.downloads[stream].read(CHUNK)
        at_end = len(chunk) < CHUNK
        self.http.send_data(stream, chunk, end_stream=at_end)
        self.count(chunk)
        if at_end:
            self.end_download(stream)

    def end_download(self, stream):
        if stream in self.downloads:
            self.downloads.pop(stream).close()

    def transmit(self):
        super().transmit()
        while hungry := self.hungry_streams():
            for stream in hungry:
                self.send_chunk(stream)
            super().transmit()

    def hungry_streams(self):
        """Returns the downloads that have no unsent data."""
        # aioquic buffers without limit, and no public function returns how much waits.
        return [stream for stream in self.downloads if self._quic._streams[stream].sender.buffer_is_empty]

    def count(self, data):
        """Updates the keys in the middle of the first transfer."""
        if self.bytes_until_key_update is not None:
            self.bytes_until_key_update -= len(data)
            if self.bytes_until_key_update <= 0:
                self.bytes_until_key_update = None
                self._quic.request_key_update()
                logging.info("updating the keys")


def address(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def format_address(host, port, *_):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_options():
    parser = argparse.ArgumentParser(prog="aioquic", allow_abbrev=False)
    parser.add_argument("--listen", required=True, type=address, metavar="ADDR:PORT")
    parser.add_argument("--cert", required=True, metavar="FILE")
    parser.add_argument("--key", required=True, metavar="FILE")
    parser.add_argument("--root", required=True, type=Path, metavar="DIR")
    parser.add_argument("--cid-length", type=int, choices=range(21), metavar="N")
    parser.add_argument("--cipher", choices=CIPHERS)
    parser.add_argument("--key-update", action="store_true")
    return parser.parse_args()


async def run(options):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(options.cert, options.key)
    if options.cid_length is not None:
        configuration.connection_id_length = options.cid_length
    if options.cipher is not None:
        configuration.cipher_suites = [CIPHERS[options.cipher]]

    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    tickets = {}
    server = await serve(
        *options.listen,
        configuration=configuration,
        create_protocol=partial(Connection, root=options.root, key_update=options.key_update),
        session_ticket_fetcher=tickets.get,
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
    )
    print("ready: listening on", format_address(*server._transport.get_extra_info("sockname")), flush=True)
    await terminated.wait()
    server.close()


if __name__ == "__main__":
    options = parse_options()
    logging.basicConfig(level=logging.INFO)
    try:
        asyncio.run(run(options))
    except (OSError, ValueError) as error:
        sys.exit(f"aioquic cannot listen on {format_address(*options.listen)}: {error}")
