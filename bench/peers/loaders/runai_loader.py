# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run:ai Model Streamer: io_uring with O_DIRECT into registered buffers, if the kernel supports it."""

import torch
from runai_model_streamer import SafetensorsStreamer

PACKAGE = "runai-model-streamer"
NOTE: str | None = "its defaults: io_uring and O_DIRECT where the kernel has them, depth 64"


def load(path: str) -> dict[str, torch.Tensor]:
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path, device="cpu")
        # The caller owns the tensors (owned=True, the default), so no copy is needed.
        return dict(streamer.get_tensors())
