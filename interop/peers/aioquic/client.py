"""download.py CAFILE URL: a client on aioquic. It downloads the URL, and prints JSON."""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated


class Download(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.received = 0
        self.ended = self._loop.create_future()

    def request(self, url):
        self.http = H3Connection(self._quic)
        stream = self._quic.get_next_available_stream_id()
        headers = {":method": "GET", ":scheme": "https", ":authority": url.netloc, ":path": url.path}
        headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.http.send_headers(stream, headers, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated) and not self.ended.done():
            self.ended.set_exception(ConnectionError(event.reason_phrase))
        for part in self.http.handle_event(event) if self.http else []:
            match part:
                case HeadersReceived(headers=headers) if (status := dict(headers)[b":status"]) != b"200":
                    self.ended.set_exception(ConnectionError(f"the server answers {status.decode()}"))
                case DataReceived(data=data):
                    self.received += len(data)
            if part.stream_ended and not self.ended.done():
                self.ended.set_result(None)


async def main():
    authorities, url = sys.argv[1], urlsplit(sys.argv[2])
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN)
    configuration.load_verify_locations(authorities)
    began = time.monotonic()
    async with connect(
        url.hostname, url.port, configuration=configuration, create_protocol=Download
    ) as client:
        client.request(url)
        await client.ended
        print(json.dumps({"bytes": client.received, "seconds": time.monotonic() - began}))


asyncio.run(main())
