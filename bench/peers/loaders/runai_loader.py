# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run:ai Model Streamer: io_uring with O_DIRECT into registered buffers, where the kernel has it."""

import torch
from runai_model_streamer import SafetensorsStreamer

PACKAGE = "runai-model-streamer"
NOTE: str | None = "its defaults: io_uring and O_DIRECT where the kernel has them, depth 64"


def load(path: str) -> dict[str, torch.Tensor]:
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path, device="cpu")
        # Tensors are the caller's (owned=True, the default): no copy is needed to keep them.
        return dict(streamer.get_tensors())
