"""Metrics of training: convergence, loss, skipped steps, data wait, errors, compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.measure.metrics._plausibility import median_step_s, timed_s
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpubench_plugin.records import Better, Observation


_FACTS: Final[Mapping[str, tuple[str, Better]]] = {
    "steps_to_target": ("count", "lower"),
    "epochs_to_target": ("count", "lower"),
    "test_loss": ("1", "lower"),
    "test_accuracy": ("fraction", "higher"),
    "parity_error": ("fraction", "lower"),
}


class Convergence(MetricSource):
    """Of a convergence benchmark, of which every timed call is one training to the target.

    What is evaluated on held-out samples is there of every training that is.
    """

    name = "convergence"
    produces: ClassVar = {
        "time_to_target_s": "Median training from the start to the target",
        "steps_to_target": "Optimizer steps of that training",
        "epochs_to_target": "The same in passes over the data",
        "test_loss": "Mean loss on held-out samples after training",
        "test_accuracy": "Share of held-out samples in the right class then",
        "parity_error": "Relative difference of that loss from fp32's",
    }
    where = "convergence; after training with training.evaluate"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The median training, and the facts there are."""
        if "steps_to_target" in seen.facts:
            duration_s = median_step_s(seen.samples)
            yield Metric(name="time_to_target_s", value=duration_s, unit="s", better="lower")
        for name, (unit, better) in _FACTS.items():
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit=unit, better=better)


class Loss(MetricSource):
    """The loss at the first and at the last step of the check, all on one batch."""

    name = "loss"
    produces: ClassVar = {
        "loss_first": "Loss at the first step of the untimed check",
        "loss_last": "Loss at its last step",
    }
    where = "training"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``loss_first`` and ``loss_last``."""
        if "loss_first" in seen.facts:
            yield Metric(name="loss_first", value=seen.facts["loss_first"], unit="1")
        if "loss_last" in seen.facts:
            value = seen.facts["loss_last"]
            yield Metric(name="loss_last", value=value, unit="1", better="lower")


class SkippedSteps(MetricSource):
    """Timed steps that the gradient scaler skipped since a gradient was not finite."""

    name = "skipped-steps"
    produces: ClassVar = {
        "skipped_steps": "Timed steps that the gradient scaler skipped",
    }
    where = "training"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``skipped_steps``."""
        if "skipped_steps" in seen.facts:
            value = seen.facts["skipped_steps"]
            yield Metric(name="skipped_steps", value=value, unit="count", better="lower")


class DataWait(MetricSource):
    """How much of the timed blocks the host spent waiting for the next batch."""

    name = "data-wait"
    produces: ClassVar = {
        "data_wait_fraction": "Share of the time in which the host waited for a batch",
    }
    where = "training and inference"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``data_wait_s`` over the length of all timed blocks."""
        if "data_wait_s" in seen.facts:
            share = seen.facts["data_wait_s"] / timed_s(seen.samples)
            yield Metric(name="data_wait_fraction", value=share, unit="fraction", better="lower")


class ErrorAgainstReference(MetricSource):
    """The largest relative errors of the losses and of the gradient norms.

    They say how far the first training steps are from plain fp32. They are there to be read: a band
    judges them, beyond which the benchmark fails.
    """

    name = "reference-error"
    produces: ClassVar = {
        "loss_error": "Largest relative error of the first losses against plain fp32",
        "gradient_norm_error": "The same of the gradients' global norms",
    }
    where = "training with measure.check"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``loss_error`` and ``gradient_norm_error``."""
        for name in self.produces:
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit="1")


class Compilation(MetricSource):
    """What the first step of a compiled model takes beyond a steady one.

    It includes whatever else happens only once, such as the choice of kernels. A first step no
    longer than a steady one, compiled by an earlier call, has no compile time.
    """

    name = "compile-time"
    produces: ClassVar = {
        "compile_time_s": "First call less a steady one",
    }
    where = "compiled models"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """First step minus median step, where the fact ``compiled`` is set."""
        first_s = seen.samples.first_step_s
        if first_s is None or not seen.facts.get("compiled"):
            return
        extra_s = first_s - median_step_s(seen.samples)
        if extra_s > 0:
            yield Metric(name="compile_time_s", value=extra_s, unit="s", better="lower")
