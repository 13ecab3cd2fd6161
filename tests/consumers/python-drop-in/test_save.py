# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch tensors, saved by this package and by safetensors: the same bytes, the same refusals."""

import gc
import weakref
from inspect import signature
from unittest import mock

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError
from test_drop_in import DTYPES, bits

import dmabuf_dio.torch
from dmabuf_dio import _save_torch


def random(dtype, *shape):
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 2 if dtype is torch.bool else 120, (*shape, size), dtype=torch.uint8)
    return bits.view(dtype).reshape(shape)


def both(folder, tensors, metadata=None):
    ours, theirs = folder / "ours.safetensors", folder / "theirs.safetensors"
    dmabuf_dio.torch.save_file(tensors, ours, metadata)
    safetensors.torch.save_file(tensors, theirs, metadata)
    return ours.read_bytes(), theirs.read_bytes()


def test_files_are_those_of_safetensors(tmp_path):
    tensors = {}
    for dtype in DTYPES:
        for kind, shape in {"some": (3, 8), "none": (0, 4), "scalar": ()}.items():
            tensors[f"{dtype} {kind}"] = random(dtype, *shape)
    if hasattr(torch, "float4_e2m1fn_x2"):
        tensors["fp4"] = torch.randint(0, 256, (4, 16), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    tensors["grad"] = torch.nn.Parameter(torch.randn(5))
    tensors["long"] = random(torch.uint8, (20 << 20) + 3)
    tensors["größe"] = torch.randn(1000, 1001)
    for metadata in (None, {}, {"format": "pt"}):
        ours, theirs = both(tmp_path, tensors, metadata)
        assert ours == theirs
    found = dmabuf_dio.torch.load_file(tmp_path / "ours.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(bits(found[name]), bits(one.detach())) for name, one in tensors.items())


def refusal(save_file, tensors, path):
    try:
        save_file(tensors, path)
    except Exception as error:
        return error
    raise AssertionError("saved")


def test_refusals_are_those_of_safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"before")
    whole = torch.randn(6, 6)
    cases = {
        "share memory": {"a": whole, "b": whole},
        "share": {"a": whole, "b": whole[2:4], "c": torch.ones(1)},
        "memory": {"a": whole[1:3], "b": whole[2:4]},
        "non contiguous": {"a": whole.t()},
        "sparse": {"a": whole.to_sparse()},
        "expected torch.Tensor": {"a": [1.0]},
        "dict": [whole],
        "data": {"a": torch.empty(3, device="meta")},
    }
    for text, tensors in cases.items():
        theirs = refusal(safetensors.torch.save_file, tensors, path)
        ours = refusal(dmabuf_dio.torch.save_file, tensors, path)
        assert type(ours) is type(theirs), (text, ours, theirs)
        assert text in str(theirs) and text in str(ours), (text, ours, theirs)
        assert path.read_bytes() == b"before"
    ours = refusal(dmabuf_dio.torch.save_file, {"a": torch.zeros(2, dtype=torch.complex128)}, path)
    assert isinstance(ours, SafetensorError) and "complex128" in str(ours)
    # Parts of one storage that do not overlap share nothing.
    parts = {"a": whole[:3], "b": whole[3:], "c": whole[:0]}
    assert len(set(both(tmp_path, parts))) == 1


def test_lazy_views_are_saved_as_their_values(tmp_path):
    path = tmp_path / "model.safetensors"
    value = torch.randn(5, dtype=torch.complex64)
    dmabuf_dio.torch.save_file({"conj": value.conj(), "neg": torch._neg_view(torch.arange(5))}, path)
    found = safetensors.torch.load_file(path)
    assert torch.equal(found["conj"], value.conj().resolve_conj())
    assert torch.equal(found["neg"], -torch.arange(5))


def test_tensors_elsewhere_are_copied_one_at_a_time(tmp_path):
    """No other device is here: tensors on the CPU count as elsewhere."""
    tensors = {str(number): torch.randn(1 << 18) for number in range(30)}
    copies, most = [], 0

    def to_cpu(tensor, device):
        nonlocal most
        assert device == "cpu"
        gc.collect()
        most = max(most, sum(1 for one in copies if one() is not None))
        copy = tensor.clone()
        copies.append(weakref.ref(copy))
        return copy

    path = tmp_path / "model.safetensors"
    def given(name, tensor):
        return _save_torch.given(name, "float32", tuple(tensor.shape), None)

    with mock.patch.object(_save_torch, "_given", given), mock.patch.object(torch.Tensor, "to", to_cpu):
        dmabuf_dio.torch.save_file(tensors, path)
    assert (len(copies), most) == (30, 0)
    found = safetensors.torch.load_file(path)
    assert all(torch.equal(found[name], one) for name, one in tensors.items())


def test_signature_is_that_of_safetensors():
    theirs = [*signature(safetensors.torch.save_file).parameters.values()]
    ours = [*signature(dmabuf_dio.torch.save_file).parameters.values()]
    assert [(one.name, one.kind, one.default) for one in ours[:3]] == [(one.name, one.kind, one.default) for one in theirs]


def test_model_is_saved_and_loaded(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.LayerNorm(200)).to(torch.bfloat16)
    path = tmp_path / "model.safetensors"
    with pytest.raises(RuntimeError, match="share memory"):
        dmabuf_dio.torch.save_file({"a": model[0].weight, "b": model[0].weight.data}, path)
    dmabuf_dio.torch.save_file(model.state_dict(), path, {"format": "pt"})
    other = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.LayerNorm(200)).to(torch.bfloat16)
    safetensors.torch.load_model(other, path)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters()))
