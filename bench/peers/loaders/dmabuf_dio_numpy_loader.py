# SPDX-License-Identifier: MIT OR Apache-2.0
"""dmabuf_dio.numpy.load_file: direct I/O into memory of the process, of which each array is a view."""

import ml_dtypes  # noqa: F401  the type bfloat16
import numpy as np
from dmabuf_dio.numpy import load_file

PACKAGE = "dmabuf-dio"
NOTE: str | None = None


def load(path: str) -> dict[str, np.ndarray]:
    return load_file(path)
