"""gpubench.train and gpubench.infer in a user's project: in every precision, and with bad input."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

ON_A_CPU = ("amp", "bf16", "bf16-true", "fp16-true", "fp32", "fp64")

PRECISIONS = """
import torch


def test_my_model(gpubench, precision):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    batch = torch.randn(32, 64), torch.randint(10, (32,))
    gpubench.train(model, batch, torch.nn.functional.cross_entropy)


def test_weighted(gpubench, precision):
    batch = torch.randn(32, 64), torch.randint(10, (32,))
    loss = torch.nn.CrossEntropyLoss(weight=torch.arange(1.0, 11.0))
    gpubench.train(torch.nn.Linear(64, 10), batch, loss)
"""

FORMS = """
import warnings
import pytest, torch
from torch import nn
from torch.nn.functional import cross_entropy

X, Y = torch.randn(6, 8), torch.randint(4, (6,))

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

class Output(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, inputs, labels=None):
        logits = self.layer(inputs)
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": cross_entropy(logits, labels)}

class Unused(Output):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(8, 4)

def tuple_(gpubench):
    model = net().eval()
    weight = model[0].weight.clone()
    gpubench.train(model, (X, Y), nn.CrossEntropyLoss(weight=torch.ones(4)), optimizer="adamw")
    assert torch.equal(weight, model[0].weight) and model[0].weight.grad is None
    assert not model.training

def dictionary(gpubench):
    gpubench.train(Output(), {"inputs": X}, lambda out, batch: out["logits"].square().mean())

def loss_of_model(gpubench):
    def loss(model, batch):
        return cross_entropy(model(batch[0]), batch[1])
    gpubench.train(net, (X, Y), loss)

def own_loss(gpubench):
    own = lambda parameters: torch.optim.Adam(parameters, lr=0.003)
    gpubench.train(Output(), {"inputs": X, "labels": Y}, optimizer=own)

def drawn(gpubench):
    def batch(size):
        return torch.randn(size, 8), torch.randint(4, (size,))
    gpubench.train(net, batch, cross_entropy)

def forward(gpubench):
    gpubench.infer(Output, {"inputs": X}, tokens=60)

def needs_values(gpubench):
    class Model(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) if inputs.sum().item() else inputs
    gpubench.infer(Model(8, 4), (X,))

def one_sample(gpubench):
    gpubench.infer(net(), X[0], samples=1)

class Rateless(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

def scripted(gpubench):
    with warnings.catch_warnings(action="ignore"):  # deprecated, and in use
        model = torch.jit.script(nn.Linear(8, 4))
    gpubench.train(model, (X, Y), cross_entropy)

FORMS = [tuple_, dictionary, loss_of_model, own_loss, drawn, forward, needs_values, one_sample]
FORMS += [scripted]

@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_form(gpubench, form):
    form(gpubench)

def test_fp32_only(gpubench):
    gpubench.train(net(), (X, Y), cross_entropy)

def test_sized(gpubench):
    def batch(size):
        if size > 5:
            raise MemoryError("no more than five")
        return torch.randn(size, 8), torch.randint(4, (size,))
    gpubench.train(net, batch, cross_entropy)
"""

FAULTS = {
    "inputs": ("train(net(), (X[:, :7], Y), CE)", "model Sequential(float32[6, 7]): RuntimeErr"),
    "targets": ("train(net(), (X, Y[:5]), CE)", "batch=(float32[6, 8], int64[5]): the first dim"),
    "loss": ("train(net(), X, CE)", "loss cross_entropy(float32[6, 4]): TypeError: cross_entropy("),
    "no_loss": ("train(net(), X)", "loss=None, but the model's output float32[6, 4] has no loss"),
    "arguments": ("infer(net(), (X, Y))", "a tuple has all arguments for gpubench.infer, and for"),
    "keywords": ("train(Output(), {'inputs': X, 'y': Y}, lambda o, b: CE(o['logits'], b['y']))",
                 "argument 'y'; a dictionary has the model's keyword arg"),
    "in_place": ("infer(nn.Sequential(nn.ReLU(inplace=True), net()), X)", "changes the batch in p"),
    "targets_in_place": ("train(net(), (X, Y), lambda o, t: CE(o, t.zero_()))",
                         "loss <lambda> changes the batch in place"),
    "one_sample": ("infer(net(), X[0])", "by its first dimension it has 8 samples, but no dimens"),
    "meta": ("infer(net(), X.to('meta'))", "batch is on the device meta, which holds no values"),
    "autocast": ("train(net(), (X, Y), CE)", "torch.autocast('cpu') is on around the benchmark; l"),
    "forward_autocast": ("infer(net(), X)", "torch.autocast('cpu') is on around the benchmark; le"),
    "some": ("train(net(), (X, Y), CE, optimizer=lambda p: torch.optim.SGD(p[2:], lr=0.1))",
             "optimizer SGD updates 2 parameters, which are not the 4 trainable"),
    "rateless": ("train(net(), (X, Y), CE, optimizer=Rateless)", "closure, or has no learning ra"),
    "model": ("train(3, (X, Y), CE)", "model is of type int; allowed: a torch.nn.Module, or a fun"),
    "built": ("train(lambda: 3, (X, Y), CE)", "<lambda>() returned a value of type int; allowed"),
    "random": ("train(lambda: nn.Sequential(net(), nn.PReLU(init=next(N))), (X, Y), CE)",
               "model: <lambda>() built another model"),
    "same": ("train(lambda: M, (X, Y), CE)", "model: <lambda>() returned the same module again"),
    "name": ("train(net(), (X, Y), 'mse')", "loss is of type str; allowed: a function of (output,"),
    "array": ("train(net(), (X.numpy(), Y), CE)", "torch.from_numpy() makes a tensor of it"),
    "loader": ("infer(net(), [[X]][0:0])", "batch is empty; allowed: a tensor, a tuple, list or d"),
    "instance": ("train(M, (X, Y), CE, optimizer=torch.optim.SGD(M.parameters(), lr=1))",
                 "optimizer is of type SGD; allowed: adamw, sgd, or a fun"),
    "others": ("train(M, (X, Y), CE, optimizer=lambda _: torch.optim.SGD(M.parameters(), lr=1))",
               "optimizer SGD updates 4 parameters, which are not the 4 trainable"),
    "closure": ("train(net(), (X, Y), CE, optimizer=torch.optim.LBFGS)", "by a closure"),
    "unknown": ("train(net(), (X, Y), CE, optimizer='adam')", "unknown 'adam' (did you mean 'adam"),
    "scalar": ("train(net(), (X, Y), lambda o, t: o)", "the loss must be a scalar tensor, not (6,"),
    "detached": ("train(net(), (X, Y), lambda o, t: CE(o, t).detach())",
                 "the loss depends on no trainable parameter: it is detached"),
    "nan": ("train(net(), (X, Y), lambda o, t: CE(o, t) * float('nan'))", "loss at step 1 is nan"),
    "constant": ("train(net(), (X, Y), lambda o, t: (o * 0).sum() + 1)",
                 "try another training.learning_rate (0.01) or training.optimizer (SGD)"),
    "unused": ("train(Unused, (X, Y), lambda o, t: CE(o['logits'], t))",
               "parameter unused.weight received no gradient"),
    "bf16": ("infer(net().bfloat16(), X)", "model: 0.weight is in bfloat16, which this precision"),
    "wrapped": ("infer(torch.compile(net()), X)", "is compiled already, or the fixture `model`"),
    "lazy": ("infer(nn.LazyLinear(4), X)", "model: weight has no values yet; a lazy model has"),
    "nothing": ("train(nn.ReLU(), X, lambda o: o.sum())", "model ReLU has no trainable parameters"),
    "samples": ("infer(net(), X, samples=0)", "samples=0; allowed: a whole number above 0"),
    "infinite": ("infer(net(), X / 0)", "the model's output: 24 of 24 values are not finite"),
    "nested": ("compare({'a': lambda: gpubench.infer(net(), X), 'b': net})",
               "gpubench was called twice, or in its own step"),
    "second": ("infer(net(), X); gpubench.infer(net(), X)", "gpubench was called twice"),
}  # fmt: skip
"""Calls of a faulty benchmark, with what its reason has in it."""

HEALTHY = """
@pytest.mark.parametrize("fault", FAULTS)
def test_faulty(gpubench, fault):
    with torch.autocast("cpu", enabled="autocast" in fault):
        exec(f"gpubench.{FAULTS[fault]}", {**globals(), "gpubench": gpubench})

@pytest.mark.parametrize("number", range(3))
def test_healthy(gpubench, number):
    gpubench.train(net(), (X, Y), CE)
"""


@pytest.fixture(scope="module")
def own_project(tmp_path_factory: pytest.TempPathFactory) -> InlineProject:
    """A project with benchmarks of its own models."""
    project = InlineProject(tmp_path_factory.mktemp("own"))
    project.write("test_precisions.py", PRECISIONS)
    project.write("test_forms.py", FORMS)
    calls = {name: call for name, (call, _) in FAULTS.items()}
    names = "CE, M, N = cross_entropy, net(), iter((0.1, 0.2, 0.3))"
    project.write("test_faults.py", f"{FORMS}\nFAULTS = {calls!r}\n{names}\n{HEALTHY}")
    return project


def benchmarks(run: Run) -> dict[str, Any]:
    return {b["name"]: b for b in run.summary["benchmarks"]}


def test_a_model_of_ones_own_trains_in_every_precision(own_project: InlineProject) -> None:
    """With the checks, the products and the work of a trainer, and without a word on what it is."""
    run = own_project.run("test_precisions.py", f"--precision={','.join(ON_A_CPU)}", "--tag=a")
    by_name = benchmarks(run)
    for precision in ON_A_CPU:
        weighted = by_name[f"test_weighted[{precision}]"]
        assert weighted["outcome"] == "measured", weighted["reason"]
        assert weighted["work"]["flops"] == 32 * 2 * 2 * 64 * 10  # of a loss with tensors, too
        assert weighted["settings"]["model.parameters"] == 650
        one = by_name[f"test_my_model[{precision}]"]
        assert one["outcome"] == "measured", one["reason"]
        record = one["correctness"]
        computes_in = {"amp": "fp16"}.get(precision, precision.removesuffix("-true"))
        assert set(record["product_dtypes"]) == {computes_in}
        assert record["own_model"] == {"model": "Sequential", "loss": "cross_entropy"}
        assert record["losses"][-1] < record["losses"][0]
        assert record["reference"]["steps"] == 5
        assert one["metrics"]["loss_error"]["value"] < 0.01
        assert one["work"]["samples"] == 32
        # Three products of 64×256 and two of 256×10 for each sample: no gradients of the inputs.
        assert one["work"]["flops"] == 32 * 2 * (2 * 64 * 256 + 3 * 256 * 10)
        assert one["settings"]["training.batch_size"] == 32
    _forget(run)


def test_every_form_of_model_batch_and_loss_is_measured(own_project: InlineProject) -> None:
    """And is recorded with what the test states; without the fixture in fp32 alone."""
    run = own_project.run("test_forms.py", "-k", "not sized", "--tag=b")
    found = {name.partition("[")[2].removesuffix("]"): b for name, b in benchmarks(run).items()}
    assert {b["outcome"] for b in found.values()} == {"measured"}, run.out
    assert found["tuple_"]["settings"]["training.optimizer"] == "adamw"
    own = found["own_loss"]["configuration"]["training"]
    assert (own["optimizer"], own["learning_rate"]) == ("Adam", 0.003)
    assert own["momentum"] == 0.0
    assert found["own_loss"]["correctness"]["own_model"]["loss"] == "the model's own"
    assert found["drawn"]["work"]["samples"] == 8  # as training.batch_size says
    assert found["forward"]["work"] == {
        "samples": 6.0, "tokens": 60.0, "bytes": None, "flops": 6 * 2 * 8 * 4
    }  # fmt: skip
    assert found["needs_values"]["work"]["flops"] is None
    assert any(e["event"] == "flops" and e.get("reason") for e in run.journal)
    _forget(run)

    refused = own_project.run("test_forms.py", "-k", "fp32_only or drawn", "--precision=amp")
    reasons = {b["outcome"]: b["reason"] for b in benchmarks(refused).values()}
    assert "add the fixture `precision` to the test" in reasons["unsupported"]
    _forget(refused)

    keys = ("--training.batch_size=12", "--training.learning_rate=0.1", "--data.source=synthetic")
    stated = own_project.run("test_forms.py", "-k", "drawn or own_loss or fp32_only", *keys)
    by_name = benchmarks(stated)
    assert by_name["test_form[drawn]"]["work"]["samples"] == 12
    assert "training.learning_rate=0.1: not read" in by_name["test_form[own_loss]"]["reason"]
    assert "but the batch has 6 samples" in by_name["test_fp32_only"]["reason"]
    _forget(stated)

    fitted = own_project.run(
        "test_forms.py", "-k", "fp32_only or sized", "--training.batch_size=auto"
    )
    by_name = benchmarks(fitted)
    assert "batch_size=auto: the batch has a fixed size" in by_name["test_fp32_only"]["reason"]
    assert by_name["test_sized"]["settings"]["training.batch_size"] == 5
    assert by_name["test_sized"]["correctness"]["batch_fit"]["bound_by"] == "memory"
    _forget(fitted)

    endless = own_project.run("test_forms.py", "-k", "fp32_only", "--training.epochs=2")
    (benchmark,) = benchmarks(endless).values()
    assert benchmark["outcome"] == "misconfigured"
    assert "training.epochs=2: gpubench.train repeats the batch" in benchmark["reason"]
    _forget(endless)


def test_what_does_not_fit_together_is_told_in_a_line(own_project: InlineProject) -> None:
    """With shapes and types where calls fail, and the trainer's reasons where training does."""
    run = own_project.run("test_faults.py", "-k", "faulty or healthy", "--tag=c")
    found = benchmarks(run)
    for name, (_, reason) in FAULTS.items():
        faulty = found[f"test_faulty[{name}]"]
        assert faulty["outcome"] in {"failed", "misconfigured"}, name
        assert reason in faulty["reason"], (name, faulty["reason"])
    healthy = [b for name, b in found.items() if "healthy" in name]
    assert [b["outcome"] for b in healthy] == ["measured"] * 3
    _forget(run)


def _forget(run: Run) -> None:
    """Leave room for the next run of the project."""
    shutil.rmtree(run.results)
