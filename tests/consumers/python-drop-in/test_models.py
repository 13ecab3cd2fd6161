# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lines of docs/models.md load the same as without them; each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

DOCUMENT = Path(__file__).parents[3] / "docs/models.md"
COUNT = """
from dmabuf_dio import _safe_open
opened, original = [], _safe_open.Model
def counted(path):
    opened.append(path)
    return original(path)
_safe_open.Model = counted
"""
TELL = """
import hashlib, torch
found = hashlib.sha256()
for name, tensor in sorted(tensors.items()):
    found.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
print(len(opened), found.hexdigest())
"""
# As ComfyUI does it in load_torch_file(): names are looked up when a file is opened, tensors are taken in the order of
# their names, and copied if mapping is switched off.
COMFYUI = """
import torch
import safetensors.torch
tensors = {}
with safetensors.safe_open("model/model.safetensors", framework="pt", device=torch.device("cpu").type) as file:
    for name in file.keys():
        tensors[name] = file.get_tensor(name)
        if COPIES:
            tensors[name] = tensors[name].to(device="cpu", copy=True)
    assert file.metadata() == {"format": "pt"}
"""


def written(program):
    """The example for a program."""
    [example] = re.findall(rf"```python {program}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert "dmabuf_dio.install()" in example
    return example


def both(folder, example, rest):
    """Loads with and without the line of the example."""
    found = []
    for start in (example, example.replace("dmabuf_dio.install()", "")):
        code = f"{COUNT}{start}{rest}{TELL}"
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split()[-2:])
    (ours, sum_of_ours), (theirs, sum_of_theirs) = found
    assert int(ours) > 0 and theirs == "0"
    assert sum_of_ours == sum_of_theirs


@pytest.fixture
def model(tmp_path):
    root = Path(os.environ["DMABUF_DIO_MINILM"])
    found = next(path.parent for path in root.rglob("config.json") if (path.parent / "model.safetensors").exists())
    (tmp_path / "model").symlink_to(found)
    return tmp_path


def test_transformers(model):
    both(model, written("transformers"), "tensors = model.state_dict()\nassert model.dtype == __import__('torch').bfloat16\n")


def test_accelerate_reads_layers_from_the_disk_when_they_are_used(model):
    placed = '{"embeddings": "cpu", "encoder": "disk", "pooler": "cpu"}, offload_folder="offload"'
    example = written("transformers").replace('"auto"', placed)
    assert placed in example
    use = """
import torch
before = len(opened)
with torch.no_grad():
    tensors = {"output": model(input_ids=torch.arange(100, 164).reshape(4, 16)).last_hidden_state}
assert not opened or len(opened) > before + 50
"""
    both(model, example, use)


def test_diffusers(tmp_path):
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    torch.manual_seed(4)
    unet = UNet2DModel(sample_size=8, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(tmp_path / "pipeline")
    both(tmp_path, written("diffusers"), "tensors = pipeline.unet.state_dict()\n")


@pytest.mark.parametrize("copies", [False, True])
def test_program_that_opens_files_as_comfyui(tmp_path, copies):
    (tmp_path / "model").mkdir()
    torch.manual_seed(5)
    tensors = {f"blocks.{number}.weight": torch.randn(512, 700).half() for number in range(20)}
    safetensors.torch.save_file(tensors, tmp_path / "model/model.safetensors", {"format": "pt"})
    both(tmp_path, written("comfyui"), COMFYUI.replace("COPIES", str(copies)))
