"""Own models with sparse, nested and quantized tensors, and scripted ones, in a user's project."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.messages import mentions
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

BENCHMARKS = """
import pytest, torch
from torch import nn
from torch.nn.functional import cross_entropy

def embedding():
    return nn.Sequential(nn.Embedding(30, 8, sparse=True), nn.Flatten(), nn.Linear(40, 3))

IDS = torch.randint(30, (16, 5)), torch.randint(3, (16,))
BATCH = torch.randn(16, 8), torch.randint(3, (16,))

@pytest.mark.parametrize("kind", ["embedding", "adamw"])
def test_sparse(gpubench, kind):
    optimizer = "sgd" if kind == "embedding" else kind
    gpubench.train(embedding(), IDS, cross_entropy, optimizer=optimizer)

def test_sparse_adam(gpubench):
    model = nn.EmbeddingBag(30, 3, sparse=True)
    gpubench.train(model, IDS, cross_entropy, optimizer=lambda p: torch.optim.SparseAdam(p))

@pytest.mark.gpubench_set("training.gradient_clipping=1.0")
def test_clipped(gpubench):
    gpubench.train(embedding(), IDS, cross_entropy)

def nested(layout):
    return torch.nested.nested_tensor([torch.randn(n, 8) for n in (3, 5, 2)], layout=layout)

@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_nested(gpubench, layout):
    batch = nested(getattr(torch, layout))
    gpubench.infer(nn.Linear(8, 3), batch)

def test_nested_training(gpubench):
    gpubench.train(nn.Linear(8, 3), (nested(torch.jagged),), lambda y: y.values().pow(2).mean())

@pytest.mark.parametrize("kind", ["scripted", "traced"])
@pytest.mark.parametrize("use", ["train", "infer"])
def test_compiled(gpubench, kind, use):
    model = nn.Linear(8, 3)
    model = torch.jit.script(model) if kind == "scripted" else torch.jit.trace(model, BATCH[0])
    if use == "train":
        gpubench.train(model, BATCH, cross_entropy)
    else:
        gpubench.infer(model, BATCH[0])

@pytest.mark.parametrize("use", ["train", "infer"])
def test_quantized(gpubench, use):
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 3)), {nn.Linear})
    if use == "train":
        gpubench.train(model, BATCH, cross_entropy)
    else:
        gpubench.infer(model, BATCH[0])

class Outputs(nn.Linear):
    def __init__(self, kind):
        super().__init__(8, 3)
        self.kind = kind

    def forward(self, inputs):
        outputs = super().forward(inputs)
        return outputs.to(torch.float8_e4m3fn) if self.kind == "fp8" else outputs.to_sparse()

@pytest.mark.parametrize("kind", ["fp8", "sparse"])
@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_outputs(gpubench, kind, value):
    gpubench.infer(Outputs(kind), value * BATCH[0])

class Graph(nn.Linear):
    def __init__(self):
        super().__init__(8, 3)
        self.register_buffer("edges", torch.eye(16).to_sparse_csr())

    def forward(self, inputs):
        return super().forward(self.edges @ inputs)

@pytest.mark.parametrize("model", [Graph, Graph()], ids=["built", "ready"])
def test_sparse_rows(gpubench, model):
    gpubench.infer(model, BATCH[0])

@pytest.mark.gpubench_set("measure.check=false")
def test_unchecked_variants(gpubench):
    gpubench.compare({"a": lambda: torch.ones(3), "b": lambda: torch.zeros(3)})

@pytest.mark.gpubench_set("measure.check=false")
@pytest.mark.parametrize("use", ["train", "infer"])
def test_unchecked(gpubench, use):
    if use == "train":
        gpubench.train(nn.Linear(8, 3), BATCH, lambda y, t: cross_entropy(y, t) * float("nan"))
    else:
        gpubench.infer(nn.Linear(8, 3), BATCH[0] * float("nan"))
"""

REFUSED = {
    "sparse[adamw]": ("parameter 0.weight is sparse", "SparseAdam", "sparse=False"),
    "clipped": ("parameter 0.weight is sparse", "training.gradient_clipping"),
    "nested[strided]": ("batch is nested without a shape", "layout=torch.jagged"),
    "sparse_rows[ready]": ("cannot be copied", "pass a function that builds it"),
    "quantized[train]": ("no trainable parameters", "gpubench.infer"),
    "outputs[nan-fp8]": ("48 of 48 values are not finite",),
    "outputs[nan-sparse]": ("48 of 48 values are not finite",),
}
"""What the reasons mention."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All benchmarks, by name."""
    project = InlineProject(tmp_path_factory.mktemp("kinds"))
    project.write("test_kinds.py", BENCHMARKS)
    options = ("--measure.profile=quick", "--measure.max_time_s=0.05", "-Wignore")
    run: Run = project.run("test_kinds.py", *options)
    return {b["name"].removeprefix("test_"): b for b in run.summary["benchmarks"]}


def test_other_tensors_than_dense_ones_are_measured(measured: dict[str, Any]) -> None:
    """And without a check nothing is judged, not even whether numbers are finite."""
    others = {name: b for name, b in measured.items() if name not in REFUSED}
    assert {name: b["reason"] for name, b in others.items() if b["outcome"] != "measured"} == {}
    assert not any("precision_unused" in b["flags"] for b in others.values())


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_says_what_to_do(measured: dict[str, Any], name: str) -> None:
    """In one line of ours, never the dispatcher's."""
    if name == "clipped" and version("torch") >= "2.15":
        pytest.skip("torch 2.15 clips sparse gradients")
    reason = measured[name]["reason"]
    assert mentions(reason, *REFUSED[name])
    assert "\n" not in reason
    assert "aten::" not in reason
