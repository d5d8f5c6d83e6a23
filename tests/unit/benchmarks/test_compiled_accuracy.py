"""When a compiled step counts as accurate: beside the eager one, and beside a wider dtype."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from benchmarks.system import compile_study
from benchmarks.system.compile_study import StepResults, compare, exact_results, wider_dtype
from gpubench_plugin.core.errors import CorrectnessError

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")
LAYERS = 20
TOLERANCE = 2.0**-8


def deep_network() -> tuple[nn.Module, Tensor]:
    """A deep network with batch normalization, whose first gradients are ill-conditioned."""
    torch.manual_seed(0)
    layers = [
        layer for _ in range(LAYERS) for layer in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.Linear(32, 8)), torch.randn(16, 32)


def loss(dtype: torch.dtype | None, rows: Tensor, module: nn.Module) -> Tensor:
    """The loss under autocast to `dtype`, None for fp32."""
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        output: Tensor = module(rows)
    return output.square().mean()


def in_another_order(module: nn.Module) -> nn.Module:
    """The same function with its features permuted: other sums, so other roundings."""

    class Permuted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, rows: Tensor) -> Tensor:
            for layer in module.children():
                rows = self.permuted(layer, rows) if isinstance(layer, nn.Linear) else layer(rows)
            return rows

        @staticmethod
        def permuted(layer: nn.Linear, rows: Tensor) -> Tensor:
            half = rows.shape[1] // 2
            first = rows[:, half:] @ layer.weight[:, half:].T
            return first + rows[:, :half] @ layer.weight[:, :half].T + layer.bias

    return Permuted()


def results(
    dtype: torch.dtype | None, change: Callable[[nn.Module], nn.Module] | None = None
) -> tuple[StepResults, Callable[[], StepResults | None]]:
    """Results of the network in a dtype, and what computes them in a wider one."""
    module, rows = deep_network()
    computed_by = None if change is None else change(module)
    measured = StepResults.of(partial(loss, dtype, rows), module, computed_by=computed_by)
    wide = wider_dtype("fp32" if dtype is None else "bf16")
    exact = partial(
        exact_results, partial(loss, None, rows.to(wide)), module, dtype=wide, device=CPU
    )
    return measured, exact


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float16, TOLERANCE), (torch.bfloat16, TOLERANCE), (None, 1e-7)],
    ids=["fp16", "bf16", "fp32"],
)
def test_other_roundings_of_a_deep_network_are_accurate(
    dtype: torch.dtype | None, tolerance: float
) -> None:
    """They differ by more than the tolerance, and by no more than rounding does from exact ones."""
    (expected, exact), (actual, _) = results(dtype), results(dtype, in_another_order)
    errors = compare(actual, expected, tolerance=tolerance, exact=exact)
    assert errors["relative_error"] > tolerance
    assert errors["eager_error"] > tolerance
    assert errors["compiled_error"] <= 1.5 * errors["eager_error"]
    assert errors["eager_error_near_loss"] < errors["eager_error"]
    with pytest.raises(CorrectnessError, match="differs from the eager one by"):
        compare(actual, expected, tolerance=tolerance, exact=lambda: None)


def test_results_within_the_tolerance_need_no_reference() -> None:
    """Nothing else is computed where the cheap comparison is enough."""
    (expected, _), (actual, _) = results(None), results(None, in_another_order)
    errors = compare(actual, expected, tolerance=1e-3, exact=lambda: pytest.fail("computed"))
    assert errors == {"relative_error": actual.error(expected), "tolerance": 1e-3}


def scaled(factor: float) -> Callable[[nn.Module], nn.Module]:
    """Computes outputs that are larger by a factor, as a wrong scale does."""

    class Scaled(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.inner = module

        def forward(self, rows: Tensor) -> Tensor:
            output: Tensor = self.inner(rows)
            return output * factor

    return Scaled


@pytest.mark.parametrize("factor", [0.5, 1.1, 2.0, float("nan")])
def test_wrong_results_are_refused_however_ill_conditioned(factor: float) -> None:
    """The loss and the gradients nearest to it show what is hidden in those of the first layers."""
    (expected, exact), (actual, _) = (
        results(torch.bfloat16),
        results(torch.bfloat16, scaled(factor)),
    )
    with pytest.raises(CorrectnessError, match=r"or 1\.5 times the eager error, which"):
        compare(actual, expected, tolerance=TOLERANCE, exact=exact)


def test_weights_of_16_bits_have_a_reference_of_their_own() -> None:
    """It has fp32 copies of the weights; the module keeps its own, and no gradients."""
    torch.manual_seed(0)
    module = nn.Linear(4, 2).bfloat16()
    rows = torch.randn(3, 4)
    reference = exact_results(partial(loss, None, rows), module, dtype=torch.float32, device=CPU)
    assert reference is not None
    assert {tensor.dtype for tensor in reference.tensors} == {torch.float32}
    assert module.weight.dtype == torch.bfloat16
    assert module.weight.grad is None


def test_reference_without_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of what was computed is released; other errors are not hidden."""
    released: list[torch.device] = []
    monkeypatch.setattr(compile_study, "release_memory", released.append)
    module, _ = deep_network()

    def fail(error: Exception, module: nn.Module) -> Tensor:
        raise error

    exact = partial(exact_results, module=module, dtype=torch.float64, device=CPU)
    assert exact(partial(fail, torch.OutOfMemoryError("no"))) is None
    assert released == [CPU]
    with pytest.raises(RuntimeError, match="another"):
        exact(partial(fail, RuntimeError("another")))
