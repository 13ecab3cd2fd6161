# SPDX-License-Identifier: MIT OR Apache-2.0
"""A web server, which is also a store of S3's kind, with Range, ETag, lists and uploads; and it can be slow and wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Store:
    """Files by their paths: `/bucket/key`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        # What was asked for: the path with its query, and the first and last byte.
        self.asked: list[tuple[str, int, int]] = []
        # Called before each answer, which is the status that it returns, if any.
        self.before: Callable[[str, int, int], int | None] = lambda path, first, last: None
        self.lists = 0
        # The same before a body that was received is kept: the path with its query.
        self.before_put: Callable[[str], int | None] = lambda path: None
        # Parts of uploads that are not complete, by the upload's name and their number.
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.uploads_begun = 0
        # Requests that wait are let go at the end.
        self.over = threading.Event()
        self.port = 0

    @property
    def web(self) -> str:
        """The start of the URLs of its web server."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """What makes it the store of S3."""
        return {
            "AWS_ENDPOINT_URL": self.web,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "TheKeyOfTests",
            "AWS_SECRET_ACCESS_KEY": "TheSecretOfTests",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def take_asked(self) -> list[tuple[str, int, int]]:
        """What was asked for since the last call, in the order of the bytes."""
        asked, self.asked = self.asked, []
        return sorted(asked)


@contextmanager
def serving() -> Generator[Store, None, None]:
    """A server in threads of this process."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are two writes: the second would wait for the client's delayed acknowledgement.
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            parts = urlsplit(self.path)
            query, path = parse_qs(parts.query), unquote(parts.path)
            status = store.before_put(self.path)
            if status is not None:
                self.say(status, b"", {})
                return
            if "partNumber" in query:
                store.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
            else:
                store.files[path] = body
            self.say(200, b"", {"ETag": '"1"'})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            query, path = parse_qs(parts.query, keep_blank_values=True), unquote(parts.path)
            if "uploads" in query:
                store.uploads_begun += 1
                name = f"upload-{store.uploads_begun}"
                store.uploads[name] = {}
                result = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            else:
                found = store.uploads.pop(query["uploadId"][0])
                store.files[path] = b"".join(found[number] for number in sorted(found))
                result = "<CompleteMultipartUploadResult><ETag>&quot;1&quot;</ETag></CompleteMultipartUploadResult>"
            self.say(200, result.encode(), {})

        def do_DELETE(self) -> None:
            store.uploads.pop(parse_qs(urlsplit(self.path).query)["uploadId"][0])
            self.say(204, b"", {})

        def answer(self, with_body: bool) -> None:
            parts = urlsplit(self.path)
            query, path = parse_qs(parts.query), unquote(parts.path)
            if "list-type" in query:
                store.lists += 1
                self.say(200, _listed(store, path.strip("/"), query.get("prefix", [""])[0]), {})
                return
            data = store.files.get(path)
            if data is None:
                self.say(404, b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b"", {})
                return
            tag = f'"{sha256(data).hexdigest()[:16]}"'
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(found[1]), min(int(found[2]), len(data) - 1)) if found else (0, len(data) - 1)
            if with_body and (found is None or (first, last) != (0, 0)):
                store.asked.append((self.path, first, last))
            status = store.before(self.path, first, last)
            data = store.files.get(path, data)
            tag = f'"{sha256(data).hexdigest()[:16]}"'
            if status is not None:
                self.say(status, b"", {})
            elif self.headers.get("If-Match", tag) != tag:
                self.say(412, b"", {})
            elif found:
                self.say(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": tag})
            else:
                self.say(200, data if with_body else b"", {"ETag": tag}, len(data))

        def say(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                # A client that has given up
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        store.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            store.over.set()
            server.shutdown()
            thread.join()


def _listed(store: Store, bucket: str, prefix: str) -> bytes:
    start = f"/{bucket}/"
    keys = sorted(path[len(start) :] for path in store.files if path.startswith(start + prefix))
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{len(store.files[start + key])}</Size>"
        "<LastModified>2026-11-28T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag></Contents>"
        for key in keys
    )
    text = f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>'
    return text.encode()
