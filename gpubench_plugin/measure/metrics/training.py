"""Training metrics: convergence, loss, skipped steps, data wait, errors, compile time."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._plausibility import median_step_s, timed_s
from gpubench_plugin.measure.metrics.base import fact, metrics


@metrics(
    "convergence; after training with training.evaluate",
    time_to_target_s="Median training time from start to target",
    steps_to_target="Optimizer steps from start to target",
    epochs_to_target="Epochs from start to target",
    test_loss="Mean held-out loss after training",
    test_accuracy="Held-out accuracy after training",
    parity_error="Relative difference of the held-out loss from fp32's",
)
def convergence(observation: Observation) -> Iterator[Metric]:
    """Time to target, if every timed call is a training to it, and held-out evaluation."""
    if "steps_to_target" in observation.facts:
        duration_s = median_step_s(observation.samples)
        yield Metric(name="time_to_target_s", value=duration_s, unit="s", better="lower")
    yield from fact(observation, "steps_to_target", "count", "lower")
    yield from fact(observation, "epochs_to_target", "count", "lower")
    yield from fact(observation, "test_loss", "1", "lower")
    yield from fact(observation, "test_accuracy", "fraction", "higher")
    yield from fact(observation, "parity_error", "fraction", "lower")


@metrics(
    "training",
    loss_first="Loss at the first step of the untimed check",
    loss_last="Loss at the last step of the untimed check",
)
def loss(observation: Observation) -> Iterator[Metric]:
    """Loss at the first and last step of the check, on one batch."""
    yield from fact(observation, "loss_first", "1")
    yield from fact(observation, "loss_last", "1", "lower")


@metrics("training", skipped_steps="Timed steps skipped by the gradient scaler")
def skipped_steps(observation: Observation) -> Iterator[Metric]:
    """Timed steps skipped by the gradient scaler because of non-finite gradients."""
    yield from fact(observation, "skipped_steps", "count", "lower")


@metrics(
    "training and inference",
    data_wait_fraction="Share of time the host waited for a batch",
)
def data_wait(observation: Observation) -> Iterator[Metric]:
    """Share of the timed blocks that the host waited for the next batch."""
    if "data_wait_s" in observation.facts:
        share = observation.facts["data_wait_s"] / timed_s(observation.samples)
        yield Metric(name="data_wait_fraction", value=share, unit="fraction", better="lower")


@metrics(
    "training with measure.check",
    loss_error="Largest relative error of the first losses against fp32",
    gradient_norm_error="Largest relative error of the first global gradient norms against fp32",
)
def reference_error(observation: Observation) -> Iterator[Metric]:
    """Largest relative errors of losses and gradient norms of the first steps against fp32."""
    yield from fact(observation, "loss_error", "1")
    yield from fact(observation, "gradient_norm_error", "1")


@metrics("compiled models", compile_time_s="First call minus a steady one")
def compile_time(observation: Observation) -> Iterator[Metric]:
    """Extra time of the first step of a compiled model, the choice of kernels included.

    None if an earlier call compiled it: then the first step is no longer than a steady one.
    """
    first_s = observation.samples.first_step_s
    if first_s is None or not observation.facts.get("compiled"):
        return
    extra_s = first_s - median_step_s(observation.samples)
    if extra_s > 0:
        yield Metric(name="compile_time_s", value=extra_s, unit="s", better="lower")
