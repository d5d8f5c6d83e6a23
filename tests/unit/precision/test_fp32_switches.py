"""fp32 is IEEE and tf32 is TF32, in every operation, whatever held before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.precision.single import FP32, TF32, operations

if TYPE_CHECKING:
    from collections.abc import Iterator


def each() -> dict[str, str]:
    return {name: operation.fp32_precision for name, operation in operations().items()}


@pytest.fixture(autouse=True)
def defaults_of_torch() -> Iterator[None]:
    """The switches as torch starts with them, before and after each test."""

    def reset() -> None:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        for name, operation in operations().items():
            operation.fp32_precision = "tf32" if ".cudnn." in name else "none"

    reset()
    yield
    reset()


@pytest.mark.parametrize(
    ("precision", "expected"), [(FP32(), "ieee"), (TF32(), "tf32")], ids=["fp32", "tf32"]
)
@pytest.mark.parametrize("general", ["none", "ieee", "tf32"])
def test_every_operation_is_switched(precision: FP32 | TF32, expected: str, general: str) -> None:
    """Matrix products, convolutions and recurrent layers all change, whatever was general."""
    torch.backends.fp32_precision = general
    with precision.switches():
        assert dict.fromkeys(operations(), expected) == each()


def test_bf16_inside_of_fp32_is_off() -> None:
    """A CPU told to compute fp32 products in bf16 does not within fp32, and does again after."""
    torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    before = each()
    with FP32().switches():
        assert dict.fromkeys(operations(), "ieee") == each()
    assert before == each()
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.parametrize(
    ("precision", "matmul", "cudnn"),
    [(FP32(), "highest", False), (TF32(), "high", True)],
    ids=["fp32", "tf32"],
)
def test_old_switches_agree(precision: FP32 | TF32, matmul: str, cudnn: bool) -> None:
    """Readers of the old switches, the compiler among them, see the same and no error."""
    with precision.switches():
        assert matmul == torch.get_float32_matmul_precision()
        assert (matmul == "high") == torch.backends.cuda.matmul.allow_tf32
        assert cudnn == torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("inner", [FP32(), TF32()], ids=["fp32", "tf32"])
def test_a_new_switch_set_by_the_user_survives(inner: FP32 | TF32) -> None:
    """A session that turned TF32 on by the new switches alone finds them as it left them."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    before = each()
    with inner.switches():
        pass
    assert before == each()


def test_operations_follow_the_general_switch_again() -> None:
    """An operation that followed the general precision still follows it afterwards."""
    torch.backends.cuda.matmul.fp32_precision = "none"
    with FP32().switches():
        pass
    torch.backends.fp32_precision = "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
