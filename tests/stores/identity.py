# SPDX-License-Identifier: MIT OR Apache-2.0
"""Credentials that services give: of machines, containers and workloads. As root, in a network namespace of its own, which has
the addresses where the services are: 169.254.169.254 and 169.254.170.2.

Each credential has expired when it is given. The server before the store takes that by which the object was opened no more,
and others for as many requests as are made at the same time. It checks the signatures of S3 by botocore; behind it, Azurite checks what is in a token of Azure.
"""

import base64
import contextlib
import dataclasses
import json
import pathlib
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator

import azure_storage
import google_storage
import s3
from between import Answer, Between, Request
from checks import BUCKET, COMMAND, MIB, Checks, Tests, certificate, content

FEDERATED = "federated-token-of-the-tests"
MACHINE, CONTAINER = "http://169.254.169.254", "http://169.254.170.2"
ISSUED = "issued-by-the-tests"
# The length of the object, and how many ranges are asked for at the same time: the last ones are asked for later.
LENGTH, AT_A_TIME = 80 * MIB, 8
PAST = "2001-01-01T00:00:00Z"
XML = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>{}</Credentials>" + (
    "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
)


def unsigned(claims: dict[str, object]) -> str:
    """A token as Azure's, of which Azurite checks all but the signature."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in [*parts, b"none"])


class Services:
    """Gives credentials, each another one, and knows which were given and not used yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.given = 0
        # The requests that each credential is good for.
        self.left: dict[str, int] = {}
        # Answers instead of what a service does.
        self.instead: Callable[[], Answer | None] = lambda: None

    def __call__(self, request: Request) -> Answer | None:
        return self.instead() or self.answer(request)

    def token(self, kind: str) -> str:
        with self.lock:
            number = self.given = self.given + 1
            now = int(time.time())
            claims = {"iss": "https://sts.windows.net/tenant/", "aud": "https://storage.azure.com", "iat": now, "nbf": now - 9, "exp": now + 9999}
            token = unsigned(claims | {"n": number}) if kind == "azure" else f"{ISSUED}-{number}"
            self.left[token] = AT_A_TIME
        return token

    def keys(self) -> dict[str, str]:
        return {"AccessKeyId": s3.KEY, "SecretAccessKey": s3.SECRET, "Token": self.token("s3"), "Expiration": PAST}

    def answer(self, request: Request) -> Answer | None:
        headers, query, form = request.headers, request.query, dict(urllib.parse.parse_qsl(request.body.decode()))
        match request.method, request.path:
            case "PUT", "/latest/api/token" if headers.get("x-aws-ec2-metadata-token-ttl-seconds"):
                return Answer(200, b"session-of-the-metadata")
            case "GET", path if path.startswith("/latest/") and headers.get("x-aws-ec2-metadata-token") != "session-of-the-metadata":
                return Answer(401)
            case "GET", "/latest/meta-data/iam/security-credentials/":
                return Answer(200, b"a-role")
            case "GET", "/latest/meta-data/iam/security-credentials/a-role" | "/v2/credentials/of-a-task":
                return Answer(200, json.dumps(self.keys()).encode())
            case "GET", "/v1/credentials" if headers.get("authorization") == FEDERATED:
                return Answer(200, json.dumps(self.keys()).encode())
            case "POST", "/sts/" | "/sts" if query["Action"] == "AssumeRoleWithWebIdentity":
                if (query["WebIdentityToken"], query["RoleArn"]) != (FEDERATED, "arn:aws:iam::1:role/a-role"):
                    return Answer(403)
                keys = self.keys()
                keys["SessionToken"] = keys.pop("Token")
                return Answer(200, XML.format("".join(f"<{name}>{value}</{name}>" for name, value in keys.items())).encode())
            case "GET", "/computeMetadata/v1/instance/service-accounts/default/token" if headers.get("metadata-flavor") == "Google":
                return Answer(200, json.dumps({"access_token": self.token("google"), "expires_in": 0, "token_type": "Bearer"}).encode())
            case "GET", "/metadata/identity/oauth2/token" if headers.get("metadata") == "true":
                assert query["resource"] == "https://storage.azure.com"
                return Answer(200, json.dumps({"access_token": self.token("azure"), "expires_on": "1"}).encode())
            case "POST", "/azure/a-tenant/oauth2/v2.0/token" if form.get("client_assertion") == FEDERATED:
                return Answer(200, json.dumps({"access_token": self.token("azure"), "expires_in": 0}).encode())
        return Answer(403)

    def guard(self, endpoint: str) -> Callable[[Request], Answer | None]:
        """Before a store: takes credentials until they are used up."""

        def take(request: Request) -> Answer | None:
            session = request.headers.get("x-amz-security-token")
            token = session or request.headers.get("authorization", "").removeprefix("Bearer ")
            with self.lock:
                if not self.left.get(token):
                    return Answer(403, b"<Error><Code>ExpiredToken</Code></Error>")
                self.left[token] = 0 if request.method == "HEAD" else self.left[token] - 1
            if session and not s3.with_session(request, endpoint):
                return Answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            return None

        return take


@dataclasses.dataclass
class Way:
    """How a command gets credentials, and the object that it needs them for."""

    url: str
    env: dict[str, str]


class Identity(Tests):
    secrets = (s3.SECRET, ISSUED, FEDERATED, "session-of-the-metadata", "eyJhbGciOi")

    def __init__(self, folder: pathlib.Path, services: Services, ways: dict[str, Way]) -> None:
        super().__init__(folder, {})
        self.services, self.ways = services, ways

    def test_expired_credentials_are_renewed(self) -> None:
        for name, way in self.ways.items():
            self.services.given = 0
            done = self.run("load", way.url, "--quiet", "--", "cat", "{}", env=self.base | way.env)
            assert done.stdout == content(LENGTH, 20), name
            given = self.services.given
            assert given > 2, f"{name}: {given} credentials"
            print(f"  {name}: {given} credentials")

    def test_renewal_is_tried_again(self) -> None:
        for name, way in self.ways.items():
            self.services.given, failures = 0, iter(range(6))

            def fail(failures: Iterator[int] = failures) -> Answer | None:
                # The object was opened.
                is_failing = self.services.given > 0 and next(failures, None) is not None
                return Answer(503) if is_failing else None

            self.services.instead = fail
            report = json.loads(self.run("load", way.url, "--json", env=self.base | way.env).stdout)
            self.services.instead = lambda: None
            assert report["bytes"] == LENGTH and report["fetched"]["retries"] > 0, f"{name}: {report['fetched']}"
            print(f"  {name}: {report['fetched']}")

    def test_refusal_is_told(self) -> None:
        self.services.instead = lambda: Answer(403, b"the reason is a secret: " + s3.SECRET.encode())
        for name, way in self.ways.items():
            for arguments in self.uses(way):
                error = self.run(*arguments, code=1, env=self.base | way.env).stderr
                assert b"no credentials: the service that gives them answered 403" in error, f"{name}: {error!r}"
        self.services.instead = lambda: None

    def test_silence_ends(self) -> None:
        wait = threading.Event()

        def silent() -> Answer:
            wait.wait()
            return Answer(503)

        self.services.instead = silent
        uses = [(name, way, use) for name, way in self.ways.items() for use in self.uses(way)]
        failed: list[str] = []

        def use(name: str, way: Way, arguments: list[str]) -> None:
            try:
                error = self.run(*arguments, code=1, env=self.base | way.env).stderr
                assert b"no credentials: the service that gives them took 10 s" in error, error
            except Exception as error:
                failed.append(f"{name}: {error}")

        threads = [threading.Thread(target=use, args=one) for one in uses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.services.instead = lambda: None
        wait.set()
        assert not failed, "\n".join(failed)

    def uses(self, way: Way) -> list[list[str]]:
        """A load of an object, and one of a prefix; a save."""
        folder, name = way.url.rsplit("/", 1)
        save = [COMMAND, "save", f"{folder}/saved", "--quiet"]
        file = self.folder / "small"
        file.write_bytes(b"small")
        return [
            ["load", way.url, "--quiet"],
            ["load", f"{folder}/", "--quiet", "--", "true", "{}"],
            ["load", str(file), "--quiet", "--kind", "memfd", "--", *save],
        ]


@contextlib.contextmanager
def identity(programs: dict[str, str], folder: pathlib.Path) -> Iterator[Tests]:
    """The services, the stores behind the servers that take a credential once, and an object in each."""
    services, body = Services(), content(LENGTH, 20)
    token = folder / "federated"
    token.write_text(FEDERATED)
    key, own = certificate(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Between(None, services, address=("0.0.0.0", 80)))

        def put(checks: Checks, ca: str | None = None) -> str:
            checks.put("set/object", body)
            return stack.enter_context(Between(checks.endpoint, services.guard(checks.endpoint), ca)).endpoint

        gateway = programs["VERSITYGW"]
        endpoint = put(s3.S3(gateway, stack.enter_context(s3.server(gateway, folder)), folder, 0))
        amazon = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
        web = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": "arn:aws:iam::1:role/a-role"}
        pod = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{CONTAINER}/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
        server = stack.enter_context(google_storage.server(programs["FAKE_GCS_SERVER"], folder))
        google = {"GOOGLE_BASE_URL": put(google_storage.Google(server, folder, 0, google_storage.Uploads(server)))}
        server = stack.enter_context(azure_storage.server(programs["AZURITE"], folder, "--cert", own, "--key", key, "--oauth", "basic"))
        endpoint = put(azure_storage.Azure(server, folder, 0, own), own)
        azure = {"AZURE_STORAGE_ACCOUNT_NAME": azure_storage.ACCOUNT, "AZURE_STORAGE_ENDPOINT": endpoint}
        workload = {"AZURE_CLIENT_ID": "a-client", "AZURE_TENANT_ID": "a-tenant", "AZURE_FEDERATED_TOKEN_FILE": str(token)}

        def way(scheme: str, *env: dict[str, str]) -> Way:
            return Way(f"{scheme}://{BUCKET}/set/object", {name: value for part in env for name, value in part.items()})

        ways = {
            "metadata of EC2": way("s3", amazon),
            "metadata of EC2 elsewhere": way("s3", amazon, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{CONTAINER}/"}),
            "task of ECS": way("s3", amazon, {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/of-a-task"}),
            "pod of EKS": way("s3", amazon, pod),
            "web identity of AWS": way("s3", amazon, web, {"AWS_ENDPOINT_URL_STS": f"{MACHINE}/sts"}),
            "metadata of Google": way("gs", google),
            "metadata of Google by name": way("gs", google, {"GCE_METADATA_HOST": "127.0.0.1"}),
            "metadata of Azure": way("az", azure),
            "workload identity of Azure": way("az", azure, workload, {"AZURE_AUTHORITY_HOST": f"{MACHINE}/azure"}),
        }
        yield Identity(folder, services, ways)
