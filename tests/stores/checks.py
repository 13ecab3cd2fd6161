# SPDX-License-Identifier: MIT OR Apache-2.0
"""What every store has to do with the command: each store's file gives a server, and another client that puts and gets the objects."""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

from between import Between, Request

COMMAND = os.environ["DMABUF_DIO"]
BUCKET = "models"
MIB = 1 << 20
# Ends a hang; nothing depends on it.
LONG = 600


def content(length: int, seed: int) -> bytes:
    """Bytes in which no two ranges are equal."""
    return hashlib.shake_128(seed.to_bytes(8, "little")).digest(length)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def serving(command: list[str], port: int, log: pathlib.Path, env: dict[str, str] | None = None) -> Iterator[None]:
    """A server while it listens to that port."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=env) as process:
        try:
            begin = time.monotonic()
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None, log.read_text()
                assert time.monotonic() - begin < LONG, "the server does not listen"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def certificate(folder: pathlib.Path) -> tuple[str, str]:
    """The files of a key and its own certificate."""
    key, own = str(folder / "key.pem"), str(folder / "certificate.pem")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-keyout", key, "-out", own]
    make += ["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(make, check=True, capture_output=True)
    return key, own


class Tests:
    """Names of tests begin with `test_`."""

    # Texts that no output may have.
    secrets: tuple[str, ...] = ()

    def __init__(self, folder: pathlib.Path, env: dict[str, str]) -> None:
        self.folder = folder
        names = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        self.base = kept | {"HOME": str(folder)}
        self.env = self.base | env

    def run(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([COMMAND, *arguments], env=env or self.env, capture_output=True, timeout=LONG, check=False)
        text = done.stderr.decode(errors="replace")
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{text}"
        for secret in self.secrets:
            assert secret not in text and secret.encode() not in done.stdout, f"{arguments} tells a secret"
        return done

    def run_all(self) -> None:
        for name in [name for name in dir(self) if name.startswith("test_")]:
            test: Callable[[], None] = getattr(self, name)
            print(f"{type(self).__name__}.{name}", flush=True)
            test()


class Checks(Tests):
    """What every store has to do."""

    scheme: str
    # The environment with a wrong secret.
    wrong: dict[str, str] = {}

    def __init__(self, endpoint: str, folder: pathlib.Path, size: int, env: dict[str, str]) -> None:
        super().__init__(folder, env)
        self.endpoint, self.size = endpoint, size
        # Where saves go, if that is another server.
        self.saving = self.env

    def put(self, key: str, body: bytes) -> None:
        """Puts an object by the other client."""
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """Gets an object by the other client."""
        raise NotImplementedError

    def unfinished(self) -> bool:
        """Whether the store has parts of an object that is not complete."""
        raise NotImplementedError

    def through(self, between: Between) -> dict[str, str]:
        """The environment of a command whose requests go through that."""
        return {name: value.replace(self.endpoint, between.endpoint) for name, value in self.env.items()}

    def url(self, key: str) -> str:
        return f"{self.scheme}://{BUCKET}/{key}"

    def saver(self, key: str) -> list[str]:
        """The end of a load that saves its buffer."""
        return [COMMAND, "save", self.url(key)]

    def loaded(self, key: str, *options: str, env: dict[str, str] | None = None) -> bytes:
        return self.run("load", self.url(key), "--quiet", *options, "--", "cat", "{}", env=env).stdout

    def test_every_byte_of_a_large_object_is_loaded(self) -> None:
        body = content(self.size * MIB + 12_345, 1)
        path = self.folder / "large"
        path.write_bytes(body)
        self.put("dir/large.bin", body)
        digest = hashlib.sha256(body).hexdigest()
        url = self.url("dir/large.bin")
        for kind in ("any", "memfd", "private"):
            done = self.run("load", url, "--kind", kind, "--sha256", digest, "--json")
            report = json.loads(done.stdout)
            assert report["mode"] == "fetched" and report["bytes"] == len(body), report
            assert report["fetched"]["bytes"] == len(body), report["fetched"]
            print(f"  {kind}: {report['gb_per_second']:.2f} GB/s, {report['fetched']}, storage {report['storage_bytes']}")
        assert self.loaded("dir/large.bin") == body
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
        error = self.run("load", self.url("flipped"), "--quiet", "--sums", str(sums), code=1).stderr
        assert b"bytes 16777216..25165824 cannot be read" in error, error

    def test_prefix_is_a_folder(self) -> None:
        bodies = {f"set/{name}": content(length, length) for name, length in (("a.json", 10), ("deep/er/b c", 2 * MIB), ("c", 1))}
        for key, body in bodies.items():
            self.put(key, body)
        self.put("set/empty", b"")
        self.put("settle", b"another")
        script = 'cd "$1" && find . ! -type d | sort && cat ./a.json "./deep/er/b c" ./c ./empty'
        done = self.run("load", self.url("set/"), "--quiet", "--", "sh", "-c", script, "x", "{}")
        listed = b"./a.json\n./c\n./deep/er/b c\n./empty\n"
        assert done.stdout == listed + b"".join(bodies.values()), done.stdout[:200]

    def test_replaced_object_is_no_mixture(self) -> None:
        old, new = content(40 * MIB, 11), content(40 * MIB, 12)
        self.put("replaced", old)
        ranges = itertools.count(1)

        def replace(request: Request) -> None:
            # The third request is answered from another object than the first.
            if "range" in request.headers and next(ranges) == 3:
                self.put("replaced", new)

        with Between(self.endpoint, replace) as between:
            done = self.run("load", self.url("replaced"), "--quiet", code=1, env=self.through(between))
        assert b"the object was replaced since it was opened" in done.stderr, done.stderr
        assert self.loaded("replaced") == new

    def test_saved_object_is_complete_or_not_there(self) -> None:
        for length in (1, 8 * MIB, 41 * MIB + 7):
            body = content(length, 3)
            path = self.folder / "saved"
            path.write_bytes(body)
            done = self.run("load", str(path), "--quiet", "--kind", "memfd", "--", *self.saver(f"saved-{length}"), "--json", env=self.saving)
            report = json.loads(done.stdout)
            assert (report["mode"], report["bytes"], report["page_cache_grown"]) == ("sent", length, None), report
            assert self.get(f"saved-{length}") == body
        old = self.get("saved-1")
        process = subprocess.Popen(
            [COMMAND, "load", str(path), "--quiet", "--kind", "memfd", "--", *self.saver("saved-1")],
            env=self.saving,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        begin = time.monotonic()
        # Once parts are there it is interrupted, unless it is faster than this test.
        while process.poll() is None and not self.unfinished():
            assert time.monotonic() - begin < LONG
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
        print(f"  interrupted save: exit {process.returncode}")
        if process.returncode != 0:
            assert process.returncode == 130, errors
            assert self.get("saved-1") == old
        assert self.drops_parts(), "parts are left"

    def drops_parts(self) -> bool:
        return not self.unfinished()

    def test_errors_say_what_to_do(self) -> None:
        error = self.run("load", self.url("none"), "--quiet", code=1).stderr
        assert b"the server answered 404" in error and b"check the name" in error, error
        if not self.wrong:
            return
        self.put("c", b"c")
        wrong = self.env | self.wrong
        error = self.run("load", self.url("c"), "--quiet", code=1, env=wrong).stderr
        assert b"the server answered 403" in error and b"check the credentials" in error, error
        error = self.run("load", self.url("set/"), "--quiet", "--", "true", "{}", code=1, env=wrong).stderr
        assert b"403" in error, error

