# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportMissingModuleSource=false, reportPrivateUsage=false
"""A loader for vLLM: `vllm serve MODEL --load-format dmabuf-dio`.

vLLM finds register() by the entry point `vllm.general_plugins`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._native import _is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

LOAD_FORMAT = "dmabuf-dio"


def register() -> None:
    """Registers the loader. vLLM may call it several times in a process."""
    from vllm.model_executor.model_loader import (  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]
        register_model_loader,
    )
    from vllm.model_executor.model_loader.base_loader import (  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]
        BaseModelLoader,
    )

    class DmabufDioLoader(BaseModelLoader):  # type: ignore[misc, unused-ignore]
        """Reads the tensors of a model ahead of the program, within a bound of memory."""

        def __init__(self, load_config: Any) -> None:
            super().__init__(load_config)
            extra = getattr(load_config, "model_loader_extra_config", None)
            if extra:
                raise ValueError(f"--load-format {LOAD_FORMAT} has no model_loader_extra_config: {extra}")

        def _folder(self, model_config: Any) -> str:
            path: str = getattr(model_config, "model_weights", None) or model_config.model
            if os.path.exists(path) or _is_url(path):
                return path
            from vllm.model_executor.model_loader.weight_utils import (  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]
                download_weights_from_hf,
            )

            folder: str = ""
            # It downloads what the first pattern with a match names. A model in one file has no index.
            for pattern in ["*.safetensors", "*.safetensors.index.json"]:
                folder = download_weights_from_hf(
                    path,
                    self.load_config.download_dir,
                    [pattern],
                    model_config.revision,
                    ignore_patterns=self.load_config.ignore_patterns,
                )
            return folder

        def download_model(self, model_config: Any) -> None:
            """Makes sure that the files of a model are on this machine, unless it is a URL."""
            self._folder(model_config)

        def load_weights(self, model: Any, model_config: Any) -> None:
            """Passes the weights to a model."""
            model.load_weights(weights(self._folder(model_config), _device(model)))

    register_model_loader(LOAD_FORMAT)(DmabufDioLoader)


def _device(model: Any) -> Any:
    """The device of a model's parameters, if tensors are loaded straight to it."""
    from ._device import named

    first = next(iter(model.parameters()), None)
    return None if first is None or named(first.device) is None else first.device


def weights(path: str, device: Any = None) -> Iterator[tuple[str, Any]]:
    """The tensors of a model, in the order of its files: on the device, or each in memory of its own."""
    from ._iter import iter_tensors

    for name, tensor in iter_tensors(path, device=device):
        yield name, tensor.torch()
