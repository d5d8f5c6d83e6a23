"""A compiled training step as a thing to measure, with what compiling it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import sub
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from gpubench_plugin.environment import timed_s
from gpubench_plugin.errors import CorrectnessError, Unsupported
from gpubench_plugin.records import Check, Work

Loss = Callable[[nn.Module], Tensor]
"""The loss of one batch, computed by a module that is given."""

# What inductor says where it finds nothing to compile its code with.
_MISSING = {
    "InvalidCxxCompiler": "inductor needs a C++ compiler: install g++",
    "TritonMissing": "inductor needs Triton: pip install triton",
    "GPUTooOldForTriton": "this GPU is too old for Triton, which inductor needs",
}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What compiling took.

    `cold_s` and `warm_s` are seconds beyond a steady step: with an empty cache on disk, and with
    all that lives in memory forgotten but the cache on disk left from the cold compile. `graphs`
    and `graph_breaks` are of the cold compile, `operations` of the captured graphs.
    `batch_size_recompiles` counts the captures again that further batch sizes ask for.
    """

    cold_s: float
    warm_s: float
    graphs: int
    graph_breaks: int
    operations: int
    batch_size_recompiles: int


@dataclass(eq=False, kw_only=True)
class CompiledStep:
    """Forward and backward pass of a compiled module; gradients are forgotten after every step.

    `compiled` makes what is measured of the module `eager`; see :func:`.compile.compiler`. `loss`
    is that of the measured batch of `samples`, `other_losses` are those of other sizes, which are
    not timed. `tolerance` is the largest relative error of loss and gradients against `eager`,
    `flops_step` one step on tensors without data.
    """

    eager: nn.Module
    compiled: Callable[[nn.Module], nn.Module]
    loss: Loss
    other_losses: Sequence[Loss]
    device: torch.device
    tolerance: float
    flops_step: Callable[[], None]
    samples: int
    recompiles: int = field(default=0, init=False)
    calls: int = field(default=0, init=False)
    _graphs_before: int = field(default=0, init=False)
    _cost: Cost | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._compiled = self.compiled(self.eager)

    @property
    def cost(self) -> Cost:
        """What compiling took, once :meth:`prepare` found it out."""
        assert self._cost is not None
        return self._cost

    def step(self) -> None:
        """The compiled step: the hot path."""
        self._train(self._compiled)
        self.calls += 1

    def eager_step(self) -> None:
        """The same, not compiled."""
        self._train(self.eager)

    def prepare(self, log: Callable[[Mapping[str, object]], None]) -> Check:
        """Compile cold and warm, and compare what is computed with the module that is not compiled.

        Raises:
            CorrectnessError: loss or gradients differ by more than the tolerance.
            Unsupported: the back end lacks what it compiles with.
        """
        expected = self._results(self.eager)
        with _needing_compilers():
            first_s = self._compile()
        error = relative_error(self._results(self._compiled), expected)
        if not error <= self.tolerance:  # also where it is no number
            raise CorrectnessError(
                f"the compiled step differs from the eager one by {error:.3g} of the norm of loss "
                f"and gradients; allowed: {self.tolerance:g}"
            )
        return Check(
            correctness={"relative_error": error, "tolerance": self.tolerance},
            facts={"first_step_s": first_s},
        )

    def begin(self) -> None:
        """Count recompiles from here."""
        self._graphs_before = captured().graphs

    def finish(self) -> Mapping[str, float]:
        """No facts; `recompiles` is then the number in the timed calls, which should be none."""
        self.recompiles = captured().graphs - self._graphs_before
        return {}

    def work(self) -> Work:
        """The samples of the batch."""
        return Work(samples=self.samples)

    def _compile(self) -> float:
        """Find out the cost; the seconds of the first, cold step."""
        from torch._inductor.utils import clear_caches, fresh_cache

        recompiles = self._batch_size_recompiles()
        with fresh_cache():
            torch.compiler.reset()
            before = captured()
            cold_s = timed_s(self.step, self.device)
            seen = captured() - before
            torch.compiler.reset()
            clear_caches()
            warm_s = timed_s(self.step, self.device)
            steady_s = min(timed_s(self.step, self.device) for _ in range(3))
        self._cost = Cost(
            cold_s=max(0.0, cold_s - steady_s),
            warm_s=max(0.0, warm_s - steady_s),
            **seen._asdict(),
            batch_size_recompiles=recompiles,
        )
        return cold_s

    def _batch_size_recompiles(self) -> int:
        """Capturing is the same for every back end: one that compiles nothing finds it out."""
        torch.compiler.reset()
        module = cast("nn.Module", torch.compile(self.eager, backend="eager"))
        self.loss(module)
        before = captured()
        for loss in self.other_losses:
            loss(module)
        return (captured() - before).graphs

    def _train(self, module: nn.Module) -> None:
        self.loss(module).backward()
        self.eager.zero_grad(set_to_none=True)

    def _results(self, module: nn.Module) -> list[Tensor]:
        """Loss and gradients, in double precision."""
        loss = self.loss(module)
        loss.backward()
        gradients = [p.grad for p in self.eager.parameters() if p.grad is not None]
        results = [tensor.detach().double() for tensor in (loss, *gradients)]
        self.eager.zero_grad(set_to_none=True)
        return results


class Captured(NamedTuple):
    """What torch has captured in this process so far."""

    graphs: int
    graph_breaks: int
    operations: int

    def __sub__(self, earlier: Captured) -> Captured:
        return Captured(*map(sub, self, earlier))


def captured() -> Captured:
    """The counters of torch, which only grow."""
    from torch._dynamo.utils import counters

    return Captured(
        graphs=counters["stats"]["unique_graphs"],
        graph_breaks=sum(counters["graph_break"].values()),
        operations=counters["stats"]["calls_captured"],
    )


def relative_error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The norm of all differences over the norm of all that is expected."""
    difference = [a - e for a, e in zip(actual, expected, strict=True)]
    return _norm(difference) / _norm(expected)


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.norm() for tensor in tensors]).norm())


@contextmanager
def _needing_compilers() -> Iterator[None]:
    """What a back end lacks makes the benchmark unsupported.

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
