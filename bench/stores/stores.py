# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads one object of a real S3 server into memory, by this project and by other programs: bench/stores/run [OPTION...]

Each load is one of a fresh process, which has imported what it needs and is connected to nothing. The ways take turns. Time is
from the word that starts the load until the process says that the bytes are there; CPU time is that of the process alone.
Memory is what the process's control group counts at most from that word on. The server is on this machine, its objects
are in memory, and it has the same processors. Every byte is compared, by SHA-256, when the time was taken.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(REPO / "bench" / "peers"))
import boto3  # noqa: E402
from group import Group  # noqa: E402
from watch import Failed, Program  # noqa: E402
from ways import WAYS  # noqa: E402

MIB = 1 << 20
BUCKET, KEY = "models", "object"
LABELS = {"command": "dmabuf-dio load", "command-sums": "dmabuf-dio load --sums", "dmabuf_dio": "dmabuf_dio.load",
          "boto3": "boto3 download_fileobj", "runai": "runai-model-streamer", "nixl": "NIXL OBJ", "nixl-crt": "NIXL OBJ, crtMinLimit"}


@contextlib.contextmanager
def server(gateway: str, memory: str, tls: bool) -> Iterator[str]:
    """The server's endpoint; the variables that name it are set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        (data := pathlib.Path(folder) / "data").mkdir()
        command = [gateway, "--port", f"127.0.0.1:{port}", "--access", "bench", "--secret", "secret-of-bench", "--quiet"]
        command += [*(certificate(folder) if tls else []), "posix", str(data)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                while process.poll() is None:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                        break
                    time.sleep(0.05)
                endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
                os.environ.update(AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="secret-of-bench",
                                  AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
                yield endpoint
            finally:
                process.terminate()


def certificate(folder: str) -> list[str]:
    """The server's options for a certificate of its own, which the clients trust."""
    key, own = f"{folder}/key", f"{folder}/certificate"
    names = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-keyout", key, "-out", own, *names]
    subprocess.run(make, check=True, capture_output=True)
    os.environ["AWS_CA_BUNDLE"] = own
    return ["--cert", own, "--key", key]


def create(endpoint: str, memory: str, size: int, command: str, sums: str) -> str:
    """Makes the object of random bytes, and the sums of its chunks: its SHA-256."""
    client, digest = boto3.client("s3", endpoint_url=endpoint), hashlib.sha256()
    client.create_bucket(Bucket=BUCKET)
    with tempfile.NamedTemporaryFile(dir=memory) as file:
        for _ in range(size):
            piece = os.urandom(MIB)
            digest.update(piece)
            file.write(piece)
        file.seek(0)
        pathlib.Path(sums).write_bytes(subprocess.run([command, "sum", file.name], check=True, capture_output=True).stdout)
        client.put_object(Bucket=BUCKET, Key=KEY, Body=file)
    return digest.hexdigest()


def command_of(way: str, command: str, endpoint: str, length: int, sums: str) -> list[str]:
    if not way.startswith("command"):
        return [sys.executable, "-B", str(pathlib.Path(__file__).with_name("ways.py")), way, endpoint, BUCKET, KEY, str(length)]
    # The shell becomes the command, and the command becomes the second shell, which has the buffer.
    after = 'echo loaded; read _; tail -c +$((DMABUF_DIO_OFFSET + 1)) "/proc/$$/fd/$DMABUF_DIO_FD" | head -c "$DMABUF_DIO_LEN" | sha256sum'
    check = ["--kind", "memfd", "--sums", sums] if way == "command-sums" else []
    load = shlex.join([command, "load", f"s3://{BUCKET}/{KEY}", "--quiet", *check, "--", "sh", "-c", after])
    return ["sh", "-c", f"echo ready; read _; exec {load}"]


def cpu(process: int) -> float:
    """Seconds of all threads of a process, also of those that have ended."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written(process: int) -> int:
    """Bytes that a process has sent to disks."""
    lines = pathlib.Path(f"/proc/{process}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def measure(command: list[str], digest: str) -> dict[str, float]:
    with Group() as group:
        with Program(command) as program:
            program.line()
            group.take(program.pid)
            before = cpu(program.pid), written(program.pid), group.cached(), time.perf_counter()
            program.load(lambda: None, every=60)
            seconds = time.perf_counter() - before[3]
            found = {"seconds": seconds, "cpu": cpu(program.pid) - before[0], "peak": group.peak(),
                     "written": written(program.pid) - before[1], "cached": group.cached() - before[2]}
            said = program.end()
            if said.split()[:1] != [digest]:
                raise Failed(f"other bytes: {said.strip()}")
        return found


def show(way: str, runs: list[dict[str, float]], length: int) -> None:
    def of(name: str, unit: float, digits: int) -> str:
        values = [run[name] / unit for run in runs]
        return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"

    print(f"| {LABELS[way]} | {of('seconds', 1, 2)} | {of('cpu', 1, 2)} | {of('peak', MIB, 0)} | {max(run['peak'] for run in runs) / length:.3f} "
          f"| {of('cached', 1 << 10, 0)} | {of('written', 1 << 10, 0)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/stores/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=3072, metavar="MIB", help="of the object; default 3072")
    parser.add_argument("--rounds", type=int, default=5, help="default 5; one more is not counted")
    parser.add_argument("--memory", default="/dev/shm", metavar="FOLDER", help="a tmpfs for the server's objects; default /dev/shm")
    parser.add_argument("--ways", default=",".join(LABELS), metavar="WAY,...", help=f"of {', '.join(LABELS)}; all by default")
    parser.add_argument("--tls", action="store_true", help="https; for the ways that take a CA from AWS_CA_BUNDLE: command, command-sums, boto3")
    parser.add_argument("--gateway", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--command", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    ways, length = args.ways.split(","), args.size * MIB
    assert set(ways) <= {"command", "command-sums", *WAYS}, ways
    with tempfile.TemporaryDirectory(dir=args.memory) as folder, server(args.gateway, args.memory, args.tls) as endpoint:
        sums = f"{folder}/sums"
        digest = create(endpoint, args.memory, args.size, args.command, sums)
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for number in range(args.rounds + 1):
            for way in ways:
                try:
                    found = measure(command_of(way, args.command, endpoint, length, sums), digest)
                except Failed as failure:
                    print(f"{way}: {failure}", file=sys.stderr)
                    return 1
                print(f"{number} {way}: {found}", file=sys.stderr, flush=True)
                if number:
                    runs[way].append(found)
    print(f"{args.size} MiB, {args.rounds} rounds, {os.cpu_count()} processors for server and client")
    print("| | seconds | CPU seconds | MiB at most | of the object | page cache, KiB | disk writes, KiB |\n|---|---|---|---|---|---|---|")
    for way, found in runs.items():
        show(way, found, length)
    return 0


if __name__ == "__main__":
    sys.exit(main())
