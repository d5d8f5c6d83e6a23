"""Where steps wait for their device: nowhere, but for what is timed and read around them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gpubench_plugin.config.sections import PrecisionSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.training.inference import Inference
from gpubench_plugin.training.trainer import PAIRS, Trainer, exchange_times
from tests.support.exhaustive import shown
from tests.support.hot_path import Reads
from tests.support.presets import inference_of, preset_of, trainer_of
from tests.support.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEVICE = torch.device("cuda", 1)

every_workload = pytest.mark.parametrize(
    "name", shown("mlp", "mixtral", "resnet50", "llama", exhaustively=sorted(shipped("workloads")))
)
every_precision = pytest.mark.parametrize("precision", shown("amp", exhaustively=("fp32", "bf16")))


@pytest.mark.slow
@every_precision
@every_workload
def test_a_training_step_waits_for_nothing(name: str, precision: str) -> None:
    """Forward and backward pass, scaler, clipping and fused update read no value."""
    overrides = ("training.fused=true", "training.gradient_clipping=1.0")
    trainer = trainer_of(preset_of(name, "tiny", *overrides, precision__name=precision))
    trainer.step()  # sets up the optimizer's state
    with Reads() as reads:
        trainer.step()
    assert +reads.counts == Counter()


def test_a_scaler_waits_for_an_optimizer_that_is_not_fused() -> None:
    """Once per step it reads whether a gradient overflowed."""
    trainer = trainer_of(preset_of("mlp", "tiny", "training.fused=false", precision__name="amp"))
    trainer.step()
    with Reads() as reads:
        trainer.step()
    assert +reads.counts == {"_local_scalar_dense": 1}


@pytest.mark.slow
@every_precision
@every_workload
def test_a_step_of_inference_waits_for_nothing(name: str, precision: str) -> None:
    """The next batch and the forward pass without gradients read no value."""
    inference = inference_of(preset_of(name, "tiny", precision__name=precision))
    with Reads() as reads:
        inference.step()
    assert +reads.counts == Counter()


@pytest.mark.parametrize("built", [trainer_of, inference_of])
def test_what_ends_waits_for_its_last_step(built: Callable[[Any], Any]) -> None:
    """The loss, or whether the last output is finite, is there only after all steps."""
    subject = built(preset_of("mlp", "tiny"))
    subject.begin()
    subject.step()
    with Reads() as reads:
        subject.finish()
    assert +reads.counts


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What happens on a device of our own: waits for it, and updates."""
    happened: list[str] = []

    def wait(device: torch.device) -> None:
        assert device == DEVICE
        happened.append("wait")

    state = torch.zeros(8, dtype=torch.uint8)
    module = SimpleNamespace(get_rng_state=lambda _: state, set_rng_state=lambda *_: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    hook = register_optimizer_step_pre_hook(lambda *_: happened.append("update"))
    yield happened
    hook.remove()


def subject(slope: Any, events: list[str], precision: Any) -> dict[str, Any]:
    """What a trainer and an inference of `slope` on the device share; its passes are events."""

    def noted(value: torch.Tensor, _: object) -> torch.Tensor:
        events.append("pass")
        return value

    slope.distort = noted
    host = torch.device("cpu")
    data = Synthetic(slope, batch_size=4, device=host, convert=precision.convert_batch)
    return {
        "module": slope.build(),
        "workload": slope,
        "data": data,
        "precision": precision,
        "device": DEVICE,
    }


def test_the_first_training_step_is_timed_until_the_device_is_idle(
    slope: Any, events: list[str]
) -> None:
    """Its passes and its update begin and end on an idle device; later steps do not wait."""
    precision = catalog.load("precision", "fp32")()
    trainer = Trainer(
        **subject(slope, events, precision),
        training=TrainingSection(steps=3, fused=False, loss_drop=None),
        precision_section=PrecisionSection(),
    )
    trainer.prepare(print)
    first = ["wait", "pass", "wait", "wait", "update", "wait"]
    assert events == [*first, *2 * ["pass", "update"]]


def test_the_first_step_of_inference_is_timed_until_the_device_is_idle(
    slope: Any, events: list[str]
) -> None:
    """It begins and ends on an idle device; a later step does not wait."""
    precision = catalog.load("precision", "fp32")()
    inference = Inference(**subject(slope, events, precision))
    inference.prepare(print)
    inference.step()
    assert events == ["wait", "pass", "wait", "pass"]


def test_exchange_of_gradients_is_timed_until_the_device_is_idle(events: list[str]) -> None:
    """Each step begins on idle devices of all ranks, and ends when its own is idle."""
    trainer: Any = SimpleNamespace(
        step=lambda: events.append("exchanging"),
        step_without_exchange=lambda: events.append("alone"),
        agreement=SimpleNamespace(barrier=lambda: events.append("barrier")),
        device=DEVICE,
    )
    exchange_times(trainer)
    pair = [("wait", "barrier", "wait", step, "wait") for step in ("exchanging", "alone")]
    assert events == [*pair[0], *pair[1]] * (1 + PAIRS)
