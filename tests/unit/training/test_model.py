"""The model as it is measured."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch._dynamo.utils import counters

from gpubench_plugin import catalog
from gpubench_plugin.training import build_model

CPU = torch.device("cpu")


def workload(name="mlp", **section):
    made = catalog.load("workloads", name)
    return made(made.Section(name=name, **section))


def build(chosen, *, seed=0, precision="fp32", **kwargs):
    return build_model(
        chosen,
        section=chosen.section,
        seed=seed,
        device=CPU,
        precision=catalog.load("precision", precision)(),
        **kwargs,
    )


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_weights_depend_on_the_seed_alone():
    """Equal seeds give equal weights whatever was drawn before."""
    first = weights(build(workload()))
    torch.rand(3)
    again, other = weights(build(workload())), weights(build(workload(), seed=1))
    assert (first.equal(again), first.equal(other)) == (True, False)


def test_random_state_is_left_alone():
    """Building a model does not change what is drawn next."""
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    build(workload())
    assert expected.equal(torch.rand(1))


@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_have_the_configured_memory_format(channels_last):
    """The weights of convolutions are NHWC exactly where the configuration says so."""
    tiny = {"image_size": 32, "classes": 10, "hidden_sizes": (16, 32, 64, 128)}
    module = build(workload("resnet18", channels_last=channels_last, **tiny))
    kernels = [p for p in module.parameters() if p.ndim == 4 and p.shape[2] > 1]
    is_nhwc = {p.is_contiguous(memory_format=torch.channels_last) for p in kernels}
    assert {channels_last} == is_nhwc


def test_precision_converts_the_module():
    """A true half precision has its weights in half."""
    module = build(workload(), precision="fp16-true")
    assert {torch.float16} == {p.dtype for p in module.parameters()}


@pytest.mark.slow
def test_compiled_module_is_compiled(monkeypatch):
    """With model.compile the forward pass runs as one compiled graph, and eager without."""
    # The back end makes no difference here, except that a real one takes many seconds.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    images = torch.rand(2, 1, 8, 8)
    for mode, graphs in (("none", 0), ("default", 1)):
        torch._dynamo.reset()
        counters.clear()
        build(workload(compile=mode))(images)
        assert graphs == counters["stats"]["unique_graphs"]


def test_parallelism_decides_which_parts_are_compiled(monkeypatch):
    """What compiles one part is handed to the parallelism, with the configured mode."""
    monkeypatch.setattr(torch, "compile", lambda module, **_: torch.nn.Sequential(module))

    def compiled(module, compile_part):
        module[1] = compile_part(module[1])
        return module

    built = build(workload(compile="default"), compiled=compiled)
    assert [type(part).__name__ for part in built[:3]] == ["Flatten", "Sequential", "ReLU"]


def test_wrapper_holds_the_compiled_module(monkeypatch):
    """A parallelism wraps the compiled module, on its device."""
    monkeypatch.setattr(torch, "compile", lambda module, **_: torch.nn.Sequential(module))
    seen = []

    def wrap(module):
        seen.append(module)
        return torch.nn.ModuleList([module])

    wrapped = build(workload(compile="default"), wrap=wrap)
    assert [type(module) for module in seen] == [torch.nn.Sequential]
    assert wrapped[0] is seen[0]
