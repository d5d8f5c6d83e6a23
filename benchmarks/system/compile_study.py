"""Compiled training step as a benchmark, with its compilation cost and its accuracy.

Loss and gradients of the compiled and of the eager step are both off, since compiled code rounds at
other places. Where they differ by more than the tolerance, the same step in a wider dtype decides
(fp64 for fp32, else fp32): the compiled one may be off by little more than the eager one. That is
much in models with batch normalization (see ``bands.py``). Relative errors on a CPU, eager and
compiled by inductor: 0.69 and 0.68 of a ResNet-50 in fp16 on 16 images of 64×64, 1.28 and 1.26 in
bf16; 0.0020 and 0.0019 of the tiny one in fp32; 0.0028 and 0.0027 of a Llama of 22 layers in bf16.
Hence loss and gradients nearest to it are compared by themselves, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, cast

import torch
from torch import Tensor, nn

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, Unsupported, with_causes
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.device_errors import is_out_of_memory
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.measure.process_state import release_memory
from gpubench_plugin.training.bands import well_conditioned_parameters
from gpubench_plugin.workloads._accuracy import relative_error

Loss = Callable[[nn.Module], Tensor]
"""Loss of one batch, computed by a module."""

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

    `compiled` compiles the module `eager`, as ``make_compiler`` does. `loss` is that of
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
    cost: CompileCost = field(init=False)
    """Compilation cost, available after :meth:`prepare`."""

    def __post_init__(self) -> None:
        self._compiled = self.compiled(self.eager)

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
        """Count recompiles from now on."""
        self._graphs_before = capture_counters()["graphs"]

    def finish(self) -> Mapping[str, float]:
        """No facts; `recompiles` then counts those during timing, ideally none."""
        self.recompiles = capture_counters()["graphs"] - self._graphs_before
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
            # The fastest of three: little noise at little cost.
            steady_s = min(timed_s(self.step, self.device) for _ in range(3))
        self.cost = CompileCost(
            cold_s=max(0.0, cold_s - steady_s),
            warm_s=max(0.0, warm_s - steady_s),
            graphs=new_counters["graphs"],
            graph_breaks=new_counters["graph_breaks"],
            operations=new_counters["operations"],
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
        return (capture_counters() - counters_before)["graphs"]

    def _train(self, module: nn.Module) -> None:
        self.loss(module).backward()
        self.eager.zero_grad(set_to_none=True)


def capture_counters() -> Counter[str]:
    """Dynamo's counts of `graphs`, `graph_breaks` and `operations`, which only increase."""
    from torch._dynamo.utils import counters

    return Counter(
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
        for cause in with_causes([error]):
            if reason := _MISSING.get(type(cause).__name__):
                raise Unsupported(reason) from error
        raise


# Error of the compiled results over that of the eager ones: 0.96 to 0.99 on a CPU, since norms over
# millions of numbers vary little.
_MOST_TIMES_EAGER: Final = 1.5


@dataclass(frozen=True, eq=False, kw_only=True)
class StepResults:
    """Loss and gradients of a step, and the positions of the well-conditioned ones among them."""

    tensors: Sequence[Tensor]
    near_loss: Sequence[int]

    @classmethod
    def of(
        cls, loss: Loss, module: nn.Module, *, computed_by: nn.Module | None = None
    ) -> StepResults:
        """Results of `module`, or of what computes in its place; gradients are dropped."""
        value = loss(module if computed_by is None else computed_by)
        value.backward()
        near_loss = {id(parameter) for parameter in well_conditioned_parameters(module)}
        tensors, positions = [value.detach().clone()], [0]
        for parameter in module.parameters():
            if parameter.grad is not None:
                if id(parameter) in near_loss:
                    positions.append(len(tensors))
                tensors.append(parameter.grad.clone())  # a captured graph writes into its own
        module.zero_grad(set_to_none=True)
        return cls(tensors=tensors, near_loss=positions)

    def error(self, expected: StepResults, *, near_loss: bool = False) -> float:
        """Norm of the difference over the norm of the expected values, or the well-conditioned."""
        positions = self.near_loss if near_loss else range(len(self.tensors))
        return relative_error(
            *([results.tensors[n] for n in positions] for results in (self, expected))
        )


def compare(
    actual: StepResults,
    expected: StepResults,
    *,
    tolerance: float,
    exact: Callable[[], StepResults | None] | None = None,
) -> dict[str, float]:
    """Require compiled results to be as accurate as the `expected` eager ones; return the errors.

    `exact` computes them in a wider dtype, and is called only if they differ by more than the
    tolerance; None if it cannot.

    Raises:
        CorrectnessError: they do, and there are no exact ones or the compiled error is larger.
    """
    error = actual.error(expected)
    errors = {"relative_error": error, "tolerance": tolerance}
    if error <= tolerance:
        return errors
    message = (
        f"the compiled step differs from the eager one by {error:.3g} of the norm of loss and "
        f"gradients; allowed: {tolerance:g}"
    )
    reference = exact() if exact else None
    if reference is None:
        raise CorrectnessError(message)
    message += f", or {_MOST_TIMES_EAGER:g} times the eager error"
    for kind in ("", "_near_loss"):
        compiled_error, eager_error = (
            results.error(reference, near_loss=bool(kind)) for results in (actual, expected)
        )
        errors |= {f"compiled_error{kind}": compiled_error, f"eager_error{kind}": eager_error}
        if not compiled_error <= max(tolerance, _MOST_TIMES_EAGER * eager_error):  # also NaN
            where = ", nearest the loss" if kind else ""
            raise CorrectnessError(
                f"{message}, which in a wider dtype is {eager_error:.3g}{where}; the compiled one "
                f"is {compiled_error:.3g}"
            )
    return errors


def wider_dtype(compute_dtype: str) -> torch.dtype:
    """Dtype of exact results, by a precision's ``compute_dtype``; nothing is wider than fp64."""
    return torch.float64 if compute_dtype in {"fp32", "fp64"} else torch.float32


def exact_results(
    loss: Loss, module: nn.Module, *, dtype: torch.dtype, device: torch.device
) -> StepResults | None:
    """Results of `module` with weights and products in `dtype`; None if memory is too small.

    `loss` is that of a batch in this dtype, without autocast.
    """
    has_dtype = all(parameter.dtype == dtype for parameter in module.parameters())
    try:
        with catalog.load("precision", "fp32")().switches():
            return StepResults.of(loss, module if has_dtype else deepcopy(module).to(dtype))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    module.zero_grad(set_to_none=True)
    release_memory(device)
    return None
