"""Bench: what the fixture ``gpubench`` offers to a test."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Never, cast

from gpubench_plugin.bench.attributes import check_read, check_set
from gpubench_plugin.bench.journal_events import name_problem
from gpubench_plugin.bench.measuring import TorchImported
from gpubench_plugin.bench.pedantic import fix_rounds, pedantic_step, require_counts
from gpubench_plugin.bench.step import ResultCheck, TimedStep, stated_work
from gpubench_plugin.bench.subjects import group_of, resolve_with_torch
from gpubench_plugin.bench.variants import Variants
from gpubench_plugin.core.errors import CorrectnessError, Misuse, invalid_choice
from gpubench_plugin.measure.record_builder import CustomMetric
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pytest
    import torch
    from torch import nn

    from gpubench_plugin.bench.measuring import Measuring
    from gpubench_plugin.bench.own_models import OwnModels
    from gpubench_plugin.core.records import Better, Measurement, Work
    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.protocols import Subject
    from gpubench_plugin.ranks.process_group import ProcessGroup

    OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Bench:
    """Value of the ``gpubench`` fixture: call it once with the step to measure.

    Amounts are per rank and per call of the step. Checks run before the timing.
    """

    _measuring: Measuring
    _request: pytest.FixtureRequest
    group: str | None
    """Title under which tables show this benchmark with others."""
    extra_info: dict[str, Any]
    """What is recorded beside the numbers; of several ranks rank zero's counts."""
    stats: Any
    """Statistics as pytest-benchmark has them, ``stats["mean"]``; None before the measurement."""

    def __init__(self, measuring: Measuring, request: pytest.FixtureRequest) -> None:
        vars(self).update(_measuring=measuring, _request=request)

    if not TYPE_CHECKING:  # else a type checker would take any name

        def __getattr__(self, name: str) -> Any:
            check_read(name, dir(type(self)))
            return getattr(self._measuring.fixture, name)

        def __setattr__(self, name: str, value: object) -> None:
            check_set(name)
            pytest_benchmark.label(self._measuring.fixture, **{name: value})

    @property
    def result(self) -> object:
        """Result of the last timed call of the step, to be asserted on; not recorded.

        Raises:
            Misuse: nothing has been measured yet.
        """
        if not self._measuring.has_result:
            raise Misuse("gpubench.result was read before a measurement")
        return self._measuring.result

    def __call__(
        self,
        step: Callable[..., object] | Subject,
        *arguments: object,
        samples: float | None = None,
        tokens: float | None = None,
        bytes: float | None = None,
        flops: float | None = None,
        setup: Step | None = None,
        teardown: Step | None = None,
        **unknown: Never,
    ) -> Measurement:
        """Measure `step`, called with the `arguments`, and return this rank's measurement.

        A subject (`trainer`, `inference`, …), or its own ``step``, has its amounts, FLOPs and
        facts. Any other callable has the amounts stated here. `setup` and `teardown` run around
        every call, outside the timed part.

        Raises:
            Misuse: called a second time or with an unknown keyword, `step` is not callable or
                returns unfinished work, or an amount is not a positive number or contradicts the
                subject's.
            CorrectnessError: a check failed, or the subject's step did not take one step.
            MeasurementError: a number is impossible.
            Throttled: the GPU was throttled, and ``measure.throttle=fail``.
            Unsupported: ``training.deterministic``, but an operation has no deterministic form.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        with self._noting():
            for name in unknown:
                allowed = (*amounts, "setup", "teardown")
                problem = invalid_choice("gpubench", name, allowed, noun="keyword ")
                raise Misuse(f"{problem}; the step's own: functools.partial(f, {name}=…)")
            stated = self._claim_measurement(amounts)
            self._settle()
            timed = TimedStep.of(step, *arguments, setup=setup, teardown=teardown)
            return self._measured(Variants.single(timed), stated)

    def pedantic(
        self,
        target: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        setup: Callable[[], object] | None = None,
        teardown: Callable[..., object] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Measurement:
        """Measure `rounds` of `iterations` calls, after the untimed `warmup_rounds`.

        As pytest-benchmark's `pedantic`, with gpubench's clock and without further calls: nothing
        is checked, and on a CPU the tensors' memory is unknown. `setup` runs before every call, and
        may return the arguments as (args, kwargs), which `teardown` gets. On a GPU calls of less
        than a second that were warmed up are followed by six that calibrate the clock.

        Raises:
            Misuse: called after a measurement, or the arguments do not fit together.
            MeasurementError: a number is impossible.
        """
        with self._noting():
            work = self._claim_measurement({})
            require_counts(rounds, iterations, warmup_rounds, has_setup=bool(setup))
            self._settle()
            timed = pedantic_step(target, args, kwargs or {}, setup, teardown)
            fix_rounds(self._request, rounds, iterations, warmup_rounds)
            self._measuring.make_no_further_call()
            return self._measuring.measure(Variants.single(timed), work)

    def train(
        self,
        model: nn.Module | Callable[[], nn.Module],
        batch: object = None,
        loss: Callable[..., torch.Tensor] | None = None,
        *,
        optimizer: str | OptimizerOf | None = None,
        samples: int | None = None,
        tokens: float | None = None,
        flops: float | None = None,
    ) -> Measurement:
        """Measure a training step of a copy of `model` on `batch`, as of the fixture ``trainer``.

        A function as `model` builds it; one by its name (:func:`.load`) needs no batch and no
        loss. A tuple as `batch` is the model's inputs, then the targets
        of `loss`; a dictionary has the model's keyword arguments, and is the loss' second argument.
        A loss of (model, batch) calls the model itself; None takes the loss in the model's output.
        `optimizer` is a name of ``training.optimizer``, or a function of the parameters.

        Raises:
            Misuse: these do not fit together, or contradict the configuration.
            CorrectnessError: the model does not learn, or differs from fp32.
        """
        with self._noting():
            models = self._models()
            trainer = models.trainer(model, batch, loss, optimizer=optimizer, samples=samples)
        return self(trainer, tokens=tokens, flops=flops)

    def infer(
        self,
        model: nn.Module | Callable[[], nn.Module],
        batch: object = None,
        *,
        samples: int | None = None,
        tokens: float | None = None,
        flops: float | None = None,
    ) -> Measurement:
        """Measure a forward pass of a copy of `model` on `batch`, as of the fixture ``inference``.

        A function as `model` builds it; one by its name (:func:`.load`) needs no batch. A tuple or
        dictionary as `batch` has its arguments.

        Raises:
            Misuse: these do not fit together, or contradict the configuration.
            CorrectnessError: an output is not finite.
        """
        with self._noting():
            inference = self._models().inference(model, batch, samples=samples)
        return self(inference, tokens=tokens, flops=flops)

    def _models(self) -> OwnModels:
        """What builds own models, in the benchmark's precision: without the fixture, fp32."""
        self._refuse_second()
        self._settle(uses_torch=True)
        from gpubench_plugin.bench.own_models import OwnModels  # torch's presence is known by now

        models = OwnModels(self._request, cast("ProcessGroup", self._measuring.group))
        self._measuring.precision = models.precision
        return models

    def compare(
        self,
        variants: Mapping[str, Step],
        *,
        check: ResultCheck = None,
        samples: float | None = None,
        tokens: float | None = None,
        bytes: float | None = None,
        flops: float | None = None,
        setup: Step | None = None,
        teardown: Step | None = None,
    ) -> Measurement:
        """Measure `variants` of a step in turns; return this rank's measurement of the last one.

        The first is the reference, over which each other one has its speed-up. Each is called once
        before anything is timed, and their results must agree: be equal, or close by the tolerances
        of :func:`torch.testing.assert_close`; or satisfy `check`, a function of the results by
        name, which raises or returns False where they disagree. ``check=False`` checks nothing.
        Amounts, `setup` and `teardown` are those of every variant, as of a single step.

        Raises:
            Misuse: called after a measurement, there are fewer than two variants, or one has
                an impossible name, is no plain callable or returns unfinished work.
            CorrectnessError: the results disagree, or another check failed.
            MeasurementError: a number is impossible.
            Throttled: the GPU was throttled, and ``measure.throttle=fail``.
            Unsupported: ``training.deterministic``, but an operation has no deterministic form.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        with self._noting():
            stated = self._claim_measurement(amounts)
            self._settle()
            steps = Variants.of(variants, setup=setup, teardown=teardown)
            return self._measured(steps, stated, check)

    def record(
        self,
        name: str,
        value: float | Callable[[], float],
        *,
        unit: str = "1",
        better: Better = "none",
    ) -> None:
        """Add a custom metric to the record; must be called before the step is measured.

        A function is called after the timed calls. Of several ranks rank zero's value counts.

        Raises:
            Misuse: called after the measurement or twice, or the name is none. The measurement
                checks the unit and the value.
        """
        if problem := name_problem(name):
            raise Misuse(f"gpubench.record: {problem}")
        if self._measuring.is_claimed:
            raise Misuse(f"gpubench.record({name!r}) was called after the measurement")
        metrics = self._measuring.custom_metrics
        if name in metrics:
            raise Misuse(f"gpubench.record({name!r}) was called twice")
        metrics[name] = CustomMetric(name=name, value=value, unit=unit, better=better)

    def log(self, /, *, step: int, **metrics: object) -> None:
        """Log numbers of a step of one's own, points of curves in the run's journal.

        It may be called any number of times, before and after the measurement, but not in the
        measured step. Tensors without a dimension are read, which waits for their device. Of
        several ranks rank zero's values count.

        Raises:
            Misuse: called in the measured step, or the step, a name or a value is none.
        """
        self._measuring.metric_log.log(step, metrics)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what is raised, since the test may catch it and pass; keep what reproduces it."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, CorrectnessError):
                from gpubench_plugin.bench.reproduction import keep

                keep(error, self._measuring)
            self._measuring.record.raised(error)
            raise

    def _measured(self, steps: Variants, stated: Work, check: ResultCheck = None) -> Measurement:
        try:
            return self._measuring.measure(steps, stated, check)
        except TorchImported:  # by the first call
            self._settle()
            return self._measuring.measure(steps, stated, check)

    def _settle(self, *, uses_torch: bool = False) -> None:
        """Resolve the benchmark anew if it uses torch, though it had not when it was set up."""
        state = self._measuring.state
        if not state.case.uses_torch and (uses_torch or state.imports.have_torch()):
            state.imports.end()
            resolve_with_torch(self._request)
            self._measuring.join(group_of(self._request))

    def _claim_measurement(self, amounts: Mapping[str, object]) -> Work:
        """Claim the benchmark's single measurement; return the stated `amounts`."""
        self._refuse_second()
        self._measuring.is_claimed = True
        return stated_work(amounts)

    def _refuse_second(self) -> None:
        if self._measuring.is_claimed:
            raise Misuse("gpubench was called twice, or in its own step; one step per test")
