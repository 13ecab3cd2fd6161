# SPDX-License-Identifier: MIT OR Apache-2.0
"""The loader for vLLM with vLLM's own code around it: its registry, its base class, its configuration.

These modules of vLLM's source distribution run as they are. All others are empty: they need a GPU or compiled parts."""

import ast
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import types
import unittest.mock

import pytest
import safetensors.torch
import torch

SOURCES = pathlib.Path(os.environ["DMABUF_DIO_VLLM"])
LOADERS = "vllm.model_executor.model_loader"
REAL = {LOADERS, f"{LOADERS}.base_loader", "vllm.config.load"}


class Empty(types.ModuleType):
    """A module in which every name exists and does nothing."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = unittest.mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of vLLM: the real ones in its sources, the others are empty."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "vllm":
            return None
        if name in REAL:
            parts = SOURCES.joinpath(*name.split("."))
            package = parts / "__init__.py"
            file = package if package.exists() else parts.with_suffix(".py")
            inside = [str(parts)] if package.exists() else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        if module.__name__ == "vllm.config.utils":
            from pydantic.dataclasses import dataclass

            module.config = dataclass
        if module.__name__ == "vllm.logger":
            module.init_logger = lambda name: unittest.mock.MagicMock(name=name)
        if module.__name__ == "vllm.tracing":
            module.instrument = lambda **_: lambda function: function
        if module.__name__ == "vllm.envs":
            module.VLLM_LOG_MODEL_INSPECTION = False
        if module.__name__.endswith(".quantization.online.base"):
            module.OnlineQuantizationConfig = type("OnlineQuantizationConfig", (), {})


def function(file, name, body):
    """A function with the arguments that vLLM's has, and another body."""
    tree = ast.parse((SOURCES / file).read_text())
    [found] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    found.body = ast.parse("return _body(locals())").body
    found.decorator_list, found.returns = [], None
    for argument in [*found.args.args, *found.args.kwonlyargs]:
        argument.annotation = None
    space = {"_body": body}
    exec(compile(ast.fix_missing_locations(ast.Module([found], [])), file, "exec"), space)
    return space[name]


@pytest.fixture
def vllm(monkeypatch):
    """vLLM, after its plugins were loaded twice, as in a worker."""
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    loaders = importlib.import_module(LOADERS)
    [plugin] = [one for one in importlib.metadata.entry_points(group="vllm.general_plugins") if one.name == "dmabuf_dio"]
    plugin.load()()
    plugin.load()()
    yield loaders
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.given = {}

    def load_weights(self, weights):
        self.given.update(weights)


@pytest.fixture
def shards(tmp_path):
    generator = torch.Generator().manual_seed(3)
    weights = {f"layer.{number}": torch.randn(300 + number, 77, generator=generator).to(torch.bfloat16) for number in range(6)}
    parts = [dict(list(weights.items())[:4]), dict(list(weights.items())[4:])]
    for number, part in enumerate(parts, 1):
        safetensors.torch.save_file(part, tmp_path / f"model-0000{number}-of-00002.safetensors")
    names = {name: f"model-0000{number}-of-00002.safetensors" for number, part in enumerate(parts, 1) for name in part}
    index = '{"metadata": {}, "weight_map": ' + str(names).replace("'", '"') + "}"
    (tmp_path / "model.safetensors.index.json").write_text(index)
    return tmp_path, weights


def load(vllm, model_name, **settings):
    from vllm.config.load import LoadConfig

    config = LoadConfig(load_format="dmabuf-dio", **settings)
    loader = vllm.get_model_loader(config)
    model = Model()
    sys.modules["vllm.model_executor.model_loader.base_loader"].initialize_model = lambda **_: model
    model_config = types.SimpleNamespace(model=model_name, model_weights="", revision="main", dtype=torch.bfloat16)
    loader.download_model(model_config)
    vllm_config = types.SimpleNamespace(
        load_config=config, device_config=types.SimpleNamespace(device="cpu"), quant_config=None,
    )
    with unittest.mock.patch("torch.accelerator.empty_cache"):
        assert loader.load_model(vllm_config=vllm_config, model_config=model_config) is model
    return model


def test_model_folder_is_loaded(vllm, shards):
    folder, weights = shards
    model = load(vllm, str(folder))
    assert model.given.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(model.given[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_hub_name_is_loaded(vllm, shards):
    """It calls download_weights_from_hf with arguments that this function accepts."""
    folder, weights = shards
    asked = []

    def answer(arguments):
        asked.append(arguments)
        return str(folder)

    import vllm.model_executor.model_loader.weight_utils as utils

    utils.download_weights_from_hf = function(
        "vllm/model_executor/model_loader/weight_utils.py", "download_weights_from_hf", answer,
    )
    model = load(vllm, "organisation/model", ignore_patterns=["original/**/*"])
    assert model.given.keys() == weights.keys()
    assert {pattern for call in asked for pattern in call["allow_patterns"]} == {
        "*.safetensors", "*.safetensors.index.json",
    }
    for call in asked:
        assert (call["model_name_or_path"], call["revision"]) == ("organisation/model", "main")
        assert call["ignore_patterns"] == ["original/**/*"]


def test_base_loader_has_only_the_known_abstract_methods(vllm):
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    assert BaseModelLoader.__abstractmethods__ == {"download_model", "load_weights"}


def test_unknown_settings_are_refused(vllm, shards):
    with pytest.raises(ValueError, match="extra_config"):
        load(vllm, str(shards[0]), model_loader_extra_config={"x": 1})
