# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command with Azurite, a server of Azure's Blob Storage; azure-storage-blob puts and gets the objects."""

import base64
import contextlib
import datetime
import os
import pathlib
from collections.abc import Iterator

from azure.storage.blob import ContainerSasPermissions, ContainerClient, generate_container_sas
from checks import BUCKET, Checks, content, free_port, serving

ACCOUNT = "accountoftests"
KEY = base64.b64encode(b"key of the tests, as long as those are that Azure makes: 64 ones").decode()


@contextlib.contextmanager
def server(program: str, folder: pathlib.Path, *options: str) -> Iterator[str]:
    """The endpoint of the account. The options are those of TLS and tokens, if there are any."""
    port = free_port()
    command = [program, "--silent", "--disableTelemetry", "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    env = dict(os.environ) | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with serving([*command, "--skipApiVersionCheck", *options], port, folder / "log-azure", env):
        yield f"{'https' if options else 'http'}://127.0.0.1:{port}/{ACCOUNT}"


class Azure(Checks):
    scheme = "az"
    secrets = (KEY,)
    wrong = {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"wrong").decode()}

    def __init__(self, endpoint: str, folder: pathlib.Path, size: int, ca: str | None = None) -> None:
        keys = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
        super().__init__(endpoint, folder, size, keys | {"AZURE_STORAGE_ENDPOINT": endpoint})
        self.container = ContainerClient(endpoint, BUCKET, credential=KEY, connection_verify=ca or True)
        self.container.create_container()

    def put(self, key: str, body: bytes) -> None:
        self.container.upload_blob(key, body, overwrite=True)

    def get(self, key: str) -> bytes:
        return self.container.download_blob(key).readall()

    def unfinished(self) -> bool:
        # An object that only has blocks is listed among those that are not complete.
        blocks = self.container.get_blob_client("saved-1").get_block_list("uncommitted")
        return bool(blocks[1])

    def drops_parts(self) -> bool:
        # Azure drops them by itself, after a week.
        return True

    def test_shared_access_signature(self) -> None:
        self.put("shared", content(9_000_000, 9))
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        permission = ContainerSasPermissions(read=True, list=True)
        sas = generate_container_sas(ACCOUNT, BUCKET, account_key=KEY, permission=permission, expiry=until)
        env = self.base | {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ENDPOINT": self.endpoint, "AZURE_STORAGE_SAS_KEY": sas}
        assert self.loaded("shared", env=env) == content(9_000_000, 9)
        signature = sas.split("sig=")[1].split("&")[0]
        # It allows no more than that.
        save = ["load", str(self.folder / "large"), "--quiet", "--", *self.saver("by-sas")]
        said = self.run(*save, code=1, env=env).stderr.decode()
        assert "403" in said and signature not in said, said
        # The same in the URL of a web server.
        env = self.base | {"SHARED": f"{self.endpoint}/{BUCKET}/shared?{sas}"}
        assert self.run("load", "env:SHARED", "--quiet", "--", "cat", "{}", env=env).stdout == content(9_000_000, 9)

    def test_emulator_flag(self) -> None:
        self.put("emulated", content(9_000_000, 10))
        host = self.endpoint.removesuffix(f"/{ACCOUNT}")
        env = self.env | {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": host}
        del env["AZURE_STORAGE_ENDPOINT"]
        assert self.loaded("emulated", env=env) == content(9_000_000, 10)
