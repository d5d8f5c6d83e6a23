"""The training loop."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from gpubench_plugin.core.errors import CorrectnessError, Misuse, UsageProblem
from gpubench_plugin.core.records import Work
from gpubench_plugin.training import trainer as trainer_module
from gpubench_plugin.training.data.digits import Digits
from gpubench_plugin.training.data.synthetic import Synthetic
from tests.support.operations import Operations
from tests.support.presets import CONFIGURED
from tests.unit.training.conftest import silent

CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")


def weights(trainer):
    return torch.cat([p.detach().flatten().clone() for p in trainer.module.parameters()])


def growing(loss, factor):
    """The same loss; its gradient grows by `factor`."""
    loss.register_hook(lambda gradient: gradient * factor)
    return loss


# What the shipped configurations promise.


# A CPU computes fp16 a hundred times slower than fp32: where that takes minutes, amp is for a GPU.
SLOW_IN_FP16 = {
    *("bert", "diffusion", "gpt2", "llama", "mixtral", "qwen-moe", "unet-cond", "unet2d")
}


def marks_of(name, precision):
    """One network of each family is shown, in fp32."""
    is_shown = precision == "fp32" and name in {"mlp", "moe", "gpt2", "resnet18", "unet2d", "vit"}
    return [] if is_shown else [pytest.mark.exhaustive]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(name, precision, marks=marks_of(name, precision))
        for name in CONFIGURED
        for precision in ("fp32", "bf16", "amp")
        if precision != "amp" or name not in SLOW_IN_FP16
    ],
)
def test_tiny_presets_halve_the_loss_in_20_steps(name, precision, shipped):
    """20 steps on one batch bring the loss below half of its start, and none is skipped."""
    check = shipped(name, precision, "training.loss_drop=0.5").prepare(silent)
    losses = check.correctness["losses"]
    assert (len(losses), check.correctness["skipped_steps"]) == (20, 0)
    assert sum(losses[-3:]) < sum(losses[:3]) / 2


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("build", r"^Slope\.build returned a value of type int; allowed: Module$"),
        (
            "synthetic_batch",
            r"^Slope\.synthetic_batch returned a value .* int; allowed: Batch$",
        ),
        ("optimizer", r"^optimizer returned a value of type int; allowed: Optimizer$"),
        ("loss", "^the loss must be a scalar tensor, not int$"),
    ],
)
def test_workload_that_returns_something_else_is_told_so(
    make_trainer, slope, monkeypatch, method, message
):
    """The message names the method, what it returned, and what it may."""
    monkeypatch.setattr(slope, method, lambda *_, **__: 5)
    with pytest.raises((Misuse, CorrectnessError), match=message):
        make_trainer().prepare(silent)


# The step.


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_accumulated_batches_equal_one_big_batch(precision, make_trainer, slope):
    """Four batches accumulated update the weights as one batch four times as big."""
    whole = Digits(slope, batch_size=16, device=CPU)
    parts = Digits(slope, batch_size=4, device=CPU)
    trainers = (
        make_trainer(data=whole, batch_size=16, precision=precision),
        make_trainer(data=parts, batch_size=4, accumulation_steps=4, precision=precision),
    )
    for trainer in trainers:
        trainer.step()
    assert [trainer.samples_per_step for trainer in trainers] == [16, 16]
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if precision == "fp32" else {"rtol": 0, "atol": 1e-3}
    torch.testing.assert_close(weights(trainers[0]), weights(trainers[1]), **tolerance)


def test_accumulation_keeps_gradients_on_the_rank_until_the_last_batch(make_trainer):
    """All batches but the last one run in the context that keeps gradients on their rank."""
    entered = []

    @contextmanager
    def no_sync():
        entered.append("in")
        yield
        entered.append("out")

    make_trainer(accumulation_steps=3, no_sync=no_sync).step()
    assert entered == ["in", "out"] * 2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp"])
def test_timed_steps_read_nothing_from_the_device(precision, make_trainer):
    """Between begin and finish steps queue up: nothing waits for the device."""
    trainer = make_trainer(
        precision=precision,
        fused=True,
        gradient_clipping=1.0,
        accumulation_steps=2,
        scheduler="cosine",
    )
    trainer.prepare(silent)
    trainer.begin()
    with Operations() as operations:
        trainer.step()
        trainer.step()
    assert operations.readings == 0


# The untimed check.


def test_check_reports_losses_and_first_step(make_trainer):
    """The check tells every loss, the first and the last, and how long the first step took."""
    check = make_trainer(learning_rate=0.1).prepare(silent)
    losses = check.correctness["losses"]
    assert len(losses) == 20
    assert {"losses", "loss_drop", "skipped_steps"} == set(check.correctness)
    assert (losses[0], losses[-1]) == (check.facts["loss_first"], check.facts["loss_last"])
    assert check.facts["first_step_s"] > 0


def test_check_trains_on_one_fixed_batch(make_trainer, slope):
    """The check does not move on in the data."""
    data = Digits(slope, batch_size=8, device=CPU)
    make_trainer(data=data, steps=5, learning_rate=0.001).prepare(silent)
    assert next(data).targets.equal(data.fixed_batch().targets)


def test_epochs_pass_over_the_data(make_trainer, slope):
    """With training.epochs the check sees fresh batches, every one of each epoch."""
    data = Digits(slope, batch_size=600, device=CPU)
    trainer = make_trainer(data=data, epochs=2, learning_rate=0.001)
    assert len(trainer.prepare(silent).correctness["losses"]) == 6
    assert next(data).targets.equal(data.fixed_batch().targets)


def test_epochs_of_endless_data_are_refused(make_trainer):
    """Synthetic data have no epochs, which the error says."""
    with pytest.raises(UsageProblem, match=r"training\.epochs=2: this data source has no epochs"):
        make_trainer(epochs=2)


def test_check_logs_its_progress(make_trainer):
    """Every N steps and at the end the journal gets what a trainer logs of the step."""
    events = []
    trainer = make_trainer(
        steps=7, log_every=3, learning_rate=0.5, scheduler="linear", schedule_steps=100
    )
    losses = trainer.prepare(events.append).correctness["losses"]
    assert events.pop(0) == {"event": "phase", "phase": "train", "steps": 7}
    assert all(event.pop("samples_per_s") > 0 for event in events)
    assert [
        {
            "event": "training_step",
            "step": step,
            "loss": losses[step - 1],
            "learning_rate": pytest.approx(0.5 * (1 - step / 100)),
            "skipped_steps": 0,
        }
        for step in (3, 6, 7)
    ] == events


def test_check_logs_loss_scale_skipped_steps_and_gradient_norm(make_trainer, slope):
    """With a scaler and clipping they are those of the step, the norm before clipping."""
    events, norms = [], []
    overflows = iter([*[1.0] * 3, 1e38])
    slope.distort = lambda value, _: growing(value, next(overflows, 1.0))
    trainer = make_trainer(steps=6, log_every=3, precision="amp", gradient_clipping=1e-3)
    optimizer = trainer.optimizer
    optimizer.register_step_pre_hook(lambda *_: norms.append(trainer._optimization._norm.item()))
    trainer.prepare(events.append)
    _, first, last = events
    assert (first["loss_scale"], first["skipped_steps"]) == (128.0, 0)
    assert (last["loss_scale"], last["skipped_steps"]) == (64.0, 1)
    assert [first["gradient_norm"], last["gradient_norm"]] == [norms[2], norms[-1]]
    assert norms[2] > 1e-3


def test_later_nan_loss_names_its_step(make_trainer, slope):
    """A loss that becomes NaN is found with its step."""
    calls = iter(range(20))
    slope.distort = lambda loss, _: loss * (NAN if next(calls) == 3 else 1.0)
    with pytest.raises(CorrectnessError, match="the loss at step 4 is nan"):
        make_trainer(log_every=20).prepare(silent)


@pytest.mark.parametrize("clipping", [None, 1.0])
def test_non_finite_gradient_names_the_parameter(clipping, make_trainer, slope):
    """A gradient that is NaN under a finite loss is found at step 1, and not blamed on others."""
    # The square root has a finite value and an infinite slope at zero.
    slope.distort = lambda loss, module: loss + (module.bias * 0).sqrt().sum()
    with pytest.raises(CorrectnessError, match="gradient of parameter bias is not finite"):
        make_trainer(gradient_clipping=clipping).prepare(silent)


@pytest.mark.parametrize("fused", [False, True])
def test_training_that_only_skips_is_an_error(fused, make_trainer):
    """Under amp a check of which every step is skipped fails."""
    with pytest.raises(CorrectnessError, match="all 20 optimizer steps were skipped"):
        make_trainer(precision="amp", init_scale=2.0**100, fused=fused).prepare(silent)


# The timed steps.


def test_finish_reports_what_was_counted_since_begin(make_trainer, slope, monkeypatch):
    """Skipped steps and data wait are those of the timed steps."""
    trainer = make_trainer(precision="amp")
    trainer.prepare(silent)
    ticks = iter(range(0, 1000, 5))
    monkeypatch.setattr(trainer_module, "perf_counter_ns", lambda: next(ticks))
    trainer.begin()
    growths = iter([1.0, INF, 1.0])
    slope.distort = lambda loss, _: growing(loss, next(growths))
    for _ in range(3):
        trainer.step()
    assert {"skipped_steps": 1.0, "data_wait_s": pytest.approx(15e-9)} == trainer.finish()


def test_nan_in_the_last_timed_step_is_an_error(make_trainer, slope):
    """A loss that becomes NaN while it is timed fails the benchmark."""
    trainer = make_trainer()
    trainer.begin()
    slope.distort = lambda loss, _: loss * NAN
    trainer.step()
    with pytest.raises(CorrectnessError, match="the loss in the last timed step is nan"):
        trainer.finish()


def test_timed_steps_that_were_all_skipped_are_an_error(make_trainer, slope):
    """Timing nothing but skipped steps fails the benchmark."""
    trainer = make_trainer(precision="amp")
    trainer.begin()
    slope.distort = lambda loss, _: growing(loss, INF)
    trainer.step()
    trainer.step()
    with pytest.raises(CorrectnessError, match="all 2 optimizer steps were skipped"):
        trainer.finish()


def test_finish_without_a_step_reports_nothing_counted(make_trainer):
    """A trainer that was not stepped has nothing to complain about."""
    trainer = make_trainer()
    trainer.begin()
    assert trainer.finish() == {"skipped_steps": 0.0, "data_wait_s": 0.0}


# The work.


def test_work_counts_samples_and_tokens(make_trainer, slope):
    """One step's work is its samples, and its tokens where samples are made of them."""
    trainer = make_trainer(batch_size=4, accumulation_steps=2)
    assert Work(samples=8) == trainer.work()
    slope.tokens_per_sample = 16
    assert Work(samples=8, tokens=128) == trainer.work()


def test_trainer_puts_the_module_into_training_mode(make_trainer, slope):
    """Whatever mode the module was in, it trains."""
    module = slope.build().eval()
    make_trainer(module=module, data=Synthetic(slope, batch_size=2, device=CPU))
    assert module.training


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "mixtral", "qwen-moe"])
def test_language_models_learn_in_bf16_alone(name, shipped):
    """With weights and Adam's state in bf16, the loss of the tiny preset falls as it has to."""
    check = shipped(name, "bf16-true").prepare(print)
    assert 0 < check.correctness["loss_drop"] <= 0.5
