# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run:ai Model Streamer: io_uring with O_DIRECT into registered buffers, where the kernel has it."""

import torch
from runai_model_streamer import SafetensorsStreamer

PACKAGE = "runai-model-streamer"
NOTE: str | None = "io_uring, O_DIRECT, depth 64, chunks of 8 MiB (its defaults)"


def load(path: str) -> dict[str, torch.Tensor]:
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path, device="cpu")
        # Tensors are the caller's (owned=True, the default): no copy is needed to keep them.
        return dict(streamer.get_tensors())
