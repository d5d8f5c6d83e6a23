"""The model as it is measured."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.seeding import seeded

CPU = torch.device("cpu")


def workload(name="mlp", **section):
    made = catalog.load("workloads", name)
    return made(made.Section(name=name, **section))


TINY = torch.nn.Linear(1, 1)


def build(chosen, *, seed=0, precision="fp32", device=CPU, **kwargs):
    return build_model(
        chosen,
        seed=seed,
        device=device,
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


class Accelerator:
    """Module of a device with one default generator, and the generators that are made for it."""

    def __init__(self, monkeypatch, *, indexed=True):
        self.state, self.states, self._indexed = b"before", [], indexed
        monkeypatch.setattr(torch, "get_device_module", lambda _: self)
        monkeypatch.setattr(torch, "Generator", lambda device: self)

    def manual_seed(self, seed):
        self._seed = seed
        return self

    def get_state(self):
        return f"seed {self._seed}".encode()

    def get_rng_state(self, *device):
        assert bool(device) == self._indexed
        return self.state

    def set_rng_state(self, state, *device):
        assert bool(device) == self._indexed
        self.state = state
        self.states.append(state)


def test_weights_are_drawn_on_the_device_by_its_generator(monkeypatch):
    """The device's generator starts from the seed, and both generators are as before."""
    accelerator, drawn_on = Accelerator(monkeypatch), []
    chosen = workload()
    monkeypatch.setattr(chosen, "build", lambda: drawn_on.append(torch.empty(1)) or TINY)
    expected = torch.get_rng_state()
    build(chosen, seed=3, device=torch.device("meta"))
    assert [tensor.device.type for tensor in drawn_on] == ["meta"]
    assert accelerator.states == [b"seed 3", b"before"]
    assert expected.equal(torch.get_rng_state())


def test_failing_build_restores_the_generator(monkeypatch):
    """The device's generator is as before although the model cannot be built."""
    accelerator = Accelerator(monkeypatch)
    with pytest.raises(ZeroDivisionError), seeded(3, torch.device("meta")):
        raise ZeroDivisionError
    assert accelerator.state == b"before"


def test_device_without_an_index_is_asked_without_one(monkeypatch):
    """Generators of ``torch.mps`` take no device."""
    accelerator = Accelerator(monkeypatch, indexed=False)
    with seeded(3, torch.device("mps")):
        assert accelerator.state == b"seed 3"
    assert accelerator.state == b"before"


def test_weights_can_be_drawn_on_the_cpu(monkeypatch):
    """With model.init_device=cpu the device's generator is not touched."""
    accelerator, drawn_on = Accelerator(monkeypatch), []
    chosen = workload(init_device="cpu")
    monkeypatch.setattr(chosen, "build", lambda: drawn_on.append(torch.empty(1)) or TINY)
    module = build(chosen, device=torch.device("meta"))
    assert [tensor.device.type for tensor in drawn_on] == ["cpu"]
    assert {"meta"} == {p.device.type for p in module.parameters()}
    assert accelerator.states == []


def test_experts_are_the_same_on_every_device():
    """The mixture's experts are hashed from the seed, where the other weights are drawn."""
    chosen = workload("moe")
    with torch.device("meta"):
        experts = chosen.build().blocks[0].moe.experts
    assert {"meta"} == {p.device.type for p in experts.parameters()}


@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_have_the_configured_memory_format(channels_last):
    """The weights of convolutions are NHWC exactly where the configuration says so."""
    tiny = {"image_size": 32, "classes": 10, "hidden_sizes": (16, 32, 64, 128)}
    module = build(workload("resnet18", channels_last=channels_last, **tiny))
    kernels = [p for p in module.parameters() if p.ndim == 4 and p.shape[2] > 1]
    is_nhwc = {p.is_contiguous(memory_format=torch.channels_last) for p in kernels}
    assert {channels_last} == is_nhwc


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
