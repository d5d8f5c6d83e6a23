"""The layer as a thing to measure: its check, its facts, what it refuses."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from gpubench_plugin.core.errors import CorrectnessError, Unsupported, UsageProblem
from gpubench_plugin.environment import devices
from gpubench_plugin.workloads.moe import experts
from gpubench_plugin.workloads.moe import measured as room
from gpubench_plugin.workloads.moe.groups import Axis, ParallelGroups
from gpubench_plugin.workloads.moe.layer import PHASES, ROUTER
from tests.support.hot_path import Reads
from tests.support.messages import mentions
from tests.unit.workloads.moe.made import construction, measured

SUITE = Path(__file__).parents[4] / "benchmarks" / "distributed" / "test_moe.py"
SHARED = ParallelGroups(expert=Axis(size=2, index=0, group=object()))


def test_the_record_has_the_time_of_every_phase():
    """Router and phases, each once; nothing of that in a phase measured alone."""
    layer = measured("forward")
    layer.prepare(None)
    layer.step()
    facts = layer.finish()
    assert {f"phase_{name}_s" for name in (ROUTER, *PHASES)} <= facts.keys()
    assert all(facts[f"phase_{name}_s"] > 0 for name in (ROUTER, *PHASES))
    alone = measured("experts")
    alone.prepare(None)
    assert not [name for name in alone.finish() if name.startswith("phase_")]


@pytest.mark.parametrize("part", [ROUTER, "experts"])
def test_the_first_step_of_a_phase_is_its_first_run(part, monkeypatch):
    """It is timed in the check, where the phase runs for the first time."""
    layer, now, ran = measured(part), [0.0], []
    monkeypatch.setattr(devices, "perf_counter", lambda: now[0])
    stages = layer._layer.stages

    def slow_once(name, run):
        def taken(value):
            now[0] += 0.0 if name in ran else 1.0
            ran.append(name)
            return run(value)

        return taken

    monkeypatch.setattr(
        layer._layer,
        "stages",
        lambda tokens: [(name, slow_once(name, run)) for name, run in stages(tokens)],
    )
    assert layer.prepare(None).facts["first_step_s"] == 1.0


def test_the_suite_measures_every_phase():
    """The benchmark's list, which imports nothing, is the layer's."""
    spec = importlib.util.spec_from_file_location("suite", SUITE)
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    phases = (ROUTER, *PHASES)
    assert phases == suite.PHASES


@pytest.mark.parametrize("part", [ROUTER, "dispatch_preprocess", "experts", "combine_postprocess"])
def test_a_phase_alone_runs_that_phase(part, monkeypatch):
    """After the check a step calls the phase's function once, and no other."""
    layer = measured(part)
    step = layer.step  # which a benchmark takes before the check
    calls = []
    stages = layer._layer.stages

    def watched(tokens):
        return [
            (name, lambda value, name=name, run=run: calls.append(name) or run(value))
            for name, run in stages(tokens)
        ]

    monkeypatch.setattr(layer._layer, "stages", watched)
    layer.prepare(None)
    calls.clear()
    step()
    assert calls == [part]


def test_a_phase_in_which_nothing_happens_is_unsupported():
    """On one rank nothing is dispatched, and that is not a time of zero."""
    with pytest.raises(Unsupported, match="the dispatcher Local does nothing in phase dispatch"):
        measured("dispatch")


@pytest.mark.parametrize(
    ("spoil", "first"),
    [
        (lambda layer: layer.experts.w_out.data[1].mul_(1.001), "output"),
        (lambda layer: layer.router.weight.register_hook(lambda grad: grad * 1.001), "dRouter"),
        (lambda layer: layer.experts.w_in.register_hook(lambda grad: grad * 1.001), "dW_in"),
        (lambda layer: layer.experts.w_out.register_hook(lambda grad: -grad), "dW_out"),
        (lambda layer: layer.experts.w_out.data[1].fill_(float("nan")), "output"),
    ],
)
def test_a_wrong_layer_is_not_timed(spoil, first):
    """An error of a thousandth in a weight or a gradient fails the check, which names what."""
    layer = measured()
    spoil(layer._layer)
    with pytest.raises(CorrectnessError, match=f"{first} differs from a single process"):
        layer.prepare(None)


def test_a_wrong_gradient_of_tokens_is_not_timed():
    """The gradient that flows on to the layer before is compared, too."""
    layer = measured()
    layer._tokens.register_hook(lambda grad: grad * 1.001)
    with pytest.raises(CorrectnessError, match="the layer's dX differs"):
        layer.prepare(None)


def test_outputs_that_are_not_finite_fail_after_the_timing():
    """What the timed calls left is looked at."""
    layer = measured("forward")
    layer.prepare(None)
    layer._output = torch.tensor([float("inf")])
    with pytest.raises(CorrectnessError, match="output is not finite"):
        layer.finish()


def test_weights_are_compared_between_cpu_and_device(monkeypatch):
    """Drawing is checked bit for bit; a device that draws otherwise fails."""
    layer = measured("initialisation")
    assert layer.prepare(None).correctness == {}  # a CPU is not compared with itself
    layer.step()
    made, error = layer._construction, 0.0
    weights = made.weights

    def of_stand_in(experts, *, device):
        drawn = weights(experts, device="cpu")
        return drawn if device == "cpu" else (drawn[0], drawn[1] + error)

    monkeypatch.setattr(made, "weights", of_stand_in)
    monkeypatch.setattr(made, "device", "cuda:0")
    assert layer.prepare(None).correctness == {"initialised_alike_on": ["cpu", "cuda:0"]}
    error = 1e-9
    with pytest.raises(CorrectnessError, match="seed 0 gives different weights on cuda:0"):
        layer.prepare(None)


def refusal_of(act):
    with pytest.raises((Unsupported, UsageProblem)) as refused:
        act()
    return str(refused.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dispatcher": "all-to-all"}, "all-to-all: a single rank holds all experts; use local"),
        ({"dispatcher": "all-gather"}, "all-gather: a single rank holds all experts; use local"),
        ({"expert_kind": "te-grouped"}, "Transformer Engine cannot be imported.*pip install"),
        (
            {"expert_kind": "grouped", "width": 6},
            "not support grouped_mm for fp32 here: .*16 bytes",
        ),
        ({"pinned_cache": 2}, "pinned_cache requires a GPU, not cpu; .*--device=cuda"),
        ({"device_initialisation": True}, "the device is the CPU, where weights are drawn anyway"),
        ({"graph_capture": True}, "graph_capture requires a CUDA device, not cpu"),
    ],
)
def test_what_cannot_run_here_says_why_and_what_to_do(keys, message):
    """Each is unsupported, with the key and the reason."""
    said = refusal_of(lambda: measured("forward", **keys))
    assert said.startswith("moe.")
    assert re.search(message, said)


def test_local_is_refused_where_ranks_share_the_experts():
    """It sends nothing, so that tokens could not reach another rank's experts."""
    said = refusal_of(lambda: construction(dispatcher="local", groups=SHARED))
    assert mentions(said, "2 ranks", "all-gather or all-to-all", "moe.expert_parallel=1")


def test_grouped_without_the_product_is_unsupported(monkeypatch):
    """A torch without grouped_mm is said to be one."""
    monkeypatch.setattr(experts, "_grouped_mm", None)
    assert "does not provide grouped_mm" in refusal_of(lambda: construction(expert_kind="grouped"))


@pytest.mark.parametrize("text", ["out of memory", "device-side assert triggered"])
def test_device_that_fails_in_the_trial_of_grouped_is_no_refusal(monkeypatch, text):
    """What torch cannot do is unsupported; what goes wrong is a failure."""

    def fail(*_, **__):
        raise torch.AcceleratorError(f"CUDA error: {text}")

    monkeypatch.setattr(experts, "_grouped_mm", fail)
    with pytest.raises(torch.AcceleratorError, match=text):
        construction(expert_kind="grouped")


def test_gradients_of_pinned_experts_are_refused():
    """Weights in pinned memory are for inference."""
    with pytest.raises(Unsupported, match=r"moe\.pinned_cache: .* inference only"):
        measured("forward-backward", pinned_cache=2)


def test_an_unknown_part_is_refused():
    """With the parts that there are."""
    with pytest.raises(UsageProblem, match=r"unknown 'forwad' \(did you mean 'forward'\?\)"):
        measured("forwad")


def test_tokens_are_the_work_of_all_but_initialisation():
    """24 tokens a call; drawing weights computes none."""
    assert (measured().work().tokens, measured("initialisation").work().tokens) == (24, None)
    assert measured("initialisation").finish() == {}
    assert set(room.PARTS) == {
        "forward", "forward-backward", "initialisation", ROUTER, *PHASES
    }  # fmt: skip


@pytest.mark.parametrize("part", ["forward", "forward-backward"])
def test_a_layer_without_balancing_is_differentiated(part):
    """Its loss is constant, and its gradients are compared as with any other."""
    plain = measured(part, balancing="none").prepare(print).correctness
    assert plain.keys() == measured(part).prepare(print).correctness.keys()


@pytest.mark.parametrize("balancing", ["none", "aux-loss", "z-loss"])
@pytest.mark.parametrize("part", ["forward", "forward-backward"])
def test_a_call_with_grouped_experts_on_one_rank_waits_for_nothing(part, balancing):
    """Router, reordering, grouped experts and weighted sums read no value."""
    subject = measured(part, precision="bf16-true", expert_kind="grouped", balancing=balancing)
    subject.step()
    with Reads() as reads:
        subject.step()
    assert +reads.counts == Counter()
