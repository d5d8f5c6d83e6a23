"""Compiled training step as a benchmark, with its compilation cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import sub
from typing import NamedTuple, cast

import torch
from torch import nn

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.training.compiled_accuracy import Loss, StepResults, compare

# Inductor's errors without a compiler for its code, by name.
_MISSING = {
    "InvalidCxxCompiler": "inductor requires a C++ compiler: install g++",
    "TritonMissing": "inductor requires Triton: pip install triton",
    "GPUTooOldForTriton": "inductor requires Triton, which does not support this GPU",
}


@dataclass(frozen=True, kw_only=True)
class CompileCost:
    """Compilation cost.

    `cold_s` and `warm_s` are seconds beyond a steady step: with an empty disk cache, and with only
    the disk cache of the cold compile. `graphs`, `graph_breaks` and captured `operations` are of
    the cold compile. `batch_size_recompiles` counts captures for further batch sizes.
    """

    cold_s: float
    warm_s: float
    graphs: int
    graph_breaks: int
    operations: int
    batch_size_recompiles: int


@dataclass(eq=False, kw_only=True)
class CompiledStep:
    """Forward and backward pass of a compiled module; gradients are dropped after each step.

    `compiled` compiles the module `eager`; see :func:`.compile.make_compiler`. `loss` is that of
    the measured batch of `samples`, `other_losses` are untimed ones of other batch sizes.
    `tolerance` limits the relative error of loss and gradients against `eager`. `exact` computes
    the results of `eager` in a wider dtype. `flops_step` is one step on fake tensors.
    """

    eager: nn.Module
    compiled: Callable[[nn.Module], nn.Module]
    loss: Loss
    other_losses: Sequence[Loss]
    device: torch.device
    tolerance: float
    flops_step: Callable[[], None]
    samples: int
    exact: Callable[[], StepResults | None] | None = None
    recompiles: int = field(default=0, init=False)
    calls: int = field(default=0, init=False)
    _graphs_before: int = field(default=0, init=False)
    _cost: CompileCost | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._compiled = self.compiled(self.eager)

    @property
    def cost(self) -> CompileCost:
        """Compilation cost, available after :meth:`prepare`."""
        assert self._cost is not None
        return self._cost

    def step(self) -> None:
        """Run the compiled step (hot path)."""
        self._train(self._compiled)
        self.calls += 1

    def eager_step(self) -> None:
        """Run the uncompiled step."""
        self._train(self.eager)

    def prepare(self, log: Callable[[Mapping[str, object]], None]) -> Check:
        """Compile cold and warm, and compare the results with the uncompiled module.

        Raises:
            CorrectnessError: loss or gradients differ by more than the tolerance, and from exact
                ones by more than the uncompiled ones.
            Unsupported: the backend's compiler is missing.
        """
        expected = StepResults.of(self.loss, self.eager)
        with _compiler_errors():
            first_s = self._compile()
        accuracy = compare(
            StepResults.of(self.loss, self.eager, computed_by=self._compiled),
            expected,
            tolerance=self.tolerance,
            exact=self.exact,
        )
        return Check(correctness=accuracy, facts={"first_step_s": first_s})

    def begin(self) -> None:
        """Start counting recompiles."""
        self._graphs_before = capture_counters().graphs

    def finish(self) -> Mapping[str, float]:
        """No facts; `recompiles` then counts those during timing, ideally none."""
        self.recompiles = capture_counters().graphs - self._graphs_before
        return {}

    def work(self) -> Work:
        """Samples of the batch."""
        return Work(samples=self.samples)

    def _compile(self) -> float:
        """Determine the cost; return the seconds of the first, cold step."""
        from torch._inductor.utils import clear_caches, fresh_cache

        recompiles = self._batch_size_recompiles()
        with fresh_cache():
            torch.compiler.reset()
            counters_before = capture_counters()
            cold_s = timed_s(self.step, self.device)
            new_counters = capture_counters() - counters_before
            torch.compiler.reset()
            clear_caches()
            warm_s = timed_s(self.step, self.device)
            # The fastest of three: little noise at little cost; not measured.
            steady_s = min(timed_s(self.step, self.device) for _ in range(3))
        self._cost = CompileCost(
            cold_s=max(0.0, cold_s - steady_s),
            warm_s=max(0.0, warm_s - steady_s),
            **new_counters._asdict(),
            batch_size_recompiles=recompiles,
        )
        return cold_s

    def _batch_size_recompiles(self) -> int:
        """Count recompiles with a backend that only captures, since capture is the same for all."""
        torch.compiler.reset()
        module = cast("nn.Module", torch.compile(self.eager, backend="eager"))
        self.loss(module)
        counters_before = capture_counters()
        for loss in self.other_losses:
            loss(module)
        return (capture_counters() - counters_before).graphs

    def _train(self, module: nn.Module) -> None:
        self.loss(module).backward()
        self.eager.zero_grad(set_to_none=True)


class CaptureCounters(NamedTuple):
    """Dynamo counters of this process."""

    graphs: int
    graph_breaks: int
    operations: int

    def __sub__(self, other: CaptureCounters) -> CaptureCounters:
        return CaptureCounters(*map(sub, self, other))


def capture_counters() -> CaptureCounters:
    """Read the counters, which only increase."""
    from torch._dynamo.utils import counters

    return CaptureCounters(
        graphs=counters["stats"]["unique_graphs"],
        graph_breaks=sum(counters["graph_break"].values()),
        operations=counters["stats"]["calls_captured"],
    )


@contextmanager
def _compiler_errors() -> Iterator[None]:
    """Skip the benchmark if the backend lacks a compiler.

    Raises:
        Unsupported: naming what to install.
    """
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if reason := _MISSING.get(type(cause).__name__):
                raise Unsupported(reason) from error
            cause = cause.__cause__ or cause.__context__
        raise
