# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command with fake-gcs-server, a server of Google Cloud Storage; google-cloud-storage puts and gets the objects.

The server checks no credentials, and has no uploads of the XML API, by which the command saves: `Uploads` makes uploads
of the JSON API of them.
"""

import contextlib
import hashlib
import itertools
import json
import pathlib
import subprocess
import threading
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import google.auth.jwt
from between import Answer, Between, Request
from checks import BUCKET, MIB, Checks, content, free_port, serving
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage


@contextlib.contextmanager
def server(program: str, folder: pathlib.Path) -> Iterator[str]:
    port = free_port()
    command = [program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with serving([*command, "-public-host", "127.0.0.1", "-log-level", "warn"], port, folder / "log-google"):
        yield f"http://127.0.0.1:{port}"


class Uploads:
    """Uploads of the XML API, whole and in parts, as uploads of the JSON API."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.lock, self.numbers = threading.Lock(), itertools.count(1)
        # The parts of each upload that is not complete.
        self.parts: dict[str, dict[int, bytes]] = {}

    def __call__(self, request: Request) -> Answer | None:
        upload, (_, bucket, key) = request.query.get("uploadId"), request.path.split("/", 2)
        with self.lock:
            match request.method:
                case "PUT" if upload is None:
                    return self.insert(bucket, key, request.body)
                case "PUT":
                    number = int(request.query["partNumber"])
                    self.parts[upload][number] = request.body
                    return Answer(200, headers={"ETag": tag(request.body)})
                case "POST" if "uploads" in request.query:
                    upload = f"upload-{next(self.numbers)}"
                    self.parts[upload] = {}
                    names = f"<Bucket>{bucket}</Bucket><Key>k</Key><UploadId>{upload}</UploadId>"
                    return Answer(200, f"<InitiateMultipartUploadResult>{names}</InitiateMultipartUploadResult>".encode())
                case "POST" if upload is not None:
                    parts = self.parts[upload]
                    found = ET.fromstring(request.body)
                    asked = [(int(part.findtext("PartNumber", "")), part.findtext("ETag")) for part in found.iter("Part")]
                    assert asked == [(number, tag(parts[number])) for number in range(1, len(parts) + 1)], asked
                    done = self.insert(bucket, key, b"".join(parts[number] for number, _ in asked))
                    del self.parts[upload]
                    names = f"<Bucket>{bucket}</Bucket><Key>k</Key><ETag>{done.headers['ETag']}</ETag>"
                    xml = f"<CompleteMultipartUploadResult><Location>x</Location>{names}</CompleteMultipartUploadResult>"
                    return Answer(200, xml.encode(), done.headers)
                case "DELETE" if upload is not None:
                    del self.parts[upload]
                    return Answer(204)
        return None

    def insert(self, bucket: str, key: str, body: bytes) -> Answer:
        query = urllib.parse.urlencode({"uploadType": "media", "name": key})
        url = f"{self.endpoint}/upload/storage/v1/b/{bucket}/o?{query}"
        made = json.load(urllib.request.urlopen(urllib.request.Request(url, body, method="POST")))
        return Answer(200, headers={"ETag": json.dumps(made["etag"]), "x-goog-generation": made["generation"]})


def tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class Google(Checks):
    scheme = "gs"

    def __init__(self, endpoint: str, folder: pathlib.Path, size: int, uploads: Uploads) -> None:
        super().__init__(endpoint, folder, size, {"GOOGLE_BASE_URL": endpoint, "GOOGLE_SKIP_SIGNATURE": "true"})
        self.uploads = uploads
        client = storage.Client("tests", AnonymousCredentials(), client_options={"api_endpoint": endpoint})
        self.bucket = client.create_bucket(BUCKET)

    def put(self, key: str, body: bytes) -> None:
        self.bucket.blob(key).upload_from_string(body, "application/octet-stream")

    def get(self, key: str) -> bytes:
        body: bytes = self.bucket.blob(key).download_as_bytes()
        return body

    def test_saved_object_is_complete_or_not_there(self) -> None:
        with Between(self.endpoint, self.uploads) as between:
            self.saving = self.through(between)
            super().test_saved_object_is_complete_or_not_there()

    def unfinished(self) -> bool:
        return bool(self.uploads.parts)

    def test_generation_is_asked_for(self) -> None:
        self.put("pinned", content(9 * MIB, 7))
        generation = str(self.bucket.get_blob("pinned").generation)
        asked: list[Request] = []
        with Between(self.endpoint, asked.append) as between:
            assert self.loaded("pinned", env=self.through(between)) == content(9 * MIB, 7)
        ranges = [request for request in asked if "range" in request.headers]
        assert len(ranges) > 1 and all(request.query["generation"] == generation for request in ranges), ranges

    def test_service_account_signs(self) -> None:
        """A token that the key of a service account signs, and an endpoint in its file."""
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=tests", "-keyout", "-", "-out", "-"]
        pem = subprocess.run(make, check=True, capture_output=True, text=True).stdout
        key, certificate = pem[: pem.index("-----BEGIN CERT")], pem[pem.index("-----BEGIN CERT") :]
        self.put("private", content(9 * MIB, 8))
        claims: list[dict[str, object]] = []

        def check(request: Request) -> Answer | None:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme != "Bearer":
                return Answer(401)
            claims.append(google.auth.jwt.decode(token, {"one": certificate}))
            return None

        with Between(self.endpoint, check) as between:
            account = {"type": "service_account", "private_key_id": "one", "private_key": key, "client_email": "tests@example.org"}
            path = self.folder / "account.json"
            path.write_text(json.dumps(account | {"gcs_base_url": between.endpoint}))
            env = self.base | {"GOOGLE_SERVICE_ACCOUNT": str(path)}
            assert self.loaded("private", env=env) == content(9 * MIB, 8)
            assert {claim["iss"] for claim in claims} == {"tests@example.org"}
            env = self.base | {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "GOOGLE_BASE_URL": between.endpoint}
            assert self.loaded("private", env=env) == content(9 * MIB, 8)
            error = self.run("load", self.url("private"), "--quiet", code=1, env=self.through(between)).stderr
            assert b"the server answered 401" in error, error
