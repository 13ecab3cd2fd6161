# SPDX-License-Identifier: MIT OR Apache-2.0
"""safetensors.numpy.load_file: numpy arrays."""

import ml_dtypes  # noqa: F401  gives numpy the name bfloat16
import numpy as np
from safetensors.numpy import load_file

PACKAGE = "safetensors"
NOTE: str | None = None


def load(path: str) -> dict[str, np.ndarray]:
    return load_file(path)
