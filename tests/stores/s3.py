# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command with a real server of S3, versitygw; boto3 puts and gets the objects."""

import contextlib
import hashlib
import json
import pathlib
import shutil
from collections.abc import Iterator

import boto3
from between import Request
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from checks import BUCKET, MIB, Checks, certificate, content, free_port, serving

KEY, SECRET = "user-of-the-tests", "secret-of-the-tests"


@contextlib.contextmanager
def server(gateway: str, folder: pathlib.Path, *tls: str) -> Iterator[str]:
    """A server of a folder; its endpoint. The options are those of TLS, if there are any."""
    port, data = free_port(), folder / "data"
    data.mkdir(exist_ok=True)
    command = [gateway, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--quiet", *tls, "posix", str(data)]
    with serving(command, port, folder / "log"):
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


def with_session(request: Request, endpoint: str) -> bool:
    """Checks the signature of a session's request, and signs it without: the server has no such session."""
    headers, hash_name = request.headers, "x-amz-content-sha256"
    _, _, rest = headers.pop("authorization", "").partition(" ")
    said = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if not {"SignedHeaders", "Signature"} <= said.keys():
        return False
    signed = {name: headers[name] for name in said["SignedHeaders"].split(";")}
    assert {"host", "x-amz-date", "x-amz-security-token", hash_name} <= signed.keys(), signed
    asked = AWSRequest(request.method, f"http://{headers['host']}{request.target}", signed)
    asked.context["timestamp"] = headers.pop("x-amz-date")
    auth = S3SigV4Auth(Credentials(KEY, SECRET, headers.pop("x-amz-security-token")), "s3", "us-east-1")
    if auth.signature(auth.string_to_sign(asked, auth.canonical_request(asked)), asked) != said["Signature"]:
        return False
    host = endpoint.removeprefix("http://")
    asked = AWSRequest(request.method, f"{endpoint}{request.target}", {"host": host, hash_name: headers[hash_name]}, request.body)
    S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(asked)
    headers.update({name.lower(): value for name, value in asked.headers.items()})
    return True


class S3(Checks):
    scheme = "s3"
    secrets = (SECRET,)
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong"}

    def __init__(self, gateway: str, endpoint: str, folder: pathlib.Path, size: int) -> None:
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        super().__init__(endpoint, folder, size, keys | {"AWS_ENDPOINT_URL": endpoint})
        self.gateway = gateway
        config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
        self.s3 = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1", config=config
        )
        self.s3.create_bucket(Bucket=BUCKET)

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    def unfinished(self) -> bool:
        return bool(self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads"))

    def test_signed_url_is_loaded_from_a_variable(self) -> None:
        body = content(3 * MIB, 2)
        self.put("signed", body)
        url = self.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "signed"})
        env = self.env | {"SIGNED": url}
        done = self.run("load", "env:SIGNED", "--quiet", "--", "cat", "{}", env=env)
        assert done.stdout == body
        said = self.run("load", "env:SIGNED", "--json", env=env)
        assert b"Signature" not in said.stdout + said.stderr

    def test_certificates_are_checked(self) -> None:
        key, own = certificate(self.folder)
        body = content(9 * MIB, 5)
        self.put("by-tls", body)
        url = self.url("by-tls")
        with server(self.gateway, self.folder, "--cert", own, "--key", key) as endpoint:
            env = self.env | {"AWS_ENDPOINT_URL": endpoint}
            error = self.run("load", url, "--quiet", code=1, env=env).stderr
            assert b"the server's certificate is not trusted" in error and b"--ca" in error, error
            assert self.run("load", url, "--ca", own, "--quiet", "--", "cat", "{}", env=env).stdout == body
            error = self.run("load", url, "--quiet", code=1, env=env | {"SSL_CERT_FILE": "/none"}).stderr
            assert b"the server's certificate is not trusted" in error, error
            # It is opened when https is met, and not before.
            error = self.run("load", url, "--quiet", code=1, env=env | {"AWS_CA_BUNDLE": "/none"}).stderr
            assert b"the CAs of /none: " in error, error
            assert self.loaded("by-tls", env=self.env | {"AWS_CA_BUNDLE": "/none", "SSL_CERT_FILE": "/none"}) == body
            # The same under a name that the certificate does not have.
            other = env | {"AWS_ENDPOINT_URL": endpoint.replace("127.0.0.1", "localhost")}
            error = self.run("load", url, "--ca", own, "--quiet", code=1, env=other).stderr
            assert b"the server's certificate is not trusted" in error, error

    def test_web_server_over_tls(self) -> None:
        nginx = shutil.which("nginx", path=f"{self.env['PATH']}:/usr/sbin")
        if nginx is None:
            print("  skipped: there is no nginx")
            return
        folder = self.folder / "nginx"
        (folder / "www").mkdir(parents=True)
        body = content(self.size * MIB + 1, 6)
        (folder / "www" / "large").write_bytes(body)
        for path in (folder.parent, folder, folder / "www"):
            path.chmod(0o755)
        key, own = certificate(self.folder)
        port = free_port()
        paths = "".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "conf").write_text(
            f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}} http {{ access_log off; {paths}"
            f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {own}; ssl_certificate_key {key}; root {folder}/www; }} }}"
        )
        url = f"https://127.0.0.1:{port}/large"
        with serving([nginx, "-c", str(folder / "conf"), "-e", f"{folder}/log"], port, folder / "output"):
            error = self.run("load", url, "--quiet", code=1).stderr
            assert b"the server's certificate is not trusted" in error, error
            digest = hashlib.sha256(body).hexdigest()
            done = self.run("load", url, "--ca", own, "--sha256", digest, "--kind", "memfd", "--json")
            print(f"  {json.loads(done.stdout)['gb_per_second']:.2f} GB/s")
            assert self.run("load", url, "--ca", own, "--quiet", "--", "cat", "{}").stdout == body

    def test_profile_is_read(self) -> None:
        folder = self.folder / ".aws"
        folder.mkdir()
        (folder / "credentials").write_text(f"[x]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        (folder / "config").write_text(f"[profile x]\nregion = us-east-1\nendpoint_url = {self.endpoint}\n")
        env = self.base | {"AWS_PROFILE": "x"}
        body = content(100, 4)
        self.put("by-profile", body)
        assert self.run("load", self.url("by-profile"), "--quiet", "--", "cat", "{}", env=env).stdout == body
