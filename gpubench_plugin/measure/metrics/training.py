"""Training metrics: convergence, loss, skipped steps, data wait, errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics.base import Fact, facts, metrics
from gpubench_plugin.measure.metrics.throughput import median_step_s, timed_s


@metrics(
    "convergence",
    needs="steps_to_target",
    time_to_target_s="Median training time from start to target",
)
def time_to_target(observation: Observation) -> Iterator[Metric]:
    """Time to target, evaluations left out, if every timed call is a training to it."""
    duration_s = median_step_s(observation.samples)
    yield Metric(name="time_to_target_s", value=duration_s, unit="s", better="lower")


@facts(
    "convergence; after training with training.evaluate",
    steps_to_target=Fact("Optimizer steps from start to target", "count", "lower"),
    epochs_to_target=Fact("Epochs from start to target", "count", "lower"),
    test_loss=Fact("Mean held-out loss after training", "1", "lower"),
    test_accuracy=Fact("Held-out accuracy after training", "fraction", "higher"),
    parity_error=Fact("Relative difference of the held-out loss from fp32's", "fraction", "lower"),
)
def convergence() -> None:
    """Steps to target, and held-out evaluation after the last timed training, else the untimed one.

    ``parity_error`` is that of another precision, from the loss in fp32 after as many steps.
    """


@facts(
    "training",
    loss_first=Fact("Loss at the first step of the untimed check", "1"),
    loss_last=Fact("Loss at the last step of the untimed check", "1", "lower"),
    skipped_steps=Fact("Timed steps skipped by the gradient scaler", "count", "lower"),
)
def training() -> None:
    """Loss of the check, on one batch, and timed steps without finite gradients."""


@facts(
    "training with measure.check",
    loss_error=Fact("Largest relative error of the first losses against fp32", "1"),
    gradient_norm_error=Fact(
        "Largest relative error of the first global gradient norms against fp32", "1"
    ),
)
def reference_error() -> None:
    """Largest relative errors of losses and gradient norms of the first steps against fp32."""


@metrics(
    "training and inference",
    needs="data_wait_s",
    data_wait_fraction="Share of time the host waited for a batch",
)
def data_wait(observation: Observation) -> Iterator[Metric]:
    """Share of the timed blocks that the host waited for the next batch."""
    share = observation.facts["data_wait_s"] / timed_s(observation.samples)
    yield Metric(name="data_wait_fraction", value=share, unit="fraction", better="lower")
