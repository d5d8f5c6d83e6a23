from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from gpubench_plugin.core.errors import Unsupported
from tests.support.micro_suite import operations

SUITE = operations("test_attention")
flops, run_attention = SUITE.flops, SUITE.run_attention


def _attention() -> torch.Tensor:
    torch.manual_seed(0)
    return scaled_dot_product_attention(*torch.randn(3, 1, 2, 8, 4))


@pytest.mark.parametrize("name", ["math", "flash"])
def test_the_implementation_asked_for_is_the_one_taken(name: str) -> None:
    """Both that a CPU has compute the same."""
    assert torch.allclose(run_attention(name, _attention), _attention(), atol=1e-6)


@pytest.mark.parametrize("name", ["efficient", "cudnn"])
def test_an_implementation_that_a_cpu_lacks_is_unsupported(name: str) -> None:
    """With the reason that torch gives."""
    with pytest.raises(Unsupported, match=f"attention by {name}: No viable backend"):
        run_attention(name, _attention)


def test_another_implementation_than_asked_for_is_unsupported() -> None:
    """Where something inside chooses for itself, the measurement would have a wrong name."""

    def math() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return _attention()

    with pytest.raises(Unsupported, match="attention by flash: torch used math instead"):
        run_attention("flash", math)


def test_missing_memory_is_not_hidden() -> None:
    """It is not what torch cannot take."""

    def large() -> torch.Tensor:
        raise torch.OutOfMemoryError("tried to allocate 20.00 GiB")

    with pytest.raises(torch.OutOfMemoryError):
        run_attention("math", large)


def test_operations_of_attention() -> None:
    """Two products of 2·B·H·T²·D each, and four more backward."""
    assert flops(2, 3, 8, 4, backward=False) == 2 * 2 * (2 * 3 * 8 * 8 * 4)
    assert flops(2, 3, 8, 4, backward=True) == 3 * flops(2, 3, 8, 4, backward=False)
