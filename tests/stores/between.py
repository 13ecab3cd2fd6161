# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server between the command and a store: it tells a test of every request, and answers some by itself."""

import dataclasses
import http.client
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PIECE = 1 << 20


@dataclasses.dataclass
class Request:
    method: str
    target: str
    # Their names are in small letters.
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urllib.parse.unquote(urllib.parse.urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.target).query, keep_blank_values=True))


@dataclasses.dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


Hook = Callable[[Request], Answer | None]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Between:
    """Asks `hook` first; what that does not answer goes to `upstream`. Without one, it is not found."""

    def __init__(self, upstream: str | None, hook: Hook, ca: str | None = None, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.upstream = urllib.parse.urlsplit(upstream) if upstream else None
        self.hook = hook
        self.tls = ssl.create_default_context(cafile=ca) if ca else None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.answer(self, Request(self.command, self.path, headers, self.rfile.read(length)))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = Server(address, Handler)
        path = self.upstream.path if self.upstream else ""
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}{path}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, to: BaseHTTPRequestHandler, request: Request) -> None:
        # A client that has gone is no matter of the test's.
        to.close_connection = True
        try:
            made = self.hook(request)
            if made is None and self.upstream:
                self.forward(to, request)
            else:
                made = made or Answer(404)
                to.send_response(made.status)
                for name, value in ({"Content-Length": str(len(made.body))} | made.headers).items():
                    to.send_header(name, value)
                to.end_headers()
                if request.method != "HEAD":
                    to.wfile.write(made.body)
            to.close_connection = False
        except (BrokenPipeError, ConnectionResetError):
            pass

    def forward(self, to: BaseHTTPRequestHandler, request: Request) -> None:
        assert self.upstream and self.upstream.hostname
        host, port = self.upstream.hostname, self.upstream.port
        connection = http.client.HTTPSConnection(host, port, context=self.tls) if self.tls else http.client.HTTPConnection(host, port)
        try:
            connection.request(request.method, request.target, request.body or None, request.headers)
            answer = connection.getresponse()
            to.send_response(answer.status)
            length = answer.getheader("content-length")
            whole = None if length else answer.read()
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                    to.send_header(name, value)
            if whole is not None:
                to.send_header("Content-Length", str(len(whole)))
            to.end_headers()
            to.wfile.write(whole or b"")
            while piece := answer.read(PIECE):
                to.wfile.write(piece)
        finally:
            connection.close()
