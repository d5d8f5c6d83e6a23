"""What the suite's single operations do on a device, with a torch that does it on paper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.core.errors import Unsupported
from tests.support.micro_suite import operations

META = torch.device("meta")


class Drawn(Exception):
    """Random numbers were drawn on this device."""


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("direction", ["host_to_device", "device_to_host"])
def test_bytes_to_copy_are_drawn_on_the_device(
    monkeypatch: pytest.MonkeyPatch, direction: str, memory: str
) -> None:
    """A CPU would take seconds for the gibibyte of preset full, in every case."""

    def drawn(*_: object, device: torch.device | None = None, **__: object) -> None:
        raise Drawn(device and device.type)

    monkeypatch.setattr(torch, "randint", drawn)
    test_copy_host = operations("test_copies").test_copy_host
    with pytest.raises(Drawn, match="meta"):
        test_copy_host(None, META, SimpleNamespace(copy_bytes=16), direction, memory)


@pytest.mark.parametrize(("accumulation", "is_fast"), [("precise", False), ("fast", True)])
def test_fp8_products_accumulate_as_their_case_states(
    monkeypatch: pytest.MonkeyPatch, accumulation: str, is_fast: bool
) -> None:
    """The case ``fast`` lets the tensor cores add in fewer bits; the other one does not."""
    stated: list[bool] = []

    def product(left: torch.Tensor, right: torch.Tensor, **options: Any) -> torch.Tensor:
        stated.append(options["use_fast_accum"])
        return (left.float() @ right.float()).to(options["out_dtype"])

    class Bench:
        def __call__(self, step: Any, **_: object) -> None:
            step()

        def record(self, name: str, value: float) -> None: ...

    monkeypatch.setattr(torch, "_scaled_mm", product)
    for name in ("randn", "ones"):
        drawn = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *sizes, device, drawn=drawn: drawn(*sizes))
    test = operations("test_gemm").test_matmul_fp8
    cuda = SimpleNamespace(type="cuda")  # whose tensors lie on the CPU
    test(Bench(), cuda, SimpleNamespace(matrix_size=32), None, accumulation, "hot")
    assert stated == [is_fast] * 2


def test_fast_accumulation_is_unsupported_elsewhere() -> None:
    """A CPU would compute the same as without it, under another name."""
    test = operations("test_gemm").test_matmul_fp8
    with pytest.raises(Unsupported, match="fast accumulation is one of CUDA's"):
        test(None, torch.device("cpu"), SimpleNamespace(matrix_size=32), None, "fast", "hot")
