# SPDX-License-Identifier: MIT OR Apache-2.0
"""programs.py PROGRAM safetensors|dmabuf-dio FOLDER: loads the model in a folder as a program does, by the protocol of watch.py.
programs.py --make MODEL FOLDER: writes a model."""

import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import content

# Bytes of the plain file, and how many tensors it has.
PLAIN = 384 << 20, 96
SHARD = "128MB"
# Where the layers are that accelerate leaves on the disk.
ON_DISK = {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}


def llama(dtype: str) -> Any:
    """A small language model with random weights: 107 million, of which 90 million in its 12 layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=768, intermediate_size=2304, num_hidden_layers=12, num_attention_heads=12, vocab_size=12000)
    return LlamaForCausalLM(config).to(getattr(torch, dtype))


def unet() -> Any:
    import torch
    from diffusers import UNet2DModel
    torch.manual_seed(2)
    return UNet2DModel(sample_size=32, block_out_channels=(192, 384, 512), layers_per_block=2,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
                       up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"))


MODELS: dict[str, Callable[[str], object]] = {
    "plain": lambda folder: content.write(f"{folder}/model.safetensors", *PLAIN, seed=1),
    "fp32": lambda folder: llama("float32").save_pretrained(folder, max_shard_size="10GB"),
    "fp16": lambda folder: llama("float16").save_pretrained(folder, max_shard_size="10GB"),
    "fp32 shards": lambda folder: llama("float32").save_pretrained(folder, max_shard_size=SHARD),
    "fp16 shards": lambda folder: llama("float16").save_pretrained(folder, max_shard_size=SHARD),
    "unet": lambda folder: unet().save_pretrained(folder),
}


def touch(tensors: Iterable[Any]) -> None:
    """Reads a byte of every page, as a program does when it uses the tensors."""
    import torch
    for tensor in tensors:
        if tensor.numel() and not tensor.is_meta:
            tensor.detach().reshape(-1).view(torch.uint8)[::4096].max()


def files(folder: str) -> list[str]:
    return sorted(map(str, pathlib.Path(folder).glob("*.safetensors")))


Load = Callable[[], Any]


def load_file(folder: str) -> Load:
    import safetensors.torch
    return lambda: safetensors.torch.load_file(files(folder)[0])


def get_tensor(folder: str, keeps: bool) -> Load:
    import safetensors

    def load() -> Any:
        kept = {}
        with safetensors.safe_open(files(folder)[0], "pt") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
                touch([tensor])
                if keeps:
                    kept[name] = tensor
                del tensor
        return kept
    return load


def transformers(folder: str, dtype: str, **settings: Any) -> Load:
    import accelerate  # noqa: F401
    from transformers import LlamaForCausalLM
    return lambda: LlamaForCausalLM.from_pretrained(folder, dtype=dtype, **settings)


def offloaded(folder: str) -> Load:
    """transformers leaves the layers in the file; accelerate reads each when it is used."""
    import torch
    load = transformers(folder, "float16", device_map=ON_DISK, offload_folder=f"{folder}/offload")

    def run() -> Any:
        model = load()
        with torch.no_grad():
            model(input_ids=torch.arange(8).reshape(1, 8))
        return model
    return run


def accelerate(folder: str) -> Load:
    """accelerate writes the layers to a folder."""
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from transformers import LlamaConfig, LlamaForCausalLM

    def load() -> Any:
        with init_empty_weights():
            model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
        return load_checkpoint_and_dispatch(model, files(folder)[0], device_map=ON_DISK, offload_folder=f"{folder}/offload")
    return load


def diffusers(folder: str, dtype: str) -> Load:
    import accelerate  # noqa: F401
    import torch
    from diffusers import UNet2DModel
    return lambda: UNet2DModel.from_pretrained(folder, torch_dtype=getattr(torch, dtype))


def vllm(folder: str) -> Load:
    """What vLLM's loaders pass to a model, which copies it to its parameters."""
    import safetensors
    import torch

    def theirs() -> Iterator[tuple[str, Any]]:
        for path in files(folder):
            with safetensors.safe_open(path, "pt") as file:
                for name in file.keys():
                    yield name, file.get_tensor(name)

    def load() -> Any:
        from dmabuf_dio.vllm import weights
        parameters = {}
        for name, tensor in weights(folder) if OURS else theirs():
            parameters[name] = torch.empty(tensor.shape, dtype=torch.bfloat16)
            parameters[name].copy_(tensor)
            del tensor
        return parameters
    return load


class Program(NamedTuple):
    model: str
    load: Callable[[str], Load]
    # Whether it lets go of each tensor before it uses the next.
    one_by_one: bool = False


PROGRAMS = {
    "`load_file`": Program("plain", load_file),
    "`get_tensor`, kept": Program("plain", lambda folder: get_tensor(folder, keeps=True)),
    "`get_tensor`, dropped": Program("plain", lambda folder: get_tensor(folder, keeps=False), True),
    "transformers, fp32 as bf16": Program("fp32", lambda folder: transformers(folder, "bfloat16"), True),
    "transformers, fp16 as fp16": Program("fp16", lambda folder: transformers(folder, "float16")),
    "transformers, fp32 as bf16, shards": Program("fp32 shards", lambda folder: transformers(folder, "bfloat16"), True),
    "transformers, fp16 as fp16, shards": Program("fp16 shards", lambda folder: transformers(folder, "float16")),
    "transformers, fp16, `device_map=\"auto\"`": Program("fp16", lambda folder: transformers(folder, "float16", device_map="auto")),
    "transformers, fp16, layers left on the disk, a token": Program("fp16", offloaded),
    "accelerate, fp16, layers written to the disk": Program("fp16", accelerate),
    "diffusers, fp32 as fp32": Program("unet", lambda folder: diffusers(folder, "float32")),
    "diffusers, fp32 as bf16": Program("unet", lambda folder: diffusers(folder, "bfloat16")),
    "loader for vLLM, fp32 as bf16, shards": Program("fp32 shards", vllm, True),
}

OURS = False


class Seen:
    """A reader, and the largest window that any had."""

    window = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from dmabuf_dio._native import _Reader
        self.reader = _Reader(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        Seen.window = max(Seen.window, self.reader.report()["window"])
        return getattr(self.reader, name)


def install() -> None:
    global OURS
    import dmabuf_dio
    from dmabuf_dio import _iter, _lazy
    _iter._Reader = _lazy._Reader = Seen
    dmabuf_dio.install()
    OURS = True


def tensors(kept: Any) -> list[Any]:
    return list(kept.values() if isinstance(kept, dict) else [*kept.parameters(), *kept.buffers()])


def run(name: str, whose: str, folder: str) -> None:
    # Standard output is reserved for two lines: output of libraries goes to standard error.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import torch
    # Imports and threads are no part of the load.
    touch([torch.zeros(1)])
    load = PROGRAMS[name].load(folder)
    if whose == "dmabuf-dio":
        install()
    print("ready", file=output, flush=True)
    sys.stdin.readline()
    kept = load()
    found = tensors(kept)
    touch(found)
    sizes = {tensor.data_ptr(): tensor.nbytes for tensor in found if not tensor.is_meta}
    print(json.dumps({"kept_bytes": sum(sizes.values()), "window_bytes": Seen.window}), file=output, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        MODELS[sys.argv[2]](sys.argv[3])
    else:
        run(*sys.argv[1:])
    # Libraries may take seconds to end.
    sys.stderr.flush()
    os._exit(0)
