# SPDX-License-Identifier: MIT OR Apache-2.0
"""numpy.fromfile: read() of the whole data section into one array, of which each tensor is a view."""

import ml_dtypes
import numpy as np

from content import Layout

PACKAGE = "numpy"
NOTE: str | None = None

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I8": np.int8, "U8": np.uint8}


def load(path: str) -> dict[str, np.ndarray]:
    layout = Layout.of_file(path)
    data = np.fromfile(path, dtype=np.uint8, offset=layout.data_begin)
    return {name: data[begin:end].view(TYPES[dtype]).reshape(shape)
            for name, (dtype, shape, begin, end) in layout.tensors.items()}
