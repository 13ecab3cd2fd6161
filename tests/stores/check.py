# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads, saves and sums objects of a server of S3 by the command, and compares every byte with what boto3 reads and writes."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import boto3
from botocore.config import Config

COMMAND = os.environ["DMABUF_DIO"]
KEY, SECRET = "user-of-the-tests", "secret-of-the-tests"
BUCKET = "models"
MIB = 1 << 20
# Ends a hang; nothing depends on it.
LONG = 600


@contextlib.contextmanager
def server(gateway: str, folder: pathlib.Path, *tls: str) -> Iterator[str]:
    """A server of a folder; its endpoint. The options are those of TLS, if there are any."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    data.mkdir(exist_ok=True)
    command = [gateway, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--quiet", *tls, "posix", str(data)]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            begin = time.monotonic()
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() - begin < LONG, "the server does not listen"
                time.sleep(0.05)
            yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        finally:
            process.terminate()


def content(length: int, seed: int) -> bytes:
    """Bytes in which no two ranges are equal."""
    return hashlib.shake_128(seed.to_bytes(8, "little")).digest(length)


class Tests:
    def __init__(self, gateway: str, endpoint: str, folder: pathlib.Path, size: int) -> None:
        self.gateway, self.endpoint, self.folder, self.size = gateway, endpoint, folder, size
        config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
        self.s3 = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1", config=config
        )
        self.s3.create_bucket(Bucket=BUCKET)
        names = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        self.env = kept | {
            "HOME": str(folder),
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def run(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([COMMAND, *arguments], env=env or self.env, capture_output=True, timeout=LONG, check=False)
        text = done.stderr.decode(errors="replace")
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{text}"
        assert SECRET not in text and SECRET.encode() not in done.stdout
        return done

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    def test_every_byte_of_a_large_object_is_loaded(self) -> None:
        body = content(self.size * MIB + 12_345, 1)
        path = self.folder / "large"
        path.write_bytes(body)
        self.s3.upload_file(str(path), BUCKET, "dir/large.bin")
        digest = hashlib.sha256(body).hexdigest()
        url = f"s3://{BUCKET}/dir/large.bin"
        for kind in ("any", "memfd", "private"):
            done = self.run("load", url, "--kind", kind, "--sha256", digest, "--json")
            report = json.loads(done.stdout)
            assert report["mode"] == "fetched" and report["bytes"] == len(body), report
            assert report["fetched"]["bytes"] == len(body), report["fetched"]
            print(f"  {kind}: {report['gb_per_second']:.2f} GB/s, {report['fetched']}, storage {report['storage_bytes']}")
        assert self.run("load", url, "--quiet", "--", "cat", "{}").stdout == body
        script = "tail -c +$((DMABUF_DIO_OFFSET + 1)) /proc/self/fd/$DMABUF_DIO_FD | head -c $DMABUF_DIO_LEN"
        part = self.run(
            "load", url, "--quiet", "--kind", "memfd", "--offset", "1000001", "--length", "3000000", "--", "sh", "-c", script
        )
        assert part.stdout == body[1_000_001:4_000_001]
        sums = self.folder / "sums"
        sums.write_bytes(self.run("sum", str(path)).stdout)
        assert self.run("sum", url).stdout == sums.read_bytes()
        self.run("load", url, "--quiet", "--sums", str(sums))
        # The same object with one byte flipped.
        flipped = bytearray(body)
        flipped[20 * MIB] ^= 1
        self.put("flipped", bytes(flipped))
        error = self.run("load", f"s3://{BUCKET}/flipped", "--quiet", "--sums", str(sums), code=1).stderr
        assert b"bytes 16777216..25165824 cannot be read" in error, error

    def test_signed_url_is_loaded_from_a_variable(self) -> None:
        body = content(3 * MIB, 2)
        self.put("signed", body)
        url = self.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "signed"})
        env = self.env | {"SIGNED": url}
        done = self.run("load", "env:SIGNED", "--quiet", "--", "cat", "{}", env=env)
        assert done.stdout == body
        said = self.run("load", "env:SIGNED", "--json", env=env)
        assert b"Signature" not in said.stdout + said.stderr

    def test_prefix_is_a_folder(self) -> None:
        bodies = {f"set/{name}": content(length, length) for name, length in (("a.json", 10), ("deep/er/b c", 2 * MIB), ("c", 1))}
        for key, body in bodies.items():
            self.put(key, body)
        self.put("set/empty", b"")
        self.put("settle", b"another")
        script = 'cd "$1" && find . ! -type d | sort && cat ./a.json "./deep/er/b c" ./c ./empty'
        done = self.run("load", f"s3://{BUCKET}/set/", "--quiet", "--", "sh", "-c", script, "x", "{}")
        listed = b"./a.json\n./c\n./deep/er/b c\n./empty\n"
        assert done.stdout == listed + b"".join(bodies.values()), done.stdout[:200]

    def test_saved_object_is_complete_or_not_there(self) -> None:
        for length in (1, 8 * MIB, 41 * MIB + 7):
            body = content(length, 3)
            path = self.folder / "saved"
            path.write_bytes(body)
            url = f"s3://{BUCKET}/saved-{length}"
            done = self.run("load", str(path), "--quiet", "--kind", "memfd", "--", COMMAND, "save", url, "--json")
            report = json.loads(done.stdout)
            assert (report["mode"], report["bytes"], report["page_cache_grown"]) == ("sent", length, None), report
            assert self.get(f"saved-{length}") == body
        old = self.get("saved-1")
        process = subprocess.Popen(
            [COMMAND, "load", str(path), "--quiet", "--kind", "memfd", "--", COMMAND, "save", f"s3://{BUCKET}/saved-1"],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        begin = time.monotonic()
        # Once parts are there it is interrupted, unless it is faster than this test.
        while process.poll() is None and not self.uploads():
            assert time.monotonic() - begin < LONG
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
        print(f"  interrupted save: exit {process.returncode}")
        if process.returncode != 0:
            assert process.returncode == 130, errors
            assert self.get("saved-1") == old
        assert not self.uploads(), "parts are left"

    def uploads(self) -> bool:
        return bool(self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads"))

    def test_errors_say_what_to_do(self) -> None:
        error = self.run("load", f"s3://{BUCKET}/none", "--quiet", code=1).stderr
        assert b"the server answered 404" in error and b"check the name" in error, error
        wrong = self.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        error = self.run("load", f"s3://{BUCKET}/c", "--quiet", code=1, env=wrong).stderr
        assert b"the server answered 403" in error and b"check the credentials" in error, error
        wrong = self.env | {"AWS_SECRET_ACCESS_KEY": "wrong"}
        error = self.run("load", f"s3://{BUCKET}/set/", "--quiet", "--", "true", "{}", code=1, env=wrong).stderr
        assert b"403" in error, error

    def test_certificates_are_checked(self) -> None:
        key, certificate = self.certificate()
        body = content(9 * MIB, 5)
        self.put("by-tls", body)
        url = f"s3://{BUCKET}/by-tls"
        with server(self.gateway, self.folder, "--cert", certificate, "--key", key) as endpoint:
            env = self.env | {"AWS_ENDPOINT_URL": endpoint}
            error = self.run("load", url, "--quiet", code=1, env=env).stderr
            assert b"the server's certificate is not trusted" in error and b"--ca" in error, error
            assert self.run("load", url, "--ca", certificate, "--quiet", "--", "cat", "{}", env=env).stdout == body
            # The same under a name that the certificate does not have.
            other = env | {"AWS_ENDPOINT_URL": endpoint.replace("127.0.0.1", "localhost")}
            error = self.run("load", url, "--ca", certificate, "--quiet", code=1, env=other).stderr
            assert b"the server's certificate is not trusted" in error, error

    def test_web_server_over_tls(self) -> None:
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if nginx is None:
            print("  skipped: there is no nginx")
            return
        folder = self.folder / "nginx"
        (folder / "www").mkdir(parents=True)
        body = content(self.size * MIB + 1, 6)
        (folder / "www" / "large").write_bytes(body)
        for path in (folder.parent, folder, folder / "www"):
            path.chmod(0o755)
        key, certificate = self.certificate()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        paths = "".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "conf").write_text(
            f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; {paths}"
            f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key}; root {folder}/www; }} }}"
        )
        url = f"https://127.0.0.1:{port}/large"
        with subprocess.Popen([nginx, "-c", str(folder / "conf"), "-e", f"{folder}/log"]) as process:
            try:
                begin = time.monotonic()
                while True:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                        break
                    assert process.poll() is None and time.monotonic() - begin < LONG
                    time.sleep(0.05)
                error = self.run("load", url, "--quiet", code=1).stderr
                assert b"the server's certificate is not trusted" in error, error
                digest = hashlib.sha256(body).hexdigest()
                done = self.run("load", url, "--ca", certificate, "--sha256", digest, "--kind", "memfd", "--json")
                print(f"  {json.loads(done.stdout)['gb_per_second']:.2f} GB/s")
                assert self.run("load", url, "--ca", certificate, "--quiet", "--", "cat", "{}").stdout == body
            finally:
                process.terminate()

    def certificate(self) -> tuple[str, str]:
        """The files of a key and its own certificate."""
        key, certificate = str(self.folder / "key.pem"), str(self.folder / "certificate.pem")
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-keyout", key, "-out", certificate]
        make += ["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(make, check=True, capture_output=True)
        return key, certificate

    def test_profile_is_read(self) -> None:
        folder = self.folder / ".aws"
        folder.mkdir()
        (folder / "credentials").write_text(f"[x]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        (folder / "config").write_text(f"[profile x]\nregion = us-east-1\nendpoint_url = {self.endpoint}\n")
        env = {name: value for name, value in self.env.items() if not name.startswith("AWS_")} | {"AWS_PROFILE": "x"}
        body = content(100, 4)
        self.put("by-profile", body)
        assert self.run("load", f"s3://{BUCKET}/by-profile", "--quiet", "--", "cat", "{}", env=env).stdout == body


def main() -> None:
    gateway, size = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as name, server(gateway, pathlib.Path(name)) as endpoint:
        tests = Tests(gateway, endpoint, pathlib.Path(name), size)
        for test in [name for name in dir(tests) if name.startswith("test_")]:
            print(test, flush=True)
            getattr(tests, test)()
    print("all passed")


main()
