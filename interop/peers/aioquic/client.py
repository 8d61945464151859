"""client.py CAFILE [--upload BYTES] URL: a client on aioquic. It downloads the URL, or uploads so
many bytes to it, and prints JSON.
"""

import asyncio
import json
import os
import sys
import time
from urllib.parse import urlsplit

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.received = 0
        self.ended = self._loop.create_future()

    def request(self, url, body):
        self.http = H3Connection(self._quic)
        stream = self._quic.get_next_available_stream_id()
        method = "PUT" if body else "GET"
        headers = {":method": method, ":scheme": "https", ":authority": url.netloc, ":path": url.path}
        headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.http.send_headers(stream, headers, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated) and not self.ended.done():
            self.ended.set_exception(ConnectionError(event.reason_phrase))
        for part in self.http.handle_event(event) if self.http else []:
            match part:
                case HeadersReceived(headers=headers) if (status := dict(headers)[b":status"])[:1] != b"2":
                    self.ended.set_exception(ConnectionError(f"the server answers {status.decode()}"))
                case DataReceived(data=data):
                    self.received += len(data)
            if part.stream_ended and not self.ended.done():
                self.ended.set_result(None)


async def main():
    authorities, *upload, url = sys.argv[1:]
    body, url = os.urandom(int(upload[1]) if upload else 0), urlsplit(url)
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN)
    configuration.load_verify_locations(authorities)
    began = time.monotonic()
    async with connect(
        url.hostname, url.port, configuration=configuration, create_protocol=Client
    ) as client:
        client.request(url, body)
        await client.ended
        length = len(body) or client.received
        print(json.dumps({"bytes": length, "seconds": time.monotonic() - began}))


asyncio.run(main())
