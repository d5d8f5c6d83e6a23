"""The forward pass."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.core.records import Work
from gpubench_plugin.training import inference as inference_module
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.training.inference import Inference
from gpubench_plugin.training.model import build_model

CPU = torch.device("cpu")
NAN = float("nan")


@pytest.fixture
def make_inference(slope):
    def make(precision="fp32"):
        chosen = catalog.load("precision", precision)()
        return Inference(
            module=build_model(slope, seed=0, device=CPU, precision=chosen),
            workload=slope,
            data=Synthetic(slope, batch_size=4, device=CPU, convert=chosen.convert_batch),
            precision=chosen,
            device=CPU,
        )

    return make


@pytest.mark.parametrize(
    ("factors", "count"),
    [*(([1, bad, 1, 1], 1) for bad in (NAN, float("inf"), -float("inf"))), ([NAN] * 4, 4)],
)
def test_values_that_are_not_finite_are_counted(factors, count, make_inference, slope):
    """One NaN or infinity among finite outputs is enough."""
    slope.distort = lambda output, _: output * torch.tensor(factors)[:, None]
    with pytest.raises(CorrectnessError, match=f"{count} of 4 values are not finite"):
        make_inference().prepare(print)


def test_a_model_that_returns_nothing_is_refused(make_inference, slope):
    """Nothing of None can be finite, nor shows that the model computed anything."""
    slope.distort = lambda *_: None
    with pytest.raises(CorrectnessError, match="the model's output is a NoneType, whose values"):
        make_inference().prepare(print)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("fp32", torch.float32),
        ("bf16", torch.bfloat16),
        ("amp", torch.float16),
        ("bf16-true", torch.bfloat16),
        ("fp16-true", torch.float16),
    ],
)
def test_step_computes_outputs_in_the_precision(precision, dtype, make_inference):
    """One call is one batch's outputs, in the precision, without a graph for gradients."""
    inference = make_inference(precision)
    inference.step()
    output = inference._output
    assert ((4, 1), dtype, True) == (tuple(output.shape), output.dtype, output.is_inference())


class Casts(TorchDispatchMode):
    """Counts the casts of operations."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        # In inference mode torch does not take `to` apart.
        is_copy = func.overloadpacket.__name__ in {"to", "_to_copy"}
        self.count += is_copy and result.dtype != args[0].dtype
        return result


@pytest.mark.parametrize(
    ("precision", "casts"), [("fp32", 0), ("bf16", 3), ("amp", 3), ("bf16-true", 0)]
)
def test_the_record_says_that_every_call_casts_the_weights(precision, casts, make_inference):
    """Under autocast weight, bias and inputs of a layer are cast in each call, not in the first."""
    inference = make_inference(precision)
    check = inference.prepare(print)
    for _ in range(2):
        with Casts() as counted:
            inference.step()
        assert counted.count == casts
    assert check.correctness.get("casts_weights_each_call", False) is bool(casts)


def test_check_times_the_first_step(make_inference):
    """The check says that outputs are finite and how long the first call took, in eval mode."""
    inference = make_inference()
    check = inference.prepare(print)
    assert not inference.module.training
    assert check.correctness == {"outputs_finite": True}
    assert {"first_step_s"} == set(check.facts)
    assert check.facts["first_step_s"] > 0


def test_outputs_that_become_nan_while_timed_are_an_error(make_inference, slope):
    """The last timed outputs are looked at."""
    inference = make_inference()
    inference.prepare(print)
    inference.begin()
    slope.distort = lambda output, _: output * NAN
    inference.step()
    with pytest.raises(CorrectnessError, match="not finite"):
        inference.finish()


def test_outputs_are_given_up_before_the_next_are_computed(make_inference, slope):
    """The peak of memory has one batch's outputs in it, not two."""
    inference = make_inference()
    inference.step()
    alive = weakref.ref(inference._output)
    seen = []
    slope.distort = lambda output, _: seen.append(alive()) or output
    inference.step()
    assert seen == [None]


def test_finish_reports_the_wait_for_data_since_begin(make_inference, monkeypatch):
    """The time spent waiting for batches is that of the timed calls."""
    inference = make_inference()
    inference.prepare(print)
    ticks = iter(range(0, 100, 5))
    monkeypatch.setattr(inference_module, "perf_counter_ns", lambda: next(ticks))
    inference.begin()
    inference.step()
    inference.step()
    assert {"data_wait_s": pytest.approx(10e-9)} == inference.finish()


def test_work_counts_samples_and_tokens(make_inference, slope):
    """One call's work is its batch."""
    inference = make_inference()
    assert (4, Work(samples=4)) == (inference.samples_per_step, inference.work())
    slope.tokens_per_sample = 3
    assert Work(samples=4, tokens=12) == inference.work()
