"""Models by their names: what they are built of, their inputs, and how they are made small."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from gpubench_plugin import load
from gpubench_plugin.core.errors import Misuse, Unsupported, UsageProblem
from gpubench_plugin.training.seeding import seeded
from gpubench_plugin.workloads.base import run_fake_step
from tests.support.exhaustive import shown

CPU = torch.device("cpu")

NETS = """
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, depth=6, width=32, dropout=0.5):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.layers(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, ids):
        return self.out(self.embedding(ids))


class Classes(Words):
    def forward(self, ids):
        return super().forward(ids).argmax(-1)


SCALE = torch.randn(32)


class Scaled(Net):
    def forward(self, x):
        return super().forward(x * SCALE)


def volumes():
    return nn.Conv3d(1, 2, 3)


def images():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 10))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(4, 5, 6)

    def forward(self, first, second):
        return self.layer(first, second)


class StochasticDepth(nn.Module):
    def __init__(self):
        super().__init__()
        self.p, self.mode = 0.5, "row"

    def forward(self, x):
        return x * (torch.rand(len(x), 1) > self.p)


class Deep(Net):
    def __init__(self):
        super().__init__()
        self.layers.append(StochasticDepth())


class Unused(Net):
    def __init__(self):
        super().__init__(dropout=0.0)
        self.unused = nn.Linear(2, 2)


number = 3


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(np.random.randn(4, 4), dtype=torch.float32))

    def forward(self, x):
        return x @ self.weight


def lazy():
    return nn.LazyLinear(3)


def frozen():
    return nn.Linear(3, 3).requires_grad_(False)
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of models that can be imported."""
    (tmp_path / "nets_of_a_test.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nets_of_a_test", raising=False)
    monkeypatch.chdir(tmp_path)


def step(workload, samples=2):
    """Losses of two equal training steps, and the output's shape, for a model that was built."""
    torch.manual_seed(0)
    module = workload.build()
    generator = torch.Generator().manual_seed(1)
    batch = workload.synthetic_batch(samples, device=CPU, generator=generator)
    losses = [workload.loss(module, batch) for _ in range(2)]
    losses[0].backward()
    missing = [n for n, p in module.named_parameters() if p.requires_grad and p.grad is None]
    return module, batch, [float(loss.detach()) for loss in losses], missing


NEED_DATA = {"mixtral", "timesformer"}
"""Grouped products that torch 2.13 refuses without data in fp32, and branches on values."""

MODELS = shown(
    *("bert", "gpt2", "t5", "vit", "mixtral"),
    exhaustively=(
        *("llama", "resnet", "swin", "whisper", "wav2vec2", "mamba", "clip", "timesformer"),
        *("deepseek_v3", "mamba2", "marian", "blip", "speech_to_text"),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_train_when_shrunken(name: str) -> None:
    """By type alone: small, with a finite loss that no dropout changes, and all gradients."""
    workload = load(f"hf:{name}", shrink=True)
    module, batch, losses, missing = step(workload)
    assert sum(p.numel() for p in module.parameters()) < 1e7
    assert losses[0] == losses[1] > 0
    assert missing == []
    workload.forward(module, batch)
    text = workload.description(module)
    assert text.startswith(f"hf:{name}: ")
    assert "shrunk: " in text
    if name not in NEED_DATA:
        run_fake_step(workload, samples=2, backward=True)


@pytest.mark.parametrize("shrink", [True, False])
def test_what_the_loss_does_not_reach_is_frozen_and_said(shrink: bool) -> None:
    """As the mask token of an encoder of images; of one's own code it stays, to be refused."""
    sizes = {} if shrink else {"hidden_size": 64, "num_attention_heads": 2}
    workload = load("hf:dinov2", shrink=shrink, init=sizes)
    module, _, _, missing = step(workload)
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    assert frozen == ["dinov2.embeddings.mask_token"]
    assert missing == []
    assert "not trained: dinov2.embeddings.mask_token" in workload.description(module)
    tied, *_ = step(load("hf:bert", shrink=shrink, init=sizes))
    assert all(parameter.requires_grad for parameter in tied.parameters())
    _, _, _, missing = step(load("nets_of_a_test:Unused"))
    assert missing == ["unused.weight", "unused.bias"]


def test_experts_that_few_samples_do_not_reach_are_trained() -> None:
    """Another batch reaches them: only what no batch reaches is frozen."""
    workload = load("hf:switch_transformers", shrink=True, sequence_length=2)
    module, _, _, missing = step(workload)
    assert any("expert" in name for name in missing)
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_a_recipe_that_leaves_a_model_large_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parameters are counted without their memory; it is refused if no other makes it small."""
    monkeypatch.setattr("gpubench_plugin.workloads._source.SHRUNK_PARAMETERS", 100_000)
    with pytest.raises(UsageProblem, match="hf:bert cannot be shrunk: it stays large"):
        load("hf:bert", shrink=True).build()


def test_outputs_of_zeros_have_a_gradient() -> None:
    """Heads that begin with zeros would never learn from the mean square of their outputs."""
    workload = load("nets_of_a_test:Net", init={"depth": 1})
    module, batch, _, _ = step(workload)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
        parameter.grad = None
    workload.loss(module, batch).backward()
    assert all(parameter.grad.any() for parameter in module.parameters())


def test_a_folder_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    """Its class is the one that the configuration names, its sizes are those stated there."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 99}
    values = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **sizes}
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps(values))
    workload = load("hf:small", init={"num_hidden_layers": 1}, sequence_length=7)
    module, batch, _, missing = step(workload)
    assert type(module).__name__ == "BertForSequenceClassification"
    assert (module.config.hidden_size, module.config.num_hidden_layers) == (32, 1)
    assert batch.inputs["input_ids"].shape == (2, 7)
    assert int(batch.inputs["input_ids"].max()) < 99
    assert workload.tokens(4) == 28
    assert missing == []


def test_weights_follow_the_seed_however_small_sizes_were_found() -> None:
    """The trial of sizes draws no number of the model's."""

    def weights(workload):
        torch.manual_seed(3)
        return torch.cat([p.detach().flatten() for p in workload.build().parameters()])

    workload = load("hf:bert", shrink=True)
    assert weights(workload).equal(weights(workload))
    assert weights(load("hf:bert", shrink=True)).equal(weights(workload))


def test_own_classes_and_functions_are_models() -> None:
    """With arguments; of equal layers in a row two are left; dropout is off."""
    workload = load("nets_of_a_test:Net", init={"depth": 6, "width": 16}, shrink=True)
    module, batch, losses, missing = step(workload)
    assert len(module.layers) == 2
    assert batch.inputs["x"].shape == (2, 16)
    assert losses[0] == losses[1]
    assert missing == []
    assert "layers=2 of 6 layers" in workload.description(module)
    whole = load("nets_of_a_test:Net")
    assert len(whole.build().layers) == 6


def test_no_sample_is_left_out_at_random() -> None:
    """Stochastic depth is off as dropout is."""
    _, _, losses, _ = step(load("nets_of_a_test:Deep"), samples=16)
    assert losses[0] == losses[1]


def test_what_an_import_draws_shifts_no_weights() -> None:
    """Nor are the tensors of the module without data, where a trial imports it."""
    module, *_ = step(load("nets_of_a_test:Scaled", shrink=True))
    del sys.modules["nets_of_a_test"]
    first, *_ = step(load("nets_of_a_test:Scaled"))
    again, *_ = step(load("nets_of_a_test:Scaled"))
    assert first.layers[0].weight.equal(again.layers[0].weight)
    assert len(module.layers) == 2


def test_an_output_without_numbers_is_refused_for_training() -> None:
    """In a line, with what helps."""
    with pytest.raises(UsageProblem, match=r"nets_of_a_test:Classes.*--train"):
        step(load("nets_of_a_test:Classes"))


@pytest.mark.parametrize(
    ("name", "keys", "shape"),
    [
        ("Words", {}, (2, 128)),
        ("Words", {"sequence_length": 9}, (2, 9)),
        ("images", {}, (2, 3, 32, 32)),
        ("images", {"input_shape": (3, 32, 32)}, (2, 3, 32, 32)),
        ("volumes", {}, (2, 1, 32, 32, 32)),
        ("Net", {"input_shape": (5, 32)}, (2, 5, 32)),
    ],
)
def test_inputs_follow_the_first_layer_unless_stated(name, keys, shape) -> None:
    """Tokens of an embedding, images that the model can be called with, features."""
    workload = load(f"nets_of_a_test:{name}", **keys)
    _, batch, _, missing = step(workload)
    (tensor,) = batch.inputs.values()
    assert tensor.shape == shape
    assert missing == []
    assert workload.batch(3).keys() == batch.inputs.keys()


def test_channels_last_reaches_images_and_is_refused_without_convolutions() -> None:
    """As of any other workload."""
    workload = load("nets_of_a_test:images", channels_last=True)
    _, batch, _, _ = step(workload)
    assert batch.inputs["input"].is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(Unsupported, match="channels_last"):
        load("nets_of_a_test:Net", channels_last=True).build()


@pytest.mark.parametrize(
    ("name", "keys", "named"),
    [
        ("hf:brt", {}, ["hf:brt", "bert", "--download"]),
        ("hf:someone/nothing", {}, ["someone/nothing", "--download"]),
        ("hf:bert", {"init": {"num_layers": 1}}, ["model.init.num_layers", "num_hidden_layers"]),
        ("hf:bert", {"init": {"hidden_size": "wide"}}, ["hf:bert", "model.init (--init)"]),
        ("hf:someone/nothing", {"download": True}, ["someone/nothing", "cannot be read"]),
        ("hf:bert", {"input_shape": (3, 4)}, ["model.input_shape=[3, 4]", "input_ids Nx128"]),
        ("hf:vit", {"sequence_length": 9}, ["model.sequence_length=[9]", "pixel_values Nx3"]),
        ("hf:odd", {}, ["hf:odd", "cannot be read", "'wide'"]),
        ("nets_of_a_test:Nets", {}, ["nets_of_a_test", "did you mean 'Net'?"]),
        ("no_such_module:Net", {}, ["no_such_module"]),
        ("nets_of_a_test:Net", {"init": {"dept": 1}}, ["dept", "--init"]),
        ("nets_of_a_test:number", {}, ["nets_of_a_test:number"]),
        ("nets_of_a_test:lazy", {"input_shape": (4,)}, ["lazy", "no values yet"]),
        ("nets_of_a_test:Net", {"input_shape": (3,)}, ["x Nx3, as stated", "RuntimeError"]),
        ("nets_of_a_test:Two", {}, ["--input", "--tokens", "nets_of_a_test:Two"]),
    ],
)
def test_what_is_no_model_is_refused_in_a_line(name, keys, named) -> None:
    """With the name, what is wrong, and what helps."""
    Path("odd").mkdir()
    Path("odd", "config.json").write_text('{"model_type": "bert", "hidden_size": "wide"}')
    with pytest.raises(UsageProblem) as refused:
        load(name, **keys).build()
    text = str(refused.value)
    assert [part for part in named if part not in text] == []
    assert "\n" not in text


@pytest.mark.parametrize(("key", "value"), [("shrnk", True), ("shrink", "yes"), ("source", "x")])
def test_load_refuses_keys_that_are_none(key: str, value: object) -> None:
    """And values of another type, with the nearest key."""
    with pytest.raises((Misuse, TypeError), match=r"shrink|source"):
        load("hf:bert", **{key: value})


def test_weights_of_numpy_follow_the_seed_and_nothing_to_train_is_said() -> None:
    """As those of torch do; a frozen model has no training step."""
    drawn = load("nets_of_a_test:Drawn", input_shape=(4,))
    with seeded(7, CPU):
        first = drawn.build().weight
    with seeded(7, CPU):
        assert drawn.build().weight.equal(first)
    with seeded(7, CPU):  # where sizes are tried first
        assert (
            load("nets_of_a_test:Drawn", input_shape=(4,), shrink=True).build().weight.equal(first)
        )
    with pytest.raises(Misuse, match="no trainable parameters"):
        load("nets_of_a_test:frozen").optimizer([])
