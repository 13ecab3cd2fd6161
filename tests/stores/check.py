# SPDX-License-Identifier: MIT OR Apache-2.0
"""check.py SIZE NAME...: loads, saves and sums objects of servers of stores by the command, and compares every byte with what another
client of each store reads and writes. NAME: s3, google or azure; or identity, in a network namespace (identity.py)."""

import contextlib
import os
import pathlib
import sys
import tempfile

import azure_storage
import google_storage
import identity
import s3
from checks import Tests


def main() -> None:
    size, names = int(sys.argv[1]), sys.argv[2:]

    def program(name: str) -> str:
        return os.environ[name]

    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)

        def s3_checks() -> Tests:
            gateway = program("VERSITYGW")
            return s3.S3(gateway, stack.enter_context(s3.server(gateway, folder)), folder, size)

        def google_checks() -> Tests:
            endpoint = stack.enter_context(google_storage.server(program("FAKE_GCS_SERVER"), folder))
            return google_storage.Google(endpoint, folder, size, google_storage.Uploads(endpoint))

        def azure_checks() -> Tests:
            return azure_storage.Azure(stack.enter_context(azure_storage.server(program("AZURITE"), folder)), folder, size)

        def identity_checks() -> Tests:
            programs = {name: program(name) for name in ("VERSITYGW", "FAKE_GCS_SERVER", "AZURITE")}
            return stack.enter_context(identity.identity(programs, folder))

        all_checks = {"s3": s3_checks, "google": google_checks, "azure": azure_checks, "identity": identity_checks}
        for wanted in names:
            all_checks[wanted]().run_all()
    print("all passed")


main()
